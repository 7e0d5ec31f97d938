"""Whether an attack does better than a blind guess by more than chance, compared row by row on the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reports ask for `is_unbalanced`, and need no torch
    from torch import Tensor

CONFIDENCE = 0.99
_NO_ERROR = 1e-12


@dataclass(frozen=True)
class Advantage:
    """Which share of the blind guess's error an attack avoids: leakage that is not clipped at 0, and how sure it is."""

    share: float
    """1 − Σ errors of the attack / Σ errors of the blind guess; below 0 the attack is the worse of the two."""
    error: float | None
    """Its standard error over rows; None of a single row."""
    rows: int

    @classmethod
    def of(cls, attack: Tensor, blind: Tensor) -> Advantage:
        """From (n,) errors of the same rows."""
        attack, blind = attack.double(), blind.double()
        base = float(blind.mean())
        if base <= _NO_ERROR:
            return cls(0.0, None, len(blind))
        ratio = float(attack.mean()) / base
        # A ratio of two means of the same rows: what is left of each row once the ratio explains it.
        left = attack - ratio * blind
        error = float(left.std()) / (base * math.sqrt(len(left))) if len(left) > 1 else None
        return cls(1 - ratio, error, len(left))


def lower_bound(
    share: float, error: float | None, rows: int, chances: int = 1, confidence: float = CONFIDENCE
) -> float:
    """What the share is at least, one-sided; with several `chances` to look good, each is held to more."""
    if error is None or rows < 2:
        return -math.inf
    from scipy.special import stdtrit

    return share - float(stdtrit(rows - 1, 1 - (1 - confidence) / max(1, chances))) * error


UNBALANCED = 1.2
"""The commonest class has so many times its fair share, and accuracy alone no longer says what was learnt."""


def is_unbalanced(commonest: float, classes: int) -> bool:
    """Whether the commonest class is so common that guessing it looks like learning: 60 % of two classes."""
    return commonest * classes >= UNBALANCED
