"""Magnitude pruning of the representation: only the largest values of a row are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from veracausa.defenses import defenses
from veracausa.defenses.mask import MaskDefense, largest
from veracausa.registry import Options


class PruneOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("fraction",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"fraction": (0.5, 0.8, 0.9, 0.95, 0.99)}

    fraction: float = Field(0.99, ge=0, lt=1)
    """The share of a row's values that are zeroed, those of smallest magnitude; one value at least is sent."""


@defenses.register("prune", PruneOptions)
class Prune(MaskDefense):
    """Zeroes the smallest values of every row's representation, 99 % of them by default."""

    options: PruneOptions

    def mask(self, r: Tensor, x: Tensor) -> Tensor:
        return largest(r.abs(), self.options.fraction)
