"""A step over static buffers as a CUDA graph: its launches are recorded once and replayed.

An optimisation-based attack repeats a step of a few dozen small kernels some thousand times; launched one by one, a GPU
mostly waits for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

Step = Callable[[], None]


def capture(step: Step, device: torch.device, keep: Sequence[Tensor] = (), warm_up: int = 3) -> Step:
    """The step to call in place of `step`: the replay of its capture on a GPU, the step itself on a CPU.

    A capture needs warm-up steps, which are real steps. `keep` gets its values back afterwards. An optimiser makes its
    state only in the first warm-up, so that state cannot be in `keep`: see `reset_optimizer_state`. A step that no
    graph can hold, say because it looks at its own values, runs as it is.
    """
    if device.type != "cuda":
        return step
    # Detached: a clone that hangs in the autograd graph of a parameter breaks the capture.
    before = [tensor.detach().clone() for tensor in keep]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), cudnn_benchmark():
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(warm_up):
                step()
        torch.cuda.current_stream(device).wait_stream(side)
        replay: Step
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                step()
            replay = _Replay(graph, step)
        except RuntimeError:  # the warm_up went well, so it is the capture that failed
            replay = step
    with torch.no_grad():
        for tensor, value in zip(keep, before, strict=True):
            tensor.copy_(value)
    return replay


def reset_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """The optimiser as if it had never stepped; in place, because a captured step reads from this memory."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


class _Replay:
    """A graph together with the step it was made of, whose buffers it reads and writes."""

    def __init__(self, graph: torch.cuda.CUDAGraph, step: Step) -> None:
        self.graph, self.step = graph, step

    def __call__(self) -> None:
        self.graph.replay()


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN try its algorithms inside the block; what is captured there will be replayed some thousand times."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
