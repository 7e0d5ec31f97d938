"""A passive party's half of the model and what its defense puts behind it, built from the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from veracausa.config import Job
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.protocols import HasLayers, Scheduled, contract_fault
from veracausa.errors import InputError, WireError
from veracausa.models.cut import build_adapter, build_bottom, payload_shape
from veracausa.models.layers import bind_dropout
from veracausa.models.runner import Runner, eval_output, to_device
from veracausa.seeding import drawing_from
from veracausa.wire.message import Message


@dataclass(frozen=True)
class DefendedBottom:
    """The bottom model with the layers of its defense, not yet on a device."""

    module: nn.Sequential
    payload: tuple[int, ...]
    """The shape of what is sent for one row."""
    expected: tuple[int, ...]
    """The shape that the model's own bottom gives, and its own top takes; another one where the defense has layers."""


def make_defense(job: Job, party: str) -> Defense:
    """The party's defense as the job sets it, told how often a row will be sent; not yet bound."""
    options = job.defense_of(party)
    defense: Defense = defenses.get(options.name)(options)
    if fault := contract_fault(type(defense)):
        raise InputError(f"defense {options.name!r}: {fault}")
    if isinstance(defense, Scheduled):
        defense.on_schedule(job.training.epochs)
    return defense


def build_defended(
    job: Job,
    party: str,
    shape: tuple[int, ...],
    outputs: int,
    rng: torch.Generator,
    defense: Defense | None = None,
    *,
    columns: int | None = None,
) -> DefendedBottom:
    """The half of `party` for rows of `shape`; all weights are drawn from `rng`, those of the defense last.

    `columns` is how many the party's table has, where it is one.
    """
    bottom = build_bottom(job.model, shape, outputs, rng, columns)
    expected = payload_shape(bottom, shape)
    defense = defense or make_defense(job, party)
    with drawing_from(rng):
        layers = defense.layers(expected) if isinstance(defense, HasLayers) else None
    if layers is None:
        return DefendedBottom(bottom, expected, expected)
    bottom.append(bind_dropout(layers, rng))
    return DefendedBottom(bottom, payload_shape(bottom, shape), expected)


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
            peer: to_device(build_adapter(shape, expected[peer], rng), job.runtime, device)
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
        return [eval_output(self.modules[peer], r) if peer in self.modules else r for peer, r in payloads.items()]

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
