"""The multilayer perceptron, for tables."""

from __future__ import annotations

from pydantic import Field, PositiveInt
from torch import nn

from veracausa.models import ModelOptions, models

HIDDEN = (64, 32)


class MLPOptions(ModelOptions):
    """Dense layers with a ReLU after each but the last."""

    cut: int = Field(2, ge=1)
    hidden: tuple[PositiveInt, ...] | None = Field(None, min_length=1)
    """Widths of the hidden layers, in the bottom and in the top together; not set: 64 and 32."""
    payload: PositiveInt | None = None
    """The most numbers a row that a party sends. Not set: as many as its table has columns, or, where `hidden` is
    set, as many as the layer at the cut has."""

    def payload_limit(self, columns: int | None) -> int | None:
        # A job that names its widths gets them: so a run from before there was a limit is still read as it was trained.
        return self.payload or (columns if self.hidden is None else None)


@models.register("mlp", MLPOptions)
def mlp(options: MLPOptions, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Dense and ReLU in turn, each a unit, PyTorch's default weights; every dense unit fits what arrives."""
    units: list[nn.Module] = []
    for width in options.hidden or HIDDEN:
        units += [_dense(width), nn.ReLU()]
    return nn.Sequential(*units, _dense(outputs))


def _dense(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width))
