"""A bottom trained on a public task against a decoder, before it meets the party's own rows (ResSFL's expert)."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa import seeding
from veracausa.data.images import ImageOptions, Images
from veracausa.data.sources import datasets
from veracausa.defenses.base import Progress, unheard
from veracausa.defenses.proxy_adversary import Precision, ProxyAdversary, likeness, payload_of
from veracausa.defenses.score_net import score_net
from veracausa.errors import InputError
from veracausa.models.dry_pass import written

_MOMENTUM, _WEIGHT_DECAY = 0.9, 5e-4
# A GPU works behind the interpreter; without waiting now and then, progress would say what is asked, not what is done.
_STEPS_AHEAD = 16


@dataclass(frozen=True)
class Reading:
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
    gates: dict[str, float]
    """`source_accuracy` and `source_ssim` of the last epoch, on the rows it learnt from."""


def load_strips(source: ImageOptions, row: tuple[int, ...]) -> tuple[Tensor, Tensor, int]:
    """The source's training pictures cut into strips of the party's shape, their labels, and the number of classes."""
    from veracausa.config import load_job  # which imports the defenses' names

    # A source reads its own settings; the job that it may ask for a seed is one of nothing else.
    job = load_job({"data": source.model_dump(mode="json", exclude_none=True), "model": {"name": "convnet"}})
    whole: Images = datasets.get(source.name)(source, job)
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
            f"{where} has pictures of {written(picture)}, which hold no strip of {written(row)} as the party's rows "
            "are; name a source with as many channels and pictures at least as large"
        )


def train_expert(
    bottom: nn.Module,
    rows: Tensor,
    labels: Tensor,
    classes: int,
    reading: Reading,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    seed: int,
    precision: Precision = nullcontext,
    progress: Progress = unheard,
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
