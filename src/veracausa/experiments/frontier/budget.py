"""How much time a sweep may take, and whether the next trial still fits."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable

from veracausa.errors import InputError, RunError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"(?:\d+(?:\.\d+)?[smh])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smh])")


class OutOfTime(RunError):
    """The budget is spent in the middle of a trial; what was checkpointed can go on with --resume."""

    def __init__(self) -> None:
        super().__init__("the time is up; go on with --resume")


def seconds_of(text: str) -> float:
    """Seconds of a time as `20m`, `90s` or `1h30m`."""
    word = text.strip().lower()
    if not _WRITTEN.fullmatch(word):
        raise InputError(f"--budget {text}: write it as 20m, 90s or 1h30m")
    found = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(word))
    if found <= 0:
        raise InputError(f"--budget {text}: must be more than nothing")
    return found


def written_budget(seconds: float) -> str:
    """As `--budget` takes it, rounded up: `45s`, `8m`, `1h30m`."""
    if seconds <= 90:
        return f"{max(1, math.ceil(seconds))}s"
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")


class Budget:
    """Counts from when it is made, and remembers what trials took."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._started = clock()
        self._taken: dict[str, list[float]] = {}

    @property
    def left(self) -> float:
        return self._started + self.seconds - self._clock()

    def took(self, defense: str, seconds: float) -> None:
        """A trial of this defense took so long."""
        self._taken.setdefault(defense, []).append(seconds)

    def estimate(self, defense: str) -> float:
        """What its next trial will take: the longest of its own so far, else the median of everybody's; 0 unknown."""
        if own := self._taken.get(defense):
            return max(own)
        everybody = [seconds for taken in self._taken.values() for seconds in taken]
        return statistics.median(everybody) if everybody else 0.0

    def fits(self, defense: str) -> bool:
        """Whether a trial of this defense can be expected to end in time."""
        return self.left > self.estimate(defense)

    def check(self) -> None:
        """Raise `OutOfTime` when nothing is left."""
        if self.left <= 0:
            raise OutOfTime
