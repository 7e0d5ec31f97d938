"""An inner iteration as a CUDA graph: its launches are recorded once and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from veracausa.models.fastest_convolutions import fastest_convolutions

if TYPE_CHECKING:
    from veracausa.defenses.causshield.adaptation import Adaptation

WARM_UP = 3


class Captured:
    """One inner iteration and one pass of G as CUDA graphs over buffers of their own."""

    def __init__(self, owner: Adaptation, x: Tensor, surrogate: Tensor) -> None:
        self.x, self.surrogate, self.owner = x.clone(), surrogate.clone(), owner
        with owner.borrowed(), fastest_convolutions():
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    owner.iteration(self.x, self.surrogate)
                    self._pass()
            torch.cuda.current_stream().wait_stream(side)
            self.iteration, self.passing = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            self.iteration.register_generator_state(owner.draws)
            self.passing.register_generator_state(owner.draws)
            with torch.cuda.graph(self.iteration, capture_error_mode="thread_local"):
                owner.loss.copy_(owner.iteration(self.x, self.surrogate))
            with torch.cuda.graph(self.passing, pool=self.iteration.pool(), capture_error_mode="thread_local"):
                self.output = self._pass()

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
