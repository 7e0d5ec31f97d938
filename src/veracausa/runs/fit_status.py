"""How far a fit is, in its `status.json`: its part, the share that is done, epochs, and how long the rest takes."""

from __future__ import annotations

import time
from pathlib import Path

from veracausa.runs.folder import set_status

STATUS_EVERY = 1.0
"""Seconds between two notes."""


class FitStatus:
    """Writes at most one note a second; each new part gets one at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written, self._part = 0.0, ""
        self._began, self._first = 0.0, 0.0
        """When this part was heard of first, and the share that was done then: a resumed fit begins in the middle."""

    def tell(self, what: str, share: float, epochs: int = 0) -> None:
        """Of `epochs` in all, this share is done; 0: the part has none."""
        now = time.monotonic()
        if what != self._part:
            self._began, self._first = now, share
        elif now - self._written < STATUS_EVERY and share < 1:
            return
        self._written, self._part = now, what
        counted = {"epoch": round(share * epochs), "epochs": epochs} if epochs else {}
        left = {"seconds_left": self._seconds_left(now, share)}
        set_status(self.path, state="running", what=what, share=round(share, 4), **counted, **left)

    def _seconds_left(self, now: float, share: float) -> float | None:
        """At the pace so far; None before there is one."""
        if share <= self._first:
            return None
        return round((now - self._began) / (share - self._first) * (1 - share), 1)
