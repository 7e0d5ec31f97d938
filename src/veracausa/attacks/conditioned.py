"""A decoder and a judge of rows that are told the label, as in SDAR: it enters as one more channel.

Weights come from PyTorch's default generator, and so does dropout: build them inside `seeding.drawing_from`, and hand
what has dropout to `models.dropout.bind_dropout`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from veracausa.attacks.discriminators import EmbeddingDiscriminator, LabelPlane
from veracausa.models.decoders import strong_decoder

_LEAK = 0.2
_DROPPED = 0.4
_LABEL_WIDTH = 50


class ConditionedDecoder(nn.Module):
    """From a payload and its label to the row; without `classes`, from the payload alone."""

    def __init__(
        self, payload: Sequence[int], row: Sequence[int], classes: int | None, blocks: int, channels: int
    ) -> None:
        super().__init__()
        shape = tuple(payload) if len(payload) == 3 else (math.prod(payload),)
        self.vector = len(shape) == 1
        self.label: LabelPlane | None = None
        if classes:
            plane = (_LABEL_WIDTH,) if self.vector else (1, *shape[1:])
            self.label = LabelPlane(classes, plane)
            shape = (shape[0] + plane[0], *shape[1:])
        self.row = tuple(row)
        self.body = strong_decoder(shape, row, blocks, channels, per_upsampling=1)

    def forward(self, payload: Tensor, labels: Tensor | None = None) -> Tensor:
        """Where the labels are not known, or below 0, the mean over all classes stands in for what they would add."""
        x = payload.flatten(1) if self.vector else payload
        if self.label is not None:
            x = torch.cat([x, self._planes(self.label, labels, len(x)).to(x.dtype)], 1)
        row: Tensor = self.body(x)
        return row.view(len(x), *self.row)

    def _planes(self, label: LabelPlane, labels: Tensor | None, count: int) -> Tensor:
        if labels is not None and self.training:
            return label(labels)  # type: ignore[no-any-return]
        every = label(torch.arange(label.embedding.num_embeddings, device=label.embedding.weight.device))
        planes = torch.cat([every, every.mean(0, keepdim=True)])
        unknown = len(every)
        if labels is None:
            labels = torch.full((count,), unknown, device=planes.device)
        return planes[torch.where(labels < 0, unknown, labels)]


class RowDiscriminator(EmbeddingDiscriminator):
    """One logit a row, high for a genuine one; with `classes` it is told the label too."""

    def __init__(self, row: Sequence[int], classes: int | None = None) -> None:
        super().__init__(row, classes)
        if len(row) == 3:
            self.body = _picture_body(row[0] + bool(classes), row[1], row[2])


def _picture_body(inputs: int, height: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = inputs
    for number, (after, stride) in enumerate(((64, 1), (128, 2), (128, 2), (256, 2))):
        layers += [nn.Conv2d(before, after, 3, stride, 1), *([nn.BatchNorm2d(after)] if number else [])]
        layers.append(nn.LeakyReLU(_LEAK))
        before, height, width = after, -(-height // stride), -(-width // stride)
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(_DROPPED), nn.Linear(before * height * width, 1))
