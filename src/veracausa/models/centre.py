"""Input centring as a part of the model: data stay in [0, 1] everywhere outside it."""

from __future__ import annotations

from torch import Tensor, nn


class Centre(nn.Module):
    """(x − 0.5) / 0.5, from [0, 1] to [−1, 1].

    It sits inside unit 1 and hence inside every bottom, so that an attacker's clone of the bottom contains it too.
    """

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.5) / 0.5


def centred(unit: nn.Module, centre: bool) -> nn.Module:
    """The unit, behind a `Centre` where the options ask for one; still one unit, so cuts keep their numbers."""
    return nn.Sequential(Centre(), unit) if centre else unit
