"""CPU seconds of this process by stage and phase; inside of another, a phase takes its seconds away from it."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce, wraps
from importlib import import_module
from inspect import getattr_static
from typing import Any
from unittest.mock import patch

Place = tuple[str, str, str]
"""A module, a dotted name in it, and the phase that this function is."""


class Stopwatch:
    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._open: list[tuple[str, str]] = []
        self._since = 0.0

    def stage_seconds(self, stage: str) -> float:
        return sum(seconds for (of, _), seconds in self.seconds.items() if of == stage)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with self._running((name, "other")):
            yield

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts within a stage only."""
        if not self._open:
            yield
            return
        with self._running((self._open[0][0], name)):
            yield

    @contextmanager
    def _running(self, name: tuple[str, str]) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def watching(self, places: Sequence[Place]) -> Iterator[None]:
        """Each of these functions is a phase, as long as this lasts, under whatever name it was imported to."""
        with ExitStack() as patches:
            for module, name, phase in places:
                *owners, last = name.split(".")
                owner: Any = reduce(getattr, owners, import_module(module))
                found = getattr(owner, last)
                timed: Any = self._timed(found, phase)
                if isinstance(getattr_static(owner, last), staticmethod | classmethod):
                    timed = staticmethod(timed)
                for holder in [owner] if owners else _importing(found, last):
                    patches.enter_context(patch.object(holder, last, timed))
            yield

    def _timed(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase):
                return function(*args, **kwargs)

        return wraps(function, assigned=("__name__", "__doc__"))(timed)


def _importing(function: Callable[..., Any], name: str) -> list[Any]:
    """The package's modules that have this function under its name."""
    package = __name__.partition(".")[0] + "."
    loaded = [module for key, module in sys.modules.items() if key.startswith(package)]
    return [module for module in loaded if vars(module).get(name) is function]
