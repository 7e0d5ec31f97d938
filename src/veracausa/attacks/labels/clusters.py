"""Groups without names: directions by spherical k-means, numbers by the best cut."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

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
