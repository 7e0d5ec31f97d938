"""Probes of single attributes: brightness, contrast and hue of a picture, read from the payload and nothing else.

A decoder of whole pictures spends itself on pixels, and a defense that spoils every pixel may leave the mean of all of
them. This attack learns the attributes alone and paints them on the mean picture of the victim's class. Of a table
every column is an attribute, and the decoder of `inverse` learns these already. Granted what `inverse` is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions
from veracausa.attacks.methods.features.colour_prior import class_colours
from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.errors import InputError
from veracausa.metrics.attributes import picture_attributes

_ROWS_AT_ONCE = 512
_UNITS = 100.0
_FLAT = 1e-6


class AttributesOptions(DecoderOptions):
    channels: int = Field(32, ge=1)
    """A quarter of the width of the network, as for a table."""
    blocks: int = Field(2, ge=0)


@attacks.register("attributes", AttributesOptions)
class AttributeProbes(DecoderAttack):
    """Reads brightness, contrast and hue alone, and paints them on the mean picture of the class."""

    title = "attribute probes"
    quick: ClassVar = {"epochs": 12, "channels": 16, "blocks": 1}
    options: AttributesOptions

    def begin(self, view: AdversaryView) -> None:
        if not view.pixels or len(view.row_shape) != 3:
            raise InputError("attack 'attributes' probes pictures: of a table 'inverse' reports every column")
        super().begin(view)

    def learn(self, payloads: Tensor | Callable[[], Tensor], view: AdversaryView) -> None:
        rows = view.auxiliary.to(view.device, torch.float32)
        wanted = _numbers(rows)
        self.mean, self.scale = wanted.mean(0), wanted.std(0, correction=0).clamp(min=_FLAT)
        told = self.options.labels and self.uses in view.grants
        classes = view.classes if told else 0
        labels = getattr(view, "auxiliary_labels", None) if told else None
        self.labels = getattr(view, "labels", None) if told else None
        whole = labels if labels is not None and classes else torch.zeros(len(rows), dtype=torch.int64)
        self.pictures = class_colours(_light_first(rows), whole.to(view.device), classes)
        self.colour = rows.shape[1] == 3
        standard = (wanted - self.mean) / self.scale
        self.fit(payloads, standard, view.rng, view.progress, False, labels, view.classes)

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The mean picture of each victim's class, with the brightness, contrast and hue that were read."""
        read = super().reconstruct(payload, ids) * self.scale + self.mean
        known = self._known(len(payload), ids)
        classes = len(self.pictures) - 1
        if known is None or not classes:
            at = torch.full((len(read),), classes, device=self.device)
        else:  # a code that is no single class is of somebody whose label nobody knows
            sure, of = known.max(1)
            at = torch.where(sure > 1 - _FLAT, of, classes)
        parts = [
            self._painted(self.pictures[some], numbers)
            for some, numbers in zip(torch.split(at, _ROWS_AT_ONCE), torch.split(read, _ROWS_AT_ONCE), strict=True)
        ]
        return torch.cat(parts)

    def _painted(self, pictures: Tensor, numbers: Tensor) -> Tensor:
        light = pictures[:, :1]
        mean, spread = light.mean((2, 3), keepdim=True), light.std((2, 3), correction=0, keepdim=True)
        wanted, contrast = (numbers[:, column, None, None, None] for column in (0, 1))
        light = wanted + (light - mean) * contrast.clamp(min=0) / spread.clamp(min=_FLAT)
        if not self.colour:
            return light.expand(-1, pictures.shape[1], -1, -1).clamp(0, 1)
        ab = pictures[:, 1:]
        ab = ab - ab.mean((2, 3), keepdim=True) + numbers[:, 2:, None, None]
        return lab_to_rgb(_UNITS * torch.cat([light, ab], 1)).clamp(0, 1)


def _numbers(rows: Tensor) -> Tensor:
    return torch.cat([*picture_attributes(rows).values()], 1)


def _light_first(rows: Tensor) -> Tensor:
    """Pictures with their lightness as the first plane, in the units of attributes."""
    return rgb_to_lab(rows) / _UNITS if rows.shape[1] == 3 else rows
