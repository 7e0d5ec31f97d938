"""What a transmitted representation carries of the task (cosine to the causal proxy) and of the rows (dCor).

A causal proxy is a sample whose neighbours stay the same through the depths of the model and which the model classifies
rightly and confidently. Higher is more task information. All tensors come from one trained model: the spaces of two
trainings have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional as F

NEIGHBOURS, STABLE_SHARE, CONFIDENCE, FEWEST = 10, 0.2, 0.95, 5
_ROWS_AT_ONCE = 512
_FLOOR = 1e-7
"""Under every root, of values brought to unit scale: a root's slope at 0 is infinite."""
_ROUNDING = 1e-6
"""Rows that differ by less than this share of their size are the same row."""


@dataclass(frozen=True)
class CausalCosine:
    """The score in its two readings, and what it rests on."""

    centred: float
    """Mean cos(T(x) − m, p_y − m), m the mean clean representation."""
    uncentred: float
    """Mean cos(T(x), p_y)."""
    to_clean: float
    """The second reading: mean cos(T(x), clean(x)) over the proxies alone."""
    proxies: int
    relaxed: tuple[int, ...]
    """Classes with fewer than five proxies, for which their most stable correct samples stand in."""
    missing: tuple[int, ...]
    """Classes without any correct sample; their samples do not count."""


def pooled(features: Tensor) -> Tensor:
    """(n, c) the mean over all places of (n, c, …) feature maps; vectors stay as they are."""
    return features.flatten(2).mean(2) if features.ndim > 2 else features


def neighbours(features: Tensor, k: int = NEIGHBOURS) -> Tensor:
    """(n, k) each sample's nearest others by cosine, in no particular order."""
    if not 0 < k < len(features):
        raise ValueError(f"{len(features)} samples have no {k} neighbours each")
    unit = F.normalize(features.flatten(1).double())
    found = []
    for start in range(0, len(unit), _ROWS_AT_ONCE):
        likeness = unit[start : start + _ROWS_AT_ONCE] @ unit.T
        at = torch.arange(len(likeness), device=unit.device)
        likeness[at, at + start] = -torch.inf
        found.append(likeness.topk(k, 1).indices)
    return torch.cat(found)


def stability(depths: Sequence[Tensor], k: int = NEIGHBOURS) -> Tensor:
    """(n,) how alike a sample's neighbourhoods are: the mean Jaccard index over all pairs of depths."""
    if len(depths) < 2:
        raise ValueError("stability compares neighbourhoods at two depths at least")
    found = [neighbours(pooled(features), k) for features in depths]
    overlaps = []
    for first, second in combinations(found, 2):
        shared = (first.unsqueeze(2) == second.unsqueeze(1)).sum((1, 2)).double()
        overlaps.append(shared / (2 * k - shared))
    return torch.stack(overlaps).mean(0)


def proxy_set(
    stable: Tensor,
    probabilities: Tensor,
    labels: Tensor,
    share: float = STABLE_SHARE,
    confidence: float = CONFIDENCE,
    fewest: int = FEWEST,
) -> tuple[Tensor, tuple[int, ...]]:
    """(n,) which samples are proxies, and the classes for which that had to be relaxed.

    A proxy is among the `share` most stable, and its true class has the highest probability, at least `confidence`. A
    class with fewer than `fewest` gets its most stable correct samples, up to that number.
    """
    top, predicted = probabilities.max(1)
    correct = predicted == labels
    least = stable.sort(descending=True).values[max(1, round(share * len(stable))) - 1]
    chosen = (stable >= least) & correct & (top >= confidence)
    relaxed = []
    for label in torch.unique(labels).tolist():
        if int((chosen & (labels == label)).sum()) >= fewest:
            continue
        relaxed.append(label)
        able = (correct & (labels == label)).nonzero().flatten()
        # Those that fulfil the rule stay; the others follow by stability.
        order = (stable + 2 * chosen.to(stable))[able].argsort(descending=True, stable=True)
        chosen[able[order[:fewest]]] = True
    return chosen, tuple(relaxed)


def class_proxies(clean: Tensor, labels: Tensor, chosen: Tensor, classes: int) -> Tensor:
    """(classes, d) the mean clean representation of each class's proxies; NaN for a class that has none."""
    flat = clean.flatten(1)
    means = [flat[chosen & (labels == label)].double().mean(0) for label in range(classes)]
    return torch.stack(means).to(flat.dtype)


def proxy_cosine(transmitted: Tensor, proxies: Tensor, labels: Tensor, mean: Tensor | None = None) -> Tensor:
    """(n,) cos(T(x) − m, p_y − m); without a mean, cos(T(x), p_y)."""
    mean = torch.zeros_like(proxies[0]) if mean is None else mean.flatten()
    return F.cosine_similarity(transmitted.flatten(1) - mean, proxies[labels] - mean, dim=1)


def causal_cosine(
    transmitted: Tensor,
    clean: Tensor,
    depths: Sequence[Tensor],
    probabilities: Tensor,
    labels: Tensor,
    k: int = NEIGHBOURS,
) -> CausalCosine:
    """The score of the same test samples sent (`transmitted`) and with the defense bypassed (`clean`).

    Args:
        transmitted: What is sent of n test samples.
        clean: Their representations with the defense bypassed.
        depths: Clean feature maps or vectors at three depths or more (the cut, and stages of the top model).
        probabilities: (n, classes) of the trained model.
        labels: (n,) true classes.
        k: How many neighbours make a neighbourhood.
    """
    chosen, relaxed = proxy_set(stability(depths, k), probabilities, labels)
    proxies = class_proxies(clean, labels, chosen, probabilities.shape[1])
    there = ~proxies.isnan().any(1)
    counted = there[labels]
    if not counted.any():
        raise ValueError("the model classifies no sample rightly: there is no causal proxy")
    sent, own = transmitted[counted], labels[counted]
    missing = [label for label in torch.unique(labels).tolist() if not there[label]]
    return CausalCosine(
        centred=float(proxy_cosine(sent, proxies, own, clean.flatten(1).mean(0)).mean()),
        uncentred=float(proxy_cosine(sent, proxies, own).mean()),
        to_clean=float(F.cosine_similarity(transmitted[chosen].flatten(1), clean[chosen].flatten(1), dim=1).mean()),
        proxies=int(chosen.sum()),
        relaxed=tuple(label for label in relaxed if label not in missing),
        missing=tuple(missing),
    )


def distance_correlation(first: Tensor, second: Tensor) -> Tensor:
    """dCor of n paired rows of any shapes, a number in [0, 1]: 1 for a similarity map, near 0 for independent rows.

    dCor = dCov / √(dVar·dVar) of the doubly centred Euclidean distance matrices. It is the plain estimate, which is
    biased upwards: independent rows of few numbers score about 1/√n, and rows of many more numbers than there are rows
    come near 1 whatever they hold. Compare values of one batch size only. Computed in float32 at least; the scale of
    either side does not matter, and a constant side gives nearly 0 (Székely, Rizzo and Bakirov, 2007). Differentiable.

    Args:
        first: n rows of any shape, such as inputs.
        second: The n rows they are paired with, such as payloads.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} rows cannot be paired with {len(second)}")
    with torch.autocast(first.device.type, enabled=False):
        a, b = (_centred(_distances(side)) for side in (first, second))
        covariance = (a * b).mean()
        variances = a.square().mean() * b.square().mean()
        return (covariance / variances.clamp_min(_FLOOR**2).sqrt()).clamp_min(_FLOOR).sqrt()


def _distances(rows: Tensor) -> Tensor:
    """(n, n) Euclidean distances of the rows at unit scale, by one matrix product."""
    rows = rows.flatten(1)
    rows = rows if rows.dtype == torch.float64 else rows.float()
    size = rows.detach().square().sum(1).mean().sqrt()
    rows = rows - rows.mean(0)
    # dCor does not depend on the scale, so neither does its slope: the scale can be held. What rounding leaves of
    # constant rows must not be blown up to it.
    spread = rows.detach().square().sum(1).mean().sqrt()
    least = (_ROUNDING * size).clamp_min(torch.finfo(rows.dtype).tiny ** 0.5)
    rows = rows / torch.maximum(spread, least)
    squares = rows.square().sum(1)
    squared = squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * rows @ rows.T
    together = (squared <= _FLOOR) | torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    return torch.where(together, 0, squared.clamp_min(_FLOOR).sqrt())


def _centred(distances: Tensor) -> Tensor:
    """Row means and column means taken out, the grand mean put back."""
    means = distances.mean(0)
    return distances - means.unsqueeze(0) - means.unsqueeze(1) + means.mean()
