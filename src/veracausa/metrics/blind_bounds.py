"""Bounds for blind training: bits that opened scores carry, and what differential privacy leaves to guess."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veracausa.arrays import Array

_FALSE_ALARMS = (0.01, 0.001)


def bits_by_range(spans: Array, step: float) -> float:
    """Bits that one answer of several numbers can carry at most: Σ log2(1 + span / step).

    A number in a span that is rounded to a step, or to which uniform noise as wide as the step is added once and for
    all, carries no more: I(s; s + u) = h(s + u) − h(u) ≤ log2(span + step) − log2(step).
    """
    if step <= 0:
        return math.inf
    return float(np.log2(1 + np.maximum(0.0, spans) / step).sum())


def bits_by_spread(scores: Array, step: float) -> float:
    """The same bound for scores whose covariance is that of these (n, numbers) ones: of all such the Gaussian has most.

    ½ log2 det(2πe (Σ + step²/12)) − numbers · log2(step). It counts numbers that tell the same only once.
    """
    if step <= 0:
        return math.inf
    covariance = np.atleast_2d(np.cov(scores, rowvar=False)) if len(scores) > 1 else np.zeros((scores.shape[1],) * 2)
    numbers = len(covariance)
    level = np.maximum(np.linalg.eigvalsh(covariance), 0.0) + step**2 / 12
    bits = 0.5 * np.log2(2 * math.pi * math.e * level).sum() - numbers * math.log2(step)
    return max(0.0, float(bits))


def posterior_bound(prior: float, epsilon: float) -> float:
    """The most that somebody can be sure of a label told with label-ε, who was sure by `prior` before.

    e^ε·π / (e^ε·π + 1 − π). It is concave in the prior, so with the share that one's own columns tell in place of the
    prior it bounds the share that own columns and told labels tell together.
    """
    if not 0 <= prior <= 1:
        raise ValueError(f"a prior lies between 0 and 1, not at {prior}")
    if prior in (0.0, 1.0):
        return prior
    return 1 / (1 + (1 - prior) / prior * math.exp(-epsilon))


def membership_bound(epsilon: float, delta: float = 0.0) -> float:
    """The most that (ε, δ) lets somebody gain: true positives less false positives, (e^ε − 1 + 2δ) / (e^ε + 1)."""
    return min(1.0, (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1))


@dataclass(frozen=True)
class MembershipScore:
    """How well a statistic tells training rows from others, beside chance."""

    advantage: float
    """True positives less false positives at the threshold that the other half of the rows chose; chance is 0."""
    auc: float
    """Chance is 0.5."""
    true_positives: dict[str, float]
    """By the share of false alarms; chance is that share."""
    rows: int


def score_membership(statistic: Tensor, member: Tensor) -> MembershipScore:
    """Score (n,) a statistic by (n,) whether each row was trained on; rows are taken in an order that says nothing."""
    values, inside = statistic.double().flatten(), member.bool().flatten()
    if not inside.any() or inside.all():
        raise ValueError("membership needs rows of both kinds")
    even = torch.arange(len(values)) % 2 == 0
    threshold = _best_threshold(values[even], inside[even])
    rest, truth = values[~even], inside[~even]
    found = float((rest[truth] >= threshold).double().mean() - (rest[~truth] >= threshold).double().mean())
    others = values[~inside].sort(descending=True).values
    rates = {}
    for share in _FALSE_ALARMS:
        allowed = int(share * len(others))
        if allowed:
            rates[f"{share:g}"] = float((values[inside] > others[allowed]).double().mean())
    return MembershipScore(found, _auc(values, inside), rates, len(values))


def _best_threshold(values: Tensor, inside: Tensor) -> float:
    order = values.argsort(descending=True)
    hits = inside[order].double().cumsum(0) / inside.sum().clamp_min(1)
    alarms = (~inside[order]).double().cumsum(0) / (~inside).sum().clamp_min(1)
    return float(values[order][int((hits - alarms).argmax())])


def _auc(values: Tensor, inside: Tensor) -> float:
    from scipy.stats import rankdata

    ranks = torch.from_numpy(rankdata(values.numpy()))
    count = int(inside.sum())
    others = len(values) - count
    return float((ranks[inside].sum() - count * (count + 1) / 2) / (count * others))
