"""How fast a computation could be at best: its arithmetic and its bytes at the rates that this machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from veracausa.experiments.defense_times import settle

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)
WEIGHTED = (nn.modules.conv._ConvNd, nn.Linear)


@dataclass(frozen=True)
class Floor:
    """The least time for some operations and some bytes; whichever takes longer."""

    flops: float
    bytes: float
    rate: float
    """Operations a second, of a large matrix product in the precision used."""
    bandwidth: float
    """Bytes a second, read and written, of a large copy."""

    @property
    def seconds(self) -> float:
        return max(self.flops / self.rate, self.bytes / self.bandwidth)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / timed(lambda: a @ b, device, 10)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    count = 1 << (30 if device.type == "cuda" else 26)
    source = torch.randn(count // 4, device=device)
    target = torch.empty_like(source)
    return 2 * count / timed(lambda: target.copy_(source), device, 10)


def flops_of(work: Callable[[], object]) -> float:
    """Operations of the convolutions and matrix products in `work`, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


class LayerBytes:
    """Counts the fewest bytes that a layer-by-layer pass and its gradient move, while `work` runs the layers.

    A convolution or linear layer reads its input and writes its output; backward it reads the output's gradient and its
    input and writes the input's gradient. A normalisation must see its whole input before it can write: it reads it
    twice, and backward its gradient and input twice. Activations, additions and weights are counted as free.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self.total = 0
        self._hooks = [
            leaf.register_forward_hook(self._count)
            for module in modules
            for leaf in module.modules()
            if isinstance(leaf, NORMS + WEIGHTED)
        ]

    def _count(self, leaf: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        size = output.element_size()
        read, written = inputs[0].numel() * size, output.numel() * size
        if isinstance(leaf, NORMS):
            self.total += (2 * read + written) + (2 * (written + read) + read)
        else:
            self.total += (read + written) + (written + 2 * read)

    def done(self) -> int:
        for hook in self._hooks:
            hook.remove()
        return self.total


def timed(work: Callable[[], object], device: torch.device, repeats: int, warm_up: int = 3) -> float:
    """Seconds of one call, over `repeats` calls between two waits for the device."""
    for _ in range(warm_up):
        work()
    settle(device)
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    settle(device)
    return (time.perf_counter() - started) / repeats
