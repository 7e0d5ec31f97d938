"""The active party's adapter: from a payload of another shape back to the one that its top model was made for."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veracausa.errors import InputError
from veracausa.models.dry_pass import shape_text
from veracausa.seeding import drawing_from

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
