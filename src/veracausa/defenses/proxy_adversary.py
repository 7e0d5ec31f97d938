"""Networks that a party trains against itself: a decoder from its own payloads to its rows, and small scoring nets."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa import seeding
from veracausa.data.images import ImageOptions, Images
from veracausa.data.sources import datasets
from veracausa.defenses.protocols import no_progress
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.metrics.images import ssim
from veracausa.models.decoders import LinearResidualBlock, conv_decoder, residual_decoder, table_decoder
from veracausa.models.runner import Precision, device_of, eval_mode
from veracausa.models.units import shape_text
from veracausa.models.zoo.resnet import BasicBlock

Strength = Literal["weak", "medium", "strong"]
Loss = Callable[[Tensor, Tensor], Tensor]
"""From guess and rows to what the decoder minimises."""

_PICTURES = {"weak": (conv_decoder, 0, 16), "medium": (residual_decoder, 2, 32), "strong": (residual_decoder, 4, 64)}
_TABLES = {"weak": (0, 64), "medium": (1, 128), "strong": (2, 256)}


def decoder_of(strength: Strength, payload: tuple[int, ...], row: tuple[int, ...]) -> nn.Module:
    """An untrained decoder: ConvDec(0, 16), ResDec(2, 32) or ResDec(4, 64) for pictures, an MLP for rows of a table."""
    if len(row) == 3:
        build, blocks, channels = _PICTURES[strength]
        return build(payload, row, blocks, channels)
    blocks, width = _TABLES[strength]
    return table_decoder(payload, row, blocks, width)


def payload_of(bottom: nn.Module, row: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what the bottom gives for one row."""
    with eval_mode(bottom), torch.no_grad():
        return tuple(bottom(torch.zeros(1, *row, device=device_of(bottom))).shape[1:])


def likeness(guess: Tensor, rows: Tensor) -> Tensor:
    """How much of the rows a guess shows, 1 for all: the mean SSIM of pictures, R² of a table's rows.

    A table has no SSIM. R² = 1 − squared error / spread around the batch's mean, over all columns together: 0 is what a
    blind guess of the mean scores.
    """
    if rows.ndim == 4:
        return ssim(guess, rows).mean()
    spread = (rows - rows.mean(0)).square().mean()
    return 1 - (guess - rows).square().mean() / spread.clamp_min(1e-6)


class ProxyAdversary:
    """A decoder and its Adam, on the device of what it is to read; it learns only by `learn`.

    It never leaves the party. What it reads says what an attacker of this size could read that had the party's rows.
    """

    def __init__(
        self,
        payload: tuple[int, ...],
        row: tuple[int, ...],
        strength: Strength,
        lr: float,
        seed: int,
        device: torch.device,
        precision: Precision = nullcontext,
    ) -> None:
        with seeding.drawing_from(seeding.generator(seed, "proxy adversary")):
            decoder = decoder_of(strength, payload, row)
        self.payload, self.row, self.precision = payload, row, precision
        self.decoder = decoder.to(device)
        self.optimizer = torch.optim.Adam(self.decoder.parameters(), lr=lr, fused=True)

    def read(self, payload: Tensor) -> Tensor:
        """The rows it sees behind these payloads, in float32; differentiable in the payload."""
        with self.precision():
            guess: Tensor = self.decoder(payload)
        return guess.float().view(-1, *self.row)

    def learn(self, payload: Tensor, rows: Tensor, loss: Loss) -> Tensor:
        """One step on these pairs; the loss before it."""
        with torch.enable_grad():
            value = loss(self.read(payload.detach()), rows)
            gradients = torch.autograd.grad(value, list(self.decoder.parameters()))
        for parameter, gradient in zip(self.decoder.parameters(), gradients, strict=True):
            # In the weights' own layout: of payloads with channels last it has another, and a fused Adam refuses it.
            parameter.grad = torch.empty_like(parameter).copy_(gradient)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return value.detach()

    def ask(self, payload: Tensor) -> Tensor:
        """What `read` gives in eval mode; changes nothing."""
        with eval_mode(self.decoder), torch.no_grad():
            return self.read(payload)

    def state(self) -> dict[str, Any]:
        return {
            "payload": list(self.payload),
            "row": list(self.row),
            "decoder": self.decoder.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.decoder.load_state_dict(state["decoder"])
        self.optimizer.load_state_dict(state["optimizer"])


_MOMENTUM, _WEIGHT_DECAY = 0.9, 5e-4
# A GPU works behind the interpreter; without waiting now and then, progress would say what is asked, not what is done.
_STEPS_AHEAD = 16


@dataclass(frozen=True)
class DecoderReading:
    """How the bottom is kept from being read: δ, the score that costs nothing, the decoder's steps and its rate."""

    strength: float
    threshold: float
    steps: int
    lr: float


@dataclass(frozen=True)
class Expert:
    """What a pretraining gives."""

    weights: dict[str, Tensor]
    """Of the bottom."""
    quality: dict[str, float]
    """`source_accuracy` and `source_ssim` of the last epoch, on the rows it learnt from."""


def load_strips(source: ImageOptions, row: tuple[int, ...]) -> tuple[Tensor, Tensor, int]:
    """The source's training pictures cut into strips of the party's shape, their labels, and the number of classes."""
    from veracausa.config import load_job  # which imports the defenses' names

    # A source reads its own settings; the job that it may ask for a seed is one of nothing else.
    job = load_job({"data": source.model_dump(mode="json", exclude_none=True), "model": {"name": "convnet"}})
    whole = datasets.get(source.name)(source, job)
    assert isinstance(whole, Images)
    pictures, labels = whole.train[: source.train], whole.train_labels[: source.train].long()
    tiles = strips_like(pictures, row, f"defense.source = {source.name!r}")
    return tiles, labels.repeat_interleave(len(tiles) // len(pictures)), len(whole.classes)


def strips_like(pictures: Tensor, row: tuple[int, ...], where: str) -> Tensor:
    """(n·strips, *row): all strips of that shape, side by side, that fit into each of the n pictures.

    A party knows its row's shape and not where in the picture it was cut; strips from everywhere serve a bottom that is
    mostly convolutions.
    """
    channels, height, width = pictures.shape[1:]
    check_fits((channels, height, width), row, where)
    down, across = height // row[1], width // row[2]
    cut = pictures[:, :, : down * row[1], : across * row[2]]
    cut = cut.reshape(len(pictures), channels, down, row[1], across, row[2])
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(-1, *row)


def check_fits(picture: tuple[int, int, int], row: tuple[int, ...], where: str) -> None:
    """Refuse a source whose pictures hold no strip of the party's shape."""
    channels, height, width = picture
    if channels != row[0] or row[1] > height or row[2] > width:
        raise InputError(
            f"{where} has pictures of {shape_text(picture)}, which hold no strip of {shape_text(row)} "
            "as the party's rows "
            "are; name a source with as many channels and pictures at least as large"
        )


def train_expert(
    bottom: nn.Module,
    rows: Tensor,
    labels: Tensor,
    classes: int,
    reading: DecoderReading,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    seed: int,
    precision: Precision = nullcontext,
    progress: ProgressCallback = no_progress,
) -> Expert:
    """Train a copy of the bottom with a head of its own on labelled pixels (uint8), against a strong decoder.

    SGD, its rate falling as a cosine; the bottom given stays as it is.
    """
    device, row = rows.device, tuple(rows.shape[1:])
    payload = payload_of(bottom, row)
    with seeding.drawing_from(seeding.generator(seed, "source head")):
        head = score_net(payload, classes, "deep").to(device)
    adversary = ProxyAdversary(payload, row, "strong", reading.lr, seeding.derive(seed, "source"), device, precision)
    learner = copy.deepcopy(bottom).train()
    trained = [*learner.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(trained, lr=lr, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY, fused=True)
    order = seeding.generator(seed, "source order")
    batch_size = min(batch_size, len(rows))
    per_epoch = len(rows) // batch_size
    steps = epochs * per_epoch
    right, read = torch.zeros((), device=device), torch.zeros((), device=device)
    for done in range(steps):
        at = done % per_epoch
        if at == 0:
            shuffled = torch.randperm(len(rows), generator=order).to(device)
            right.zero_(), read.zero_()
        chosen = shuffled[at * batch_size : (at + 1) * batch_size]
        x, y = rows[chosen].float() / 255, labels[chosen]
        optimizer.param_groups[0]["lr"] = lr * 0.5 * (1 + math.cos(math.pi * done / steps))
        with precision():
            r = learner(x)
            logits = head(r).float()
        for _ in range(reading.steps):
            adversary.learn(r, x, lambda guess, truth: -likeness(guess, truth))
        score = likeness(adversary.read(r), x)
        loss = F.cross_entropy(logits, y) + reading.strength * (score - reading.threshold).clamp_min(0)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        right += (logits.detach().argmax(1) == y).float().mean() / per_epoch
        read += score.detach() / per_epoch
        if device.type == "cuda" and done % _STEPS_AHEAD == 0:
            torch.cuda.current_stream(device).synchronize()
        progress((done + 1) / steps)
    weights = {name: value.detach().clone() for name, value in learner.state_dict().items()}
    if not all(value.isfinite().all() for value in weights.values()):
        raise InputError(f"defense.source_lr = {lr}: the pretraining on the source diverged; lower it")
    return Expert(weights, {"source_accuracy": float(right), "source_ssim": float(read)})


Depth = Literal["lite", "deep"]

_LITE_CONVOLUTIONS, _LITE_WIDTH = 3, 64
_WIDEST, _BLOCKS = 512, 2
_MLP_WIDTH, _MLP_BLOCKS = 128, 4


def score_net(shape: tuple[int, ...], outputs: int, depth: Depth = "lite") -> nn.Sequential:
    """From one representation of `shape` to `outputs` scores.

    For maps, `lite` is three strided convolutions and `deep` what is left of a ResNet-18 behind a map of that many
    channels; for vectors both are MLPs.
    """
    if len(shape) != 3:
        return _mlp(math.prod(shape), outputs, depth)
    build = _lite if depth == "lite" else _deep
    layers, channels = build(shape[0], min(shape[1:]))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))


def _stride(side: int) -> int:
    # No step of two over a side of one pixel: on a CPU, bf16 leaves the unused weights' gradients unset there.
    return 2 if side > 1 else 1


def _lite(channels: int, side: int) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    for _ in range(_LITE_CONVOLUTIONS):
        convolution = nn.Conv2d(channels, _LITE_WIDTH, 3, _stride(side), padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(_LITE_WIDTH), nn.ReLU()]
        channels, side = _LITE_WIDTH, -(-side // 2)
    return layers, channels


def _deep(channels: int, side: int) -> tuple[list[nn.Module], int]:
    """Stages of two blocks, each of twice the channels at half the size, to 512 channels or one pixel; one at least."""
    layers: list[nn.Module] = []
    while not layers or (channels < _WIDEST and side > 1):
        wider = min(2 * channels, max(_WIDEST, channels))
        layers += [BasicBlock(channels, wider, _stride(side))]
        layers += [BasicBlock(wider, wider, 1) for _ in range(_BLOCKS - 1)]
        channels, side = wider, -(-side // 2)
    return layers, channels


def _mlp(features: int, outputs: int, depth: Depth) -> nn.Sequential:
    blocks = _MLP_BLOCKS if depth == "deep" else 1
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(features, _MLP_WIDTH),
        *(LinearResidualBlock(_MLP_WIDTH) for _ in range(blocks)),
        nn.BatchNorm1d(_MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(_MLP_WIDTH, outputs),
    )
