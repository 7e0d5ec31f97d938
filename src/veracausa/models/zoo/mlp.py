"""The multilayer perceptron, for tables."""

from __future__ import annotations

from pydantic import Field, PositiveInt
from torch import nn

from veracausa.models import ModelOptions, models


class MLPOptions(ModelOptions):
    """Dense layers with a ReLU after each but the last."""

    cut: int = Field(2, ge=1)
    hidden: tuple[PositiveInt, ...] = Field((64, 32), min_length=1)
    """Widths of the hidden layers, in the bottom and in the top together."""


@models.register("mlp", MLPOptions)
def mlp(options: MLPOptions, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Dense and ReLU in turn, each a unit, PyTorch's default weights; every dense unit fits what arrives."""
    units: list[nn.Module] = []
    for width in options.hidden:
        units += [_dense(width), nn.ReLU()]
    return nn.Sequential(*units, _dense(outputs))


def _dense(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width))
