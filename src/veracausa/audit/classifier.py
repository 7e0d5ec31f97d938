"""A classifier that had no part in any attack: whether it sees the right class is one measure of an attack's success.

It is the auditor's. It learns from training rows of the party that are no victims and that no attacker knows, with
their labels. An attacker that is told the labels can paint the mean picture of a class, and any classifier sees the
right one in that. So the rate never stands alone: beside it are those of the class means, of the originals and of the
commonest class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa import seeding
from veracausa.attacks.fitting import one_cycle
from veracausa.audit.sample import Sample, labels_at
from veracausa.audit.victim import Victim
from veracausa.data.vertical import PartyData, Split
from veracausa.metrics.success import class_success
from veracausa.models.decoders import ResidualBlock
from veracausa.models.runner import eval_mode
from veracausa.seeding import drawing_from

MOST_ROWS = 20_000
_STEPS, _BATCH, _RATE, _WIDTH = 1500, 128, 3e-3, 48
_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class PictureClassifier:
    """A small residual network of one party's pictures."""

    network: nn.Module

    @classmethod
    def of(cls, victim: Victim, active: PartyData, sample: Sample, seed: int) -> PictureClassifier | None:
        """Trained on rows of the training split that the sample leaves; None where there are no classes to tell."""
        classes = len(victim.schema.classes) if victim.schema.task == "classification" else 0
        used = torch.cat([sample.victims["train"], sample.known, sample.spare])
        part = victim.data.train
        free = torch.ones(len(part), dtype=torch.bool)
        free[used] = False
        positions = free.nonzero().squeeze(1)
        positions = positions[part.present(positions)]
        rng = seeding.generator(seed, "audit", "classifier", victim.name)
        positions = positions[torch.randperm(len(positions), generator=rng)][:MOST_ROWS]
        labels = labels_at(active, "train", positions)
        if not victim.pixels or classes < 2 or labels is None or len(positions) < classes:
            return None
        return cls.fitted(victim.rows("train", positions), labels.to(victim.device), classes, rng)

    @classmethod
    def fitted(cls, rows: Tensor, labels: Tensor, classes: int, rng: torch.Generator) -> PictureClassifier:
        with drawing_from(rng):
            network = nn.Sequential(
                nn.Conv2d(rows.shape[1], _WIDTH, 3, padding=1),
                ResidualBlock(_WIDTH, _WIDTH),
                nn.MaxPool2d(2, ceil_mode=True),
                ResidualBlock(_WIDTH, _WIDTH),
                nn.MaxPool2d(2, ceil_mode=True),
                ResidualBlock(_WIDTH, _WIDTH),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
                nn.Linear(4 * _WIDTH, classes),
            )
        network = network.to(rows.device).train()
        batch = min(_BATCH, len(rows))
        steps = min(_STEPS, 30 * -(-len(rows) // batch))
        optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE)
        for step in range(steps):
            chosen = torch.randint(len(rows), (batch,), generator=rng).to(rows.device)
            for group in optimizer.param_groups:
                group["lr"] = one_cycle(step, steps, _RATE)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(rows[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return cls(network.eval())

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, classes) logits."""
        with eval_mode(self.network), torch.no_grad():
            return torch.cat([self.network(some) for some in torch.split(rows, _ROWS_AT_ONCE)])

    def rates(
        self, guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], active: PartyData, split: Split, at: Tensor
    ) -> dict[str, float]:
        """How often it sees the right class in readings, in guesses without the payload, and in the originals."""
        labels = labels_at(active, split, at)
        assert labels is not None

        def rate(rows: Tensor) -> float:
            return float(class_success(rows.to(truth.device), labels, self).float().mean())

        majority = int(torch.unique(labels, return_counts=True)[1].max()) / len(labels)
        without = max((rate(rows) for rows in blind.values()), default=majority)
        return {"attack": rate(guess), "grey": majority, "no_payload": max(without, majority), "originals": rate(truth)}
