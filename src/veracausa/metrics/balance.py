"""Whether the classes of a task are so uneven that accuracy misleads."""

from __future__ import annotations

UNBALANCED = 1.2
"""The commonest class has so many times its fair share, and accuracy alone no longer says what was learnt."""


def is_unbalanced(commonest: float, classes: int) -> bool:
    """Whether the commonest class is so common that guessing it looks like learning: 60 % of two classes."""
    return commonest * classes >= UNBALANCED
