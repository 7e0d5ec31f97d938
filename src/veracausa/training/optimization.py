"""Optimisers, the learning rate at a step, and the order of batches: pure functions of the job."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.config import Optimizer, ScheduleOptions


def make_optimizer(parameters: Iterable[nn.Parameter], options: Optimizer) -> torch.optim.Optimizer:
    """The optimiser that the job asks for; fused, so that a step is one operation and not one a weight."""
    weights = list(parameters)
    if options.name == "sgd":
        return torch.optim.SGD(
            weights, lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay, fused=True
        )
    return torch.optim.Adam(weights, lr=options.lr, weight_decay=options.weight_decay, fused=True)


def load_optimizer(optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    """Take over a kept state, each tensor laid out in memory as its weight is.

    A checkpoint keeps plain rows. A fused step on a GPU refuses a momentum that lies otherwise than its weight, as with
    channels last.
    """
    optimizer.load_state_dict(kept)
    for weight, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                state[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def learning_rate(step: int, steps: int, lr: float, schedule: ScheduleOptions) -> float:
    """The learning rate of training step `step` (from 0) out of `steps`."""
    if step < schedule.warmup:
        return lr * (step + 1) / schedule.warmup
    if schedule.name == "cosine":
        progress = (step - schedule.warmup) / max(1, steps - schedule.warmup)
        return lr * 0.5 * (1 + math.cos(math.pi * progress))
    if schedule.name == "step":
        return lr * schedule.gamma ** sum(step >= milestone * steps for milestone in schedule.milestones)
    return lr


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


class BatchOrder:
    """The positions of every training step, drawn anew each epoch; any step can be asked for, so nothing is saved."""

    def __init__(self, positions: Tensor, batch_size: int, seed: int) -> None:
        self.positions = positions
        self.batch_size = batch_size
        self.seed = seed
        rows = len(positions)
        # A last batch of one row would leave batch normalisation without a variance.
        self.per_epoch = max(
            1, math.ceil(rows / batch_size) - (rows > 1 and rows % batch_size == 1 and rows > batch_size)
        )
        self._epoch = -1
        self._order = positions

    def batch(self, step: int) -> Tensor:
        epoch, index = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = seeding.generator(self.seed, "order", epoch)
            self._order = self.positions[torch.randperm(len(self.positions), generator=rng)]
            self._epoch = epoch
        return self._order[index * self.batch_size : (index + 1) * self.batch_size]
