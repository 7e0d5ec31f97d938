"""The 11-module CNN of UnSplit, padded so that strips of an image pass through it too."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from veracausa.models import ModelOptions, models
from veracausa.models.layers import centred


class ConvNetOptions(ModelOptions):
    """The small CNN for grey digits and letters; takes colour as well."""

    cut: int = Field(6, ge=1)
    centre: bool = False
    """Bring inputs from [0, 1] to [−1, 1] inside unit 1."""


@models.register("convnet", ConvNetOptions)
def convnet(options: ConvNetOptions, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """The small CNN for grey or colour pictures: eleven units, two convolutions and three dense layers.

    Padded, because valid convolutions, as in the original, leave a 28×14 strip no width. PyTorch's default weights.
    """
    return nn.Sequential(
        centred(nn.Conv2d(shape[0], 8, 5, padding=2), options.centre),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _dense(120),
        nn.ReLU(),
        _dense(84),
        nn.ReLU(),
        _dense(outputs),
    )


def _dense(width: int) -> nn.Sequential:
    # Lazy, because how many payloads are joined in front of it is the job's choice.
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width))
