"""A turn of an inner iteration: what is lowered, for which weights, compiled where that is wanted and works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

Objective = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""Of rows, surrogates and the masks' noise: what is reported, and what is lowered."""
CAREFUL: dict[str, str | int | bool | Callable[..., Any]] = {"triton.mix_order_reduction": False}
"""Taken for wide readings, and tried where the compiler fails: fusing reductions over different axes ends it at deep
cuts (torch 2.11), and a flat reading sums over rows and over dimensions in one breath."""


class Turn:
    """One step of the optimiser: both players together, or one of them after the other."""

    def __init__(self, plain: Objective, moved: Sequence[nn.Parameter]) -> None:
        self.plain, self.moved = plain, moved
        self.objective = plain
        self._simpler: list[Objective] = []

    @property
    def compiled(self) -> bool:
        return self.objective != self.plain

    def compile(self, wide: bool = False) -> None:
        """`wide`: more dimensions than samples, for which careful compilation comes first."""
        self._simpler = [torch.compile(self.plain, dynamic=False, options=CAREFUL), self.plain]
        self.objective = self._simpler.pop(0) if wide else torch.compile(self.plain, dynamic=False)

    def ask_for_less(self, error: Exception) -> bool:
        """After an error take the next simpler objective, if the compiler was the one that failed."""
        if not self.compiled or not _of_the_compiler(error):
            return False
        self.objective = self._simpler.pop(0)
        if not self._simpler:
            log.warning("causshield: this bottom runs uncompiled, the compiler fails at it (%s)", _first_line(error))
        return True


def _of_the_compiler(error: Exception) -> bool:
    """Whether compiling failed, or a kernel that it made would not start; not what was compiled."""
    rooms = ("torch._dynamo", "torch._inductor", "triton")
    return any(kind.__module__.startswith(rooms) for kind in type(error).__mro__)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
