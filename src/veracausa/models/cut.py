"""The two halves of a cut model, each built from a party's own generator; the join of payloads, and adapters to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veracausa.errors import InputError
from veracausa.models import models, require_allowed
from veracausa.models.layers import bind_dropout
from veracausa.models.registry import Convention, ModelOptions
from veracausa.models.units import infer_output, resolve, shape_text, units_of
from veracausa.seeding import drawing_from

__all__ = ["JoinAxis", "build", "build_bottom", "build_top", "build_whole", "cut", "join", "payload_shape", "units_of"]

GAIN = 4.0
"""Of the layer that narrows a payload: so few numbers then weigh as much as a wide layer's at the first step."""
JoinAxis = Literal["width", "height", "features"]


def cut(
    model: nn.Module, unit: int, convention: Convention = "N1", *, name: str | None = None
) -> tuple[nn.Sequential, nn.Sequential]:
    """Bottom (units 1..`unit`) and top (the rest); `name` is what an error calls the model.

    The halves hold the model's own modules. In-place activations are switched to out-of-place ones: the payload that a
    top receives is a leaf, and what a bottom sent must stay as it was sent.
    """
    name = name or type(model).__name__
    count = resolve(model, unit, convention, name)
    units = units_of(model)
    bottom, top = nn.Sequential(*units[:count]), nn.Sequential(*units[count:])
    if shared := {id(p) for p in bottom.parameters()} & {id(p) for p in top.parameters()}:
        raise InputError(
            f"model {name!r}: cut {unit} parts {len(shared)} parameters that bottom and top share; "
            "two parties cannot hold one weight, so cut elsewhere"
        )
    for module in (*bottom.modules(), *top.modules()):
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]
    return bottom, top


def join(payloads: Sequence[Tensor], axis: JoinAxis) -> Tensor:
    """The payloads side by side: maps along the axis that the images were cut along, vectors along features."""
    if not payloads:
        raise InputError("there is no payload to join")
    first = payloads[0]
    dim = _join_dim(first.ndim, axis)
    rest = [tuple(size for d, size in enumerate(payload.shape) if d != dim) for payload in payloads]
    if any(payload.ndim != first.ndim for payload in payloads) or any(sizes != rest[0] for sizes in rest):
        shapes = ", ".join(shape_text(payload.shape) for payload in payloads)
        raise InputError(f"payloads of shapes {shapes} cannot be joined along {axis}: they differ elsewhere too")
    return torch.cat(list(payloads), dim)


def _join_dim(ndim: int, axis: JoinAxis) -> int:
    if ndim == 2 or axis == "features":
        return 1
    dim = ndim - 1 if axis == "width" else ndim - 2
    if dim < 2:
        raise InputError(f"payloads of {ndim} dimensions have no {axis} to be joined along: use features")
    return dim


def build(options: ModelOptions, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The whole model as its builder makes it, lazy layers and all.

    Its weights come from PyTorch's default generator: call it inside `seeding.drawing_from`, as the others here do.
    """
    require_allowed(options)
    model = models.get(options.name, options.allowed)(options, shape, outputs)
    if not isinstance(model, nn.Module):
        raise InputError(f"model {options.name!r}: its factory gave a {type(model).__name__}, not an nn.Module")
    return model


def build_whole(options: ModelOptions, shape: tuple[int, ...], outputs: int, rng: torch.Generator) -> nn.Sequential:
    """The model uncut, every layer sized for samples of `shape`; what an unsplit baseline trains."""
    with drawing_from(rng):
        whole = nn.Sequential(*units_of(build(options, shape, outputs)))
        infer_output(whole, shape, options.name, "a sample")
    bind_dropout(whole, rng)
    return whole


def build_bottom(
    options: ModelOptions, shape: tuple[int, ...], outputs: int, rng: torch.Generator, columns: int | None = None
) -> nn.Sequential:
    """A passive party's half for samples of `shape`, weights and later dropout drawn from `rng` alone.

    `columns` is how many the party's table has, where it is one. A bottom that would send more numbers than the model
    allows for them ends in one more linear layer, which brings them down to that many.
    """
    with drawing_from(rng):
        model = build(options, shape, outputs)
        bottom, _ = cut(model, options.cut, options.cut_convention, name=options.name)
        sent = infer_output(bottom, shape, options.name, "a sample")[0].numel()
        limit = options.payload_limit(columns)
        if limit is not None and sent > limit:
            narrow = nn.Linear(sent, limit)
            # PyTorch's default would make the few numbers small beside what a wide layer gives, and slow to learn from.
            nn.init.orthogonal_(narrow.weight, gain=GAIN)
            bottom.append(nn.Sequential(nn.Flatten(), narrow))
    bind_dropout(bottom, rng)
    return bottom


def build_top(
    options: ModelOptions,
    payload_shapes: Sequence[tuple[int, ...]],
    join_axis: JoinAxis,
    outputs: int,
    rng: torch.Generator,
    *,
    shape: tuple[int, ...] | None = None,
) -> nn.Sequential:
    """The active party's half for the joined payloads, weights and later dropout drawn from `rng` alone.

    `shape` is the whole sample's, for a factory of the user's own that reckons with it; the zoo does not need it, and
    without it the builder is given the joined payload's.
    """
    joined = tuple(join([torch.zeros(1, *payload) for payload in payload_shapes], join_axis).shape[1:])
    with drawing_from(rng):
        model = build(options, shape or joined, outputs)
        bottom, top = cut(model, options.cut, options.cut_convention, name=options.name)
        infer_output(top, joined, options.name, "the joined payload", first=len(bottom) + 1)
    bind_dropout(top, rng)
    return top


def payload_shape(bottom: nn.Sequential, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what `bottom` gives for one sample of `shape`; the bottom is left as it was."""
    return tuple(infer_output(bottom, shape, "bottom", "a sample").shape[1:])


_MOST_WEIGHTS = 1 << 27


class Resize(nn.Module):
    """Maps of another height and width, each value that of the nearest place."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.size = (height, width)

    def forward(self, x: Tensor) -> Tensor:
        # Nearest, not bilinear: on a GPU its gradient is the same at every run.
        return x if x.shape[2:] == self.size else F.interpolate(x, self.size, mode="nearest")

    def extra_repr(self) -> str:
        return shape_text(self.size)


def build_adapter(payload: tuple[int, ...], expected: tuple[int, ...], rng: torch.Generator) -> nn.Module:
    """Layers from one peer's payload to what the top expects in its place; their weights are drawn from `rng`.

    Maps are resized and given the expected channels by a 3×3 convolution; anything else goes through a linear layer.
    """
    maps = len(payload) == len(expected) == 3
    weights = 9 * payload[0] * expected[0] if maps else math.prod(payload) * math.prod(expected)
    if weights > _MOST_WEIGHTS or math.prod(expected) > _MOST_WEIGHTS:
        raise InputError(
            f"a payload of shape {shape_text(payload)} where {shape_text(expected)} is expected needs an adapter of "
            f"{weights} weights, more than {_MOST_WEIGHTS}; send maps, or fewer values"
        )
    with drawing_from(rng):
        if maps:
            channels, height, width = expected
            return nn.Sequential(Resize(height, width), nn.Conv2d(payload[0], channels, 3, padding=1))
        linear = nn.Linear(math.prod(payload), math.prod(expected))
        return nn.Sequential(nn.Flatten(), linear, nn.Unflatten(1, expected))
