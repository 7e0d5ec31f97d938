"""The layers that the active party puts in front of its top for peers whose payload has another shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from veracausa.config import Job
from veracausa.errors import WireError
from veracausa.models.widen import build_adapter
from veracausa.split.placement import placed
from veracausa.split.runner import Runner
from veracausa.split.watcher import untouched
from veracausa.wire.message import Message

Shape = tuple[int, ...]


class Adapters:
    """One adapter for each peer that sends another shape than the top expects of it; none for the others."""

    def __init__(
        self,
        job: Job,
        shapes: Mapping[str, Shape],
        expected: Mapping[str, Shape],
        device: torch.device,
        rng: torch.Generator,
    ) -> None:
        self.modules: dict[str, nn.Module] = {
            peer: placed(build_adapter(shape, expected[peer], rng), job.runtime, device)
            for peer, shape in shapes.items()
            if shape != expected[peer]
        }
        self._runners = {
            peer: Runner(module, job.runtime, device, job.training.batch_size) for peer, module in self.modules.items()
        }

    def adapted(self, payloads: Mapping[str, Tensor]) -> list[Tensor]:
        """Every payload in the shape that the top expects, run as the job wants it."""
        return [self._runners[peer](r) if peer in self._runners else r for peer, r in payloads.items()]

    def predicted(self, payloads: Mapping[str, Tensor]) -> list[Tensor]:
        """The same for somebody who only looks: differentiable in the payloads, the adapters' weights are constants."""
        return [untouched(self.modules[peer], r) if peer in self.modules else r for peer, r in payloads.items()]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; empty where there is none."""
        kept = {peer: module.state_dict() for peer, module in self.modules.items()}
        return {"adapters": kept} if kept else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for peer, module in self.modules.items():
            module.load_state_dict(state["adapters"][peer])


def announced(peer: str, hello: Message, name: str) -> Shape:
    """A shape that a peer says in its hello, of sizes that can be."""
    shape = tuple(int(size) for size in hello.tensors[name])
    if not shape or not all(0 < size < 1 << 20 for size in shape):
        raise WireError(f"hello.{name}", f"{peer!r} announces a payload of shape {shape}")
    return shape
