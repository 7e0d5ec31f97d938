"""An inner iteration of the adaptation as CUDA graphs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from veracausa.models.runner import WARM_UP, cudnn_benchmark, record, side_stream

if TYPE_CHECKING:
    from veracausa.defenses.causshield.adaptation import Adaptation


class Captured:
    """One inner iteration and one pass of G as CUDA graphs over buffers of their own.

    Graphs of further sizes take their memory from the first one's pool: nothing of a replay is needed after it but
    what was copied out. They are replayed too rarely to pay for a trial of convolution algorithms.
    """

    def __init__(self, owner: Adaptation, x: Tensor, surrogate: Tensor, first: Captured | None = None) -> None:
        self.x, self.surrogate, self.owner = x.clone(), surrogate.clone(), owner
        self.side: torch.cuda.Stream = first.side if first else torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.iteration, self.passing = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with owner.preserving_state(), nullcontext() if first else cudnn_benchmark():
            with side_stream(self.side):
                for _ in range(WARM_UP):
                    owner.iteration(self.x, self.surrogate)
                    self._pass()
            self.iteration.register_generator_state(owner.draws)
            self.passing.register_generator_state(owner.draws)
            pool = first.iteration.pool() if first else None
            record(self.iteration, lambda: owner.loss.copy_(owner.iteration(self.x, self.surrogate)), pool)
            self.output = record(self.passing, self._pass, self.iteration.pool())

    def iterate(self, x: Tensor, surrogate: Tensor) -> None:
        if x.data_ptr() != self.x.data_ptr():
            self.x.copy_(x)
            self.surrogate.copy_(surrogate)
        self.iteration.replay()

    def payload(self, x: Tensor) -> Tensor:
        if x.data_ptr() != self.x.data_ptr():
            self.x.copy_(x)
        self.passing.replay()
        return self.output.clone()

    def _pass(self) -> Tensor:
        with torch.no_grad(), self.owner.precision():
            return self.owner.generator(self.x)  # type: ignore[no-any-return]
