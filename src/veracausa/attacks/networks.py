"""Networks of live attacks: decoders, and discriminators of rows and payloads that may be told the label.

Weights come from PyTorch's default generator, and so does dropout: build them inside `seeding.drawing_from`, and hand
what has dropout to `models.dropout.bind_dropout`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from veracausa.models.decoders import ResizeTo, strong_decoder, upsampling_sizes

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


def _picture_body(inputs: int, height: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = inputs
    for number, (after, stride) in enumerate(((64, 1), (128, 2), (128, 2), (256, 2))):
        layers += [nn.Conv2d(before, after, 3, stride, 1), *([nn.BatchNorm2d(after)] if number else [])]
        layers.append(nn.LeakyReLU(_LEAK))
        before, height, width = after, -(-height // stride), -(-width // stride)
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(_DROPPED), nn.Linear(before * height * width, 1))


_EMBEDDED_LABEL = 50
_VECTOR_WIDTH = 256


class EmbeddingDiscriminator(nn.Module):
    """One logit a payload, high for the victim's own; with `classes` it is told the label too.

    A label enters a map as one more channel, drawn from a learnt embedding; it enters a vector as that embedding.
    """

    def __init__(self, payload_shape: Sequence[int], classes: int | None = None) -> None:
        super().__init__()
        shape = tuple(payload_shape)
        self.label: nn.Module | None = None
        inputs = shape[0] if len(shape) == 3 else math.prod(shape)
        if classes:
            plane = (1, *shape[1:]) if len(shape) == 3 else (_EMBEDDED_LABEL,)
            self.label = LabelPlane(classes, plane)
            inputs += plane[0]
        self.body = _map_body(inputs, shape) if len(shape) == 3 else _vector_body(inputs)

    def forward(self, payload: Tensor, labels: Tensor | None = None) -> Tensor:
        """(n,) logits."""
        x = payload if payload.ndim in (2, 4) else payload.flatten(1)
        if self.label is not None:
            if labels is None:
                raise ValueError("this discriminator was built with classes: it needs labels")
            x = torch.cat([x, self.label(labels).to(x.dtype)], 1)
        logit: Tensor = self.body(x)
        return logit.squeeze(1)


class LabelPlane(nn.Module):
    """A label as numbers of a given shape: a learnt embedding of 50, then a dense layer."""

    def __init__(self, classes: int, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.embedding = nn.Embedding(classes, _EMBEDDED_LABEL)
        self.linear = nn.Linear(_EMBEDDED_LABEL, math.prod(self.shape))

    def forward(self, labels: Tensor) -> Tensor:
        plane: Tensor = self.linear(self.embedding(labels))
        return plane.view(len(labels), *self.shape)


class RowDiscriminator(EmbeddingDiscriminator):
    """One logit a row, high for a genuine one; with `classes` it is told the label too."""

    def __init__(self, row: Sequence[int], classes: int | None = None) -> None:
        super().__init__(row, classes)
        if len(row) == 3:
            self.body = _picture_body(row[0] + bool(classes), row[1], row[2])


def embedding_discriminator(payload_shape: Sequence[int], classes: int | None = None) -> EmbeddingDiscriminator:
    """The discriminator of SDAR on payloads, which FSHA uses too; call it as `d(payload)` or `d(payload, labels)`."""
    return EmbeddingDiscriminator(payload_shape, classes)


def auxiliary_classifier(payload_shape: Sequence[int], outputs: int, norm: bool = True) -> nn.Sequential:
    """The DAC of URVFL: which class, and whose payload, in `outputs` logits; `norm` is its variant with BN."""
    if len(payload_shape) != 3:
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(payload_shape)
        for following in (_VECTOR_WIDTH, _VECTOR_WIDTH):
            layers += [nn.Linear(width, following), *([nn.BatchNorm1d(following)] if norm else []), nn.ReLU()]
            width = following
        return nn.Sequential(*layers, nn.Linear(width, outputs))
    channels, *size = payload_shape
    layers, before = [], channels
    for after, stride in zip((64, 128, 64) if norm else (32, 64, 32), (2, 2, 1), strict=True):
        layers += [nn.Conv2d(before, after, 3, stride, 1), *([nn.BatchNorm2d(after)] if norm else []), nn.ReLU()]
        before = after
    height, width = (-(-side // 4) for side in size)
    if norm:
        # 32 values a channel at most, along the longer side of the strip.
        height, width = (min(height, 8), min(width, 4)) if height > width else (min(height, 4), min(width, 8))
        layers.append(nn.AdaptiveAvgPool2d((height, width)))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * height * width, outputs))


def _map_body(inputs: int, shape: tuple[int, ...]) -> nn.Sequential:
    height, width = shape[1:]
    layers: list[nn.Module] = []
    before = inputs
    for number, (after, stride) in enumerate(((32, 1), (64, 2), (128, 2), (256, 1), (256, 1), (256, 1), (256, 2))):
        layers += [nn.Conv2d(before, after, 3, stride, 1), *([nn.BatchNorm2d(after)] if number else [])]
        layers.append(nn.LeakyReLU(_LEAK))
        before, height, width = after, -(-height // stride), -(-width // stride)
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(_DROPPED), nn.Linear(before * height * width, 1))


def _vector_body(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, _VECTOR_WIDTH), nn.LeakyReLU(_LEAK)]
    for _ in range(2):
        layers += [nn.Linear(_VECTOR_WIDTH, _VECTOR_WIDTH), nn.BatchNorm1d(_VECTOR_WIDTH), nn.LeakyReLU(_LEAK)]
    return nn.Sequential(*layers, nn.Dropout(_DROPPED), nn.Linear(_VECTOR_WIDTH, 1))


_WIDE = 64


def light_decoder(payload: Sequence[int], row: Sequence[int]) -> nn.Sequential:
    """From a map to a picture in [0, 1]: Ch→32→16→c, or 64→64→32→c for wide payloads; ends in a sigmoid."""
    channels, height, width = payload
    first, second = (64, 32) if channels >= _WIDE else (32, 16)
    layers: list[nn.Module] = []
    for size in upsampling_sizes((height, width), (row[1], row[2]))[1:]:
        layers += [nn.Upsample(scale_factor=2, mode="nearest"), ResizeTo(size)]
        layers += _convolution(channels, channels)
    layers += [*_convolution(channels, first), *_convolution(first, second), nn.Conv2d(second, row[0], 3, padding=1)]
    return nn.Sequential(*layers, ResizeTo((row[1], row[2])), nn.Sigmoid())


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
