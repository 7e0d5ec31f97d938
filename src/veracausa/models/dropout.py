"""Dropout that draws from a party's own generator, so that a resumed run drops what the unbroken run dropped."""

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
