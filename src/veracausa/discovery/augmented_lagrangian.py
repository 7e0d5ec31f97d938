"""The augmented Lagrangian: minimise a loss under h = 0 by a series of minimisations without a constraint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

State = TypeVar("State")


class TimeLimitReached(Exception):
    """Leaves a minimiser, which knows no clock."""


def augmented_lagrangian(
    solve: Callable[[State, float, float], tuple[State, float]],
    start: State,
    *,
    time_is_up: Callable[[], bool],
    log: Callable[..., None],
    rounds: int = 100,
    tolerance: float = 1e-8,
    penalty_limit: float = 1e16,
) -> State:
    """The state after h has come below the tolerance.

    `solve(state, multiplier, penalty)` minimises loss + multiplier · h + penalty / 2 · h², starting from the state, and
    returns the new one with its h. The penalty grows tenfold until a round has cut h to a quarter.
    """
    state, multiplier, penalty, h = start, 0.0, 1.0, math.inf
    for round_ in range(rounds):
        while True:
            found, new_h = solve(state, multiplier, penalty)
            log(round=round_, h=new_h, penalty=penalty)
            if new_h <= 0.25 * h or penalty >= penalty_limit or time_is_up():
                break
            penalty *= 10
        state, h = found, new_h
        multiplier += penalty * h
        if h <= tolerance or penalty >= penalty_limit or time_is_up():
            break
    return state
