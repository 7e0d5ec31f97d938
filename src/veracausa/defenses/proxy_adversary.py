"""The attacker that a party trains against itself: a decoder from its own payloads to its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.metrics.images import ssim
from veracausa.models.decoders import conv_decoder, residual_decoder, table_decoder
from veracausa.models.dry_pass import evaluating

Strength = Literal["weak", "medium", "strong"]
Loss = Callable[[Tensor, Tensor], Tensor]
"""From guess and rows to what the decoder minimises."""
Precision = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which networks run."""

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
    with evaluating(bottom), torch.no_grad():
        return tuple(bottom(torch.zeros(1, *row, device=device_of(bottom))).shape[1:])


def device_of(bottom: nn.Module) -> torch.device:
    """Where its weights lie."""
    weight = next(bottom.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


def precision_of(runner: Callable[[Tensor], Tensor]) -> Precision:
    """The precision that the job wants its models run in, as the bottom's runner knows it."""
    return cast(Precision, getattr(runner, "precision", nullcontext))


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
        with evaluating(self.decoder), torch.no_grad():
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
