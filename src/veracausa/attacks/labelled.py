"""The label, which the active party knows of a row beside its payload, as numbers; and a decoder that is told them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from veracausa.models.decoders import strong_decoder
from veracausa.models.layers import RobustInputScaling

_MOST_PLANES = 8


@dataclass(frozen=True)
class LabelCode:
    """Labels as (n, width) numbers: one-hot classes, or the target of a regression, standardised."""

    classes: int
    """0 in a regression."""
    unknown: Tensor
    """(width,) What stands for a label that nobody knows: the mean code of the rows it was made of."""
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, labels: Tensor, classes: int) -> LabelCode:
        """The code of such labels; the scale of a target is that of these."""
        if classes and not labels.is_floating_point():
            code = cls(classes, labels.new_zeros(classes, dtype=torch.float32))
            return cls(classes, code(labels).mean(0))
        target = labels.float()
        scale = float(target.std(correction=0))
        return cls(0, target.new_zeros(1), float(target.mean()), scale if scale > 0 else 1.0)

    @property
    def width(self) -> int:
        return len(self.unknown)

    def __call__(self, labels: Tensor) -> Tensor:
        """(n, width); a class below 0, or a target that is not finite, is not known."""
        unknown = self.unknown.to(labels.device)
        if not self.classes:
            known = labels.float().isfinite()
            coded = ((labels.float() - self.mean) / self.scale).unsqueeze(1)
        else:
            known = labels >= 0
            coded = nn.functional.one_hot(labels.long().clamp(0, self.classes - 1), self.classes).float()
        return torch.where(known.unsqueeze(1), coded, unknown)

    def nothing(self, count: int) -> Tensor:
        """The code of rows whose labels nobody knows."""
        return self.unknown.expand(count, -1)


class LabelledDecoder(nn.Module):
    """The strong decoder, told the label's code too: as more values of a vector, or as a few more planes of a map.

    Weights come from PyTorch's default generator: build it inside `seeding.drawing_from`.
    """

    def __init__(self, payload: Sequence[int], row: Sequence[int], width: int, blocks: int, channels: int) -> None:
        super().__init__()
        maps = len(payload) == 3 and len(row) == 3
        shape = tuple(payload) if maps else (math.prod(payload),)
        # The first module of its kind: the training fits it to the payloads, without the label.
        self.level = RobustInputScaling(shape[0])
        self.planes = (min(width, _MOST_PLANES), *shape[1:]) if maps else (width,)
        self.spread = nn.Linear(width, math.prod(self.planes)) if maps else nn.Identity()
        self.body = strong_decoder((shape[0] + self.planes[0], *shape[1:]), row, blocks, channels)
        self.row = tuple(row)

    def forward(self, payload: Tensor, code: Tensor) -> Tensor:
        x = self.level(payload if len(self.planes) == 3 else payload.flatten(1))
        known = self.spread(code).view(len(x), *self.planes)
        row: Tensor = self.body(torch.cat([x, known.to(x.dtype)], 1))
        return row.view(len(x), *self.row)
