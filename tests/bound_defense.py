"""A defense bound to a bottom of one's own, as a passive party binds it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense


def bound(name: str, bottom: nn.Module, seed: int = 1, **settings: Any) -> Defense:
    defense: Defense = defenses.get(name)(defenses.options(name)(name=name, **settings))
    optimizer = torch.optim.SGD(bottom.parameters(), lr=0.1)
    defense.bind(bottom, optimizer, seeding.generator(seed, "training"))
    return defense


def linear(outputs: int, inputs: int, seed: int = 0, bias: bool = False) -> nn.Linear:
    with seeding.drawing_from(seeding.generator(seed, "model")):
        return nn.Linear(inputs, outputs, bias=bias)


def small_conv(seed: int = 0) -> nn.Sequential:
    """Rows 1×8×4 to maps 4×4×2, with batch normalisation."""
    with seeding.drawing_from(seeding.generator(seed, "model")):
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=seeding.generator(seed, "rows"))


def covariance(defense: Defense, x: Tensor, draws: int) -> Tensor:
    """The sample covariance of what training exchanges add to one row `x` (1, …), over so many draws."""
    many = x.expand(draws, *x.shape[1:]).contiguous()
    with torch.no_grad():
        payload, _ = defense.forward(many, torch.arange(draws), 0)
        clean = defense.deterministic_payload(many[:1], torch.arange(1))
    noise = (payload - clean).flatten(1).double()
    return noise.T @ noise / draws
