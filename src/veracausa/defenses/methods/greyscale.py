"""The greyscale control: rows lose their colour before the bottom model sees them; nothing else happens."""

from __future__ import annotations

from torch import Tensor

from veracausa.data.colour import without_chroma
from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Prepares, no_progress
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.models.units import shape_text


@defenses.register("greyscale")
class Greyscale(Defense, Prepares):
    """Takes the colour out of pictures. A control to compare with, not a defense to rely on: all structure stays.

    A defense that claims to hide more than colour has to do better than this.
    """

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse rows that have no colour to lose."""
        if len(shape) != 3 or shape[0] != 3:
            raise InputError(
                f"greyscale removes colour, and rows of shape {shape_text(shape) or 'none'} have none; "
                "it needs pictures of 3 channels, so choose another defense here"
            )

    def prepare(self, data: Part, progress: ProgressCallback = no_progress) -> None:
        self.check(tuple(data.features.shape[1:]) if data.features is not None else ())

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        return super().forward(without_chroma(x), ids, step)

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        return super().infer(without_chroma(x), ids)

    def deterministic_payload(self, x: Tensor, ids: Tensor) -> Tensor:
        return super().deterministic_payload(without_chroma(x), ids)
