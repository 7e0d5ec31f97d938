"""Layers of our own: dropout from a party's own generator, input centring, and a scaling for heavy-tailed payloads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from veracausa.errors import InputError


class Dropout(nn.Module):
    """`nn.Dropout`, or with `channels=True` `nn.Dropout1d` to `3d`, drawing from `rng` in place of the global one.

    The mask is drawn where `rng` lives and moved to the input: with a CPU generator a GPU run drops the same values.
    """

    def __init__(self, p: float, rng: torch.Generator, *, channels: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InputError(f"dropout p = {p}: a probability lies in 0..1")
        self.p = p
        self.rng = rng
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = (*x.shape[:2], *[1] * (x.ndim - 2)) if self.channels else x.shape
        # Drawn in float32 whatever the input is, so that bf16 and fp32 runs drop the same values.
        kept = torch.empty(shape, device=self.rng.device).bernoulli_(1 - self.p, generator=self.rng)
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        return x * kept.mul_(scale).to(x.device, x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p}, channels={self.channels}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Dropout:
        # A copy (a generator of CausShield, say) draws from the same rng: the one that the party checkpoints.
        copied = Dropout(self.p, self.rng, channels=self.channels)
        copied.training = self.training
        return copied


def bind_dropout(model: nn.Module, rng: torch.Generator) -> nn.Module:
    """The model with every dropout module in it, itself included, drawing from `rng`.

    Only modules are reached: `F.dropout` in a forward, or the `dropout=` of `nn.MultiheadAttention` and `nn.LSTM`,
    still draws from the global generator.
    """
    bound: dict[nn.Module, nn.Module] = {}

    def bind(module: nn.Module) -> nn.Module:
        if module not in bound:
            bound[module] = module
            if isinstance(module, Dropout):
                module.rng = rng
            elif isinstance(module, _DropoutNd):
                bound[module] = _drawing_from(rng, module)
            for name, child in list(module._modules.items()):
                if child is not None:
                    module._modules[name] = bind(child)
        return bound[module]

    return bind(model)


def _drawing_from(rng: torch.Generator, module: _DropoutNd) -> Dropout:
    if isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
        raise InputError(f"{type(module).__name__} cannot draw from a party's own generator: use nn.Dropout")
    replacement = Dropout(module.p, rng, channels=not isinstance(module, nn.Dropout))
    replacement.training = module.training
    return replacement


class Centre(nn.Module):
    """(x − 0.5) / 0.5, from [0, 1] to [−1, 1].

    It sits inside unit 1 and hence inside every bottom, so that an attacker's clone of the bottom contains it too.
    """

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.5) / 0.5


def centred(unit: nn.Module, centre: bool) -> nn.Module:
    """The unit, behind a `Centre` where the options ask for one; still one unit, so cuts keep their numbers."""
    return nn.Sequential(Centre(), unit) if centre else unit


ORDINARY = 0.9
"""The share of rows that is taken for ordinary."""
HEAVY = 0.75
"""Where the others hold more of the squared deviations, payloads are levelled. Usual: 0.15; sparse ones: up to 0.65."""


class RobustInputScaling(nn.Module):
    """Nothing at all, unless a few rows outweigh all others: then asinh of what ordinary rows would be standardised to.

    A normalisation sees nothing but the few rows, and all others look alike to the layers behind it. A defense need
    not intend that: lowering the distance correlation of rows and payloads brings it about.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))
        self.needed = False

    @classmethod
    def of(cls, decoder: nn.Module) -> RobustInputScaling | None:
        """The one that a decoder begins with."""
        return next((module for module in decoder.modules() if isinstance(module, cls)), None)

    def fit(self, payloads: Tensor) -> None:
        """Look at the payloads that a decoder will learn from."""
        values = self.shaped(payloads).float()
        centre = values.transpose(0, 1).flatten(1).median(1).values
        away = (values - self._like(centre, values)).square()
        spread = away.transpose(0, 1).flatten(1).mean(1).clamp_min(1e-30)
        weight = (away / self._like(spread, values)).flatten(1).sum(1)
        order = weight.argsort()
        kept = order[: max(1, int(ORDINARY * len(order)))]
        self.needed = bool(weight[order[len(kept) :]].sum() > HEAVY * weight.sum())
        if self.needed:
            ordinary = values[kept].transpose(0, 1).flatten(1)
            self.centre.copy_(ordinary.mean(1))
            scale = ordinary.std(1, correction=0)
            self.scale.copy_(torch.where(scale > 0, scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        if not self.needed:
            return x
        return torch.asinh((x - self._like(self.centre, x)) / self._like(self.scale, x))

    def shaped(self, payloads: Tensor) -> Tensor:
        """Maps as they are where their channels are levelled, else all their values in a row."""
        return payloads if payloads.shape[1] == len(self.centre) else payloads.flatten(1)

    @staticmethod
    def _like(by_channel: Tensor, x: Tensor) -> Tensor:
        return by_channel.view(1, -1, *[1] * (x.ndim - 2))
