"""Where the work on blocks of rows is done: here, or wherever an engine takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class BlockEngine(Protocol):
    """Runs pure functions of tasks. Tasks are taken as they are needed, so that few of them are in memory."""

    def map(self, function: Callable[[Any], Result], tasks: Iterable[Any]) -> Iterator[Result]:
        """Each task's result, in the order of the tasks."""
        ...


class InPlaceEngine:
    """Does one task after the other in the party's own thread."""

    def map(self, function: Callable[[Any], Result], tasks: Iterable[Any]) -> Iterator[Result]:
        return map(function, tasks)
