"""Laplace noise on the representation, known as DP-L; as it is used on activations it gives no privacy guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from veracausa.defenses import defenses
from veracausa.defenses.noise import NoiseDefense, NoiseOptions, NoiseSource


class LaplaceOptions(NoiseOptions):
    swept: ClassVar[tuple[str, ...]] = ("epsilon",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"epsilon": (3.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25)}

    epsilon: float = Field(1.0, gt=0)
    """Smaller is more noise. The literature's name; no guarantee of differential privacy comes with it here."""
    reading: Literal["raw", "clip", "norm"] = "raw"
    """The noise's scale b. raw: 1/epsilon, whatever the activations are; clip: every value is first clipped to
    [-clip, clip], b = 2 clip/epsilon; norm: the largest norm of a payload in the batch, over epsilon."""
    clip: float = Field(1.0, gt=0)
    """For the reading `clip`."""


@defenses.register("laplace", LaplaceOptions)
class Laplace(NoiseDefense):
    """Adds Laplace noise to every value that is sent. It has no privacy guarantee, and fresh noise averages out.

    A guarantee would need a bound on what one row can change and an account of all exchanges; activations have no such
    bound, and every epoch sends each row again.
    """

    options: LaplaceOptions

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return r.clamp(-self.options.clip, self.options.clip) if self.options.reading == "clip" else r

    def scale(self, r: Tensor) -> Tensor | float:
        """b, for payloads `r`."""
        match self.options.reading:
            case "raw":
                return 1 / self.options.epsilon
            case "clip":
                return 2 * self.options.clip / self.options.epsilon
            case _:
                largest: Tensor = r.detach().flatten(1).float().norm(dim=1).max()
                return largest / self.options.epsilon

    def noise(self, r: Tensor, x: Tensor, draws: NoiseSource) -> Tensor:
        return self.scale(r) * draws.laplace(*r.shape)

    def noise_std(self, r: Tensor, x: Tensor) -> Tensor:
        return r.new_ones(()) * (math.sqrt(2) * self.scale(r))
