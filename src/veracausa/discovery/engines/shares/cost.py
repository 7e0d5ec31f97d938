"""What a discovery on shares will take, said before anything is spent: seconds, messages and bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from veracausa.discovery.engines.shares.plan import Plan
from veracausa.wire.message import MESSAGE

WORD = 8
_STEP = 5.0e-4
"""Seconds of a core for one step of one party and each of its peers: measured, and within a factor of three."""
_NUMBER = 4.0e-8
"""More for each number that a step sends."""


@dataclass(frozen=True)
class SharesCost:
    """Of one fit, all parties and the validator together."""

    seconds: float | None
    """Without the lines between parties. None: what encryption takes ahead of the steps is not known beforehand."""
    messages: int
    bytes: int
    """Of the steps; what is encrypted ahead of them comes on top."""

    def state(self) -> dict[str, Any]:
        return asdict(self)


def expected_cost(plan: Plan) -> SharesCost:
    """From the plan alone."""
    d, parties, numbers = plan.d, len(plan.parties), plan.numbers
    steps, n = len(plan.batches), min(plan.settings.batch, plan.train_rows)
    looks = steps // plan.every
    between = d * d - sum(size * size for size in plan.sizes)
    pairs = parties * (parties - 1)
    a_step = numbers * between + 2 * n * numbers * d * (parties - 1)
    a_look = 2 * numbers * between + 2 * between + sum(size * size for size in plan.sizes) + 2 * d * d
    masks = looks * numbers * between  # of norms, ahead
    rounds = sum(group.last - group.first for group in plan.groups)
    # Searches side by side share the messages of the steps, and have those ahead of an epoch on their own.
    messages = rounds * (pairs * 2 * (steps + looks) + 2 * parties * looks) + plan.epochs * pairs
    words = plan.epochs * (steps * a_step + looks * a_look + masks)
    seconds = rounds * steps * pairs * _STEP / 2 + words * _NUMBER
    known = plan.encryption == "none"
    return SharesCost(seconds if known else None, messages, words * WORD + messages * MESSAGE)
