"""Attacks on the labels: what a passive party sees of a training, what it guesses, and how rows fall into groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa.attacks.base import Attack, Grant, View, granted, recorded
from veracausa.attacks.gradient_record import GradientRecord
from veracausa.errors import InputError
from veracausa.events import ProgressCallback


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PassiveView(View):
    """All that a passive party may look at when it wants the labels; it never holds the active party."""

    party: str
    """The attacker."""
    classes: int
    rng: torch.Generator
    device: torch.device
    gradients: GradientRecord = recorded("what came back to the party")
    payloads: Tensor = recorded("the output of its bottom model")
    """By position, its trained bottom model's output for its own training rows; no grant, the model is its own."""
    known_ids: Tensor = granted(Grant.LABELLED_AUXILIARY)
    """Positions of a few training rows whose labels it knows."""
    known_labels: Tensor = granted(Grant.LABELLED_AUXILIARY)
    progress: ProgressCallback = field(default=lambda share: None)

    @property
    def known(self) -> tuple[Tensor, Tensor] | None:
        """The known positions and their labels, where there are some and it may use them."""
        if not (hasattr(self, "known_ids") and hasattr(self, "known_labels") and len(self.known_ids)):
            return None
        if len(self.known_ids) != len(self.known_labels):
            raise InputError(f"{len(self.known_ids)} known rows have {len(self.known_labels)} labels; give one each")
        return self.known_ids.cpu(), self.known_labels.cpu()


@dataclass(frozen=True)
class LabelGuess:
    """An attack's classes for some rows."""

    classes: Tensor
    """(n,) int64."""
    up_to_permutation: bool = False
    """Whether it knows only which rows belong together, not which class each group is."""
    score: Tensor | None = None
    """(n,) the higher, the likelier class 1; where the attack ranks rows of a binary task."""


class LabelAttack(Attack[PassiveView]):
    """The base of all attacks on the labels. One attack object works for one passive party."""

    kind = "label attack"
    uses = Grant.LABELLED_AUXILIARY
    reads_gradients: ClassVar[bool] = False
    """Whether it works on the gradients that came back to the party, which must have been recorded."""
    learns_from_rows: ClassVar[bool] = False
    """Whether it also works on the party's bare rows: what it gets from them, no federation gave it."""

    def begin(self, view: PassiveView) -> None:
        super().begin(view)
        if view.classes < 2:
            raise InputError(f"label attack {self.options.name!r} needs a task with at least 2 classes")
        if self.reads_gradients and not hasattr(view, "gradients"):
            name = self.options.name
            raise InputError(f"label attack {name!r} needs the gradients that the party received; record them")

    def infer(self, ids: Tensor) -> LabelGuess:
        """The classes of the training rows at these positions."""
        raise NotImplementedError


_SAMPLE = 4096


@dataclass(frozen=True)
class Clusters:
    """Groups of (n, d) unit vectors."""

    group: Tensor
    """(n,) the number of each vector's group."""
    centres: Tensor
    """(k, d) unit vectors."""
    compactness: float
    """The mean cosine of a vector and its group's centre."""
    separation: float
    """The mean of that cosine less the next centre's: how far from ambiguous the groups are."""


def spherical_k_means(
    vectors: Tensor,
    k: int,
    rng: torch.Generator,
    restarts: int = 32,
    iterations: int = 50,
    start: Tensor | None = None,
) -> Clusters:
    """Group directions by cosine: the most compact of several starts, or the one `start` of (k, d) centres leads to."""
    unit = F.normalize(vectors.float())
    if len(unit) < k:
        raise ValueError(f"{len(unit)} vectors make no {k} groups")
    if start is not None:
        return _settled(unit, F.normalize(start.to(unit)), iterations)
    # Most starts end with two groups in one; some thousand vectors are enough to find one that does not.
    some = unit[torch.randperm(len(unit), generator=rng)[:_SAMPLE].to(unit.device)]
    found = (_settled(some, _spread(some, k, rng), iterations) for _ in range(restarts))
    best = max(found, key=lambda clusters: clusters.compactness)
    return _settled(unit, best.centres, iterations)


def best_cut(values: Tensor) -> float:
    """The number that cuts (n,) values into the two groups with the least variance inside (Otsu's criterion)."""
    ordered = values.double().sort().values
    count = len(ordered)
    if count < 2 or ordered[0] == ordered[-1]:
        return float(ordered[-1]) if count else 0.0
    below = torch.arange(1, count, dtype=torch.float64, device=ordered.device)
    sums = ordered.cumsum(0)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (count - below)
    between = below * (count - below) * (high - low).square()
    between[ordered[1:] == ordered[:-1]] = -1  # equal values are not cut apart
    at = int(between.argmax())
    return float((ordered[at] + ordered[at + 1]) / 2)


def _spread(unit: Tensor, k: int, rng: torch.Generator) -> Tensor:
    """k starting centres, each drawn with a chance that grows with its distance from those before (k-means++)."""
    chosen = [int(torch.randint(len(unit), (1,), generator=rng))]
    nearest = torch.full((len(unit),), torch.inf, device=unit.device)
    while len(chosen) < k:
        nearest = torch.minimum(nearest, (1 - unit @ unit[chosen[-1]]).clamp_min(0))
        weights = nearest.double().cpu() + 1e-12
        chosen.append(int(torch.multinomial(weights, 1, generator=rng)))
    return unit[chosen]


def _settled(unit: Tensor, centres: Tensor, iterations: int) -> Clusters:
    k = len(centres)
    group = (unit @ centres.T).argmax(1)
    for _ in range(iterations):
        members = F.one_hot(group, k).to(unit)
        sums, sizes = members.T @ unit, members.sum(0)
        moved = F.normalize(sums)
        if (sizes == 0).any():
            # An empty group starts again from the vectors that fit their own groups worst.
            fit = (unit * moved[group]).sum(1)
            empty = (sizes == 0).nonzero().flatten()
            moved[empty] = unit[fit.argsort()[: len(empty)]]
        centres = moved
        before, group = group, (unit @ centres.T).argmax(1)
        if torch.equal(before, group):
            break
    best = (unit @ centres.T).topk(min(2, k), 1).values
    return Clusters(group, centres, float(best[:, 0].mean()), float((best[:, 0] - best[:, -1]).mean()))


def best_naming(groups: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes,) the class of each group, each class once, that makes most rows right."""
    from scipy.optimize import linear_sum_assignment

    inside = (labels >= 0) & (labels < classes)
    counts = torch.bincount(groups[inside] * classes + labels[inside], minlength=classes * classes)
    return torch.from_numpy(linear_sum_assignment(counts.view(classes, classes).numpy(), maximize=True)[1])
