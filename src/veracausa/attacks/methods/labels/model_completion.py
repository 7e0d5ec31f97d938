"""Model completion (Fu et al. 2022, "Label inference attacks against vertical federated learning"): the party puts a
head of its own on its trained bottom model, learns it from a few labelled rows, and lets it label the rest.

The bottom model itself is not tuned further here; the head learns from its own surest guesses as well, a growing share
of them (curriculum pseudo-labels), where the original mixes rows (MixMatch).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks import label_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.labels import LabelAttack, LabelGuess, PassiveView
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.seeding import drawing_from

_ROWS_FOR_COMPONENTS = 1024
_ROWS_AT_ONCE = 1024


class ModelCompletionOptions(Options):
    components: int = Field(64, ge=1)
    """Principal components of the payloads that the head sees."""
    hidden: int = Field(64, ge=0)
    """Width of a hidden layer; 0: the head is linear, and learns nothing from its own guesses."""
    rounds: int = Field(5, ge=1)
    """Trainings; the first on known labels alone, the last on pseudo-labels of `pseudo` of all rows as well."""
    pseudo: float = Field(0.8, ge=0, le=1)
    steps: int = Field(150, ge=1)
    lr: float = Field(0.02, gt=0)
    weight_decay: float = Field(0.01, ge=0)


@label_attacks.register("model_completion", ModelCompletionOptions)
class ModelCompletion(LabelAttack):
    """A classifier on the party's own payloads, learnt from a few labelled rows and its own surest guesses."""

    needs = Grant.LABELLED_AUXILIARY
    learns_from_rows = True
    options: ModelCompletionOptions

    def begin(self, view: PassiveView) -> None:
        super().begin(view)
        if view.known is None:
            raise InputError("label attack 'model_completion' needs the party's payloads and a few known labels")
        known, labels = view.known
        if int(known.min()) < 0 or int(known.max()) >= len(view.payloads):
            raise InputError(f"a known row lies outside the {len(view.payloads)} payloads; give their positions")
        features = principal_components(view.payloads, self.options.components, view.device)
        known, labels = known.to(view.device), labels.to(view.device)
        self.probabilities, self.pseudo_labelled = torch.empty(0), 0
        targets, weights = labels, torch.full((len(known),), 1 / len(known), device=view.device)
        learnt = features[known]
        for number in range(1, self.options.rounds + 1):
            head = self._fit(view, learnt, targets, weights)
            with torch.no_grad():
                sure, guessed = head(features).softmax(1).max(1)
            view.progress(number / self.options.rounds)
            share = self.options.pseudo * number / max(1, self.options.rounds - 1)
            chosen = surest(sure, guessed, min(share, self.options.pseudo))
            chosen[known] = False
            self.pseudo_labelled = int(chosen.sum())
            learnt = torch.cat([features[known], features[chosen]])
            targets = torch.cat([labels, guessed[chosen]])
            # Known labels together weigh as much as all guesses together, or a few errors would outvote them.
            weights = torch.cat([weights[: len(known)], torch.ones_like(sure[chosen]) / max(1, self.pseudo_labelled)])
        with torch.no_grad():
            self.probabilities = head(features).softmax(1).cpu()
        self.probabilities[known.cpu()] = F.one_hot(labels, view.classes).float().cpu()

    def infer(self, ids: Tensor) -> LabelGuess:
        """The head's class of each row."""
        found = self.probabilities[ids.cpu()]
        return LabelGuess(found.argmax(1), score=found[:, 1] if found.shape[1] == 2 else None)

    def notes(self) -> Mapping[str, float]:
        return {
            "confidence": float(self.probabilities.max(1).values.mean()),
            "pseudo_labelled": float(self.pseudo_labelled),
        }

    def _fit(self, view: PassiveView, features: Tensor, targets: Tensor, weights: Tensor) -> nn.Module:
        """A fresh head, learnt on everything at once."""
        options, size = self.options, features.shape[1]
        with drawing_from(view.rng):
            head: nn.Module = nn.Linear(size, view.classes)
            if options.hidden:
                inner = nn.Linear(size, options.hidden)
                head = nn.Sequential(inner, nn.ReLU(), nn.Linear(options.hidden, view.classes))
        head.to(view.device)
        optimizer = torch.optim.AdamW(head.parameters(), lr=options.lr, weight_decay=options.weight_decay)
        share = weights / weights.sum()
        with torch.enable_grad():
            for _ in range(options.steps):
                optimizer.zero_grad(set_to_none=True)
                loss = (F.cross_entropy(head(features), targets, reduction="none") * share).sum()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return head


def principal_components(payloads: Tensor, most: int, device: torch.device) -> Tensor:
    """(n, c ≤ most) standardised coordinates on the main directions of the payloads, found on some of the rows."""
    rows = payloads.flatten(1)
    some = rows[:: max(1, len(rows) // _ROWS_FOR_COMPONENTS)][:_ROWS_FOR_COMPONENTS].to(device, torch.float64)
    mean = some.mean(0)
    centred = some - mean
    # The Gram matrix of the rows is small whatever the payload's size.
    strength, left = torch.linalg.eigh(centred @ centred.T)
    kept = (strength > 1e-9 * strength[-1].clamp_min(1e-30)).nonzero().flatten().flip(0)[:most]
    if not len(kept):
        return torch.zeros(len(rows), 1, device=device)
    axes = centred.T @ (left[:, kept] / strength[kept].sqrt())
    parts = [(part.to(device, torch.float64) - mean) @ axes for part in torch.split(rows, _ROWS_AT_ONCE)]
    # One scale for all: the weak directions are mostly noise and must not grow as loud as the strong.
    found = torch.cat(parts)
    return (found / found.std(0).max().clamp_min(1e-12)).float()


def surest(confidence: Tensor, guessed: Tensor, share: float) -> Tensor:
    """(n,) which guesses are among the surest `share` of their own class: an easy class must not crowd out the rest."""
    chosen = torch.zeros(len(confidence), dtype=torch.bool, device=confidence.device)
    for label in torch.unique(guessed):
        at = (guessed == label).nonzero().flatten()
        order = confidence[at].argsort(descending=True, stable=True)
        chosen[at[order[: round(share * len(at))]]] = True
    return chosen
