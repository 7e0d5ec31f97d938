"""Encoder and decoders of all attributes on shares, as far as their units do not matter.

Written over `Arithmetic`, so that every party, the dealer and the clear twin run these very lines.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Array, Mask
from veracausa.crypto.fixed_point import VALUE_BITS
from veracausa.crypto.ring64.arithmetic import Arithmetic, Masked
from veracausa.crypto.ring64.fixed64 import Stream, Words, decode, encode, word
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import RunError

WEIGHT_BITS = 24
"""Fractional bits of all weights and biases."""
GRADIENT_BITS = 24
BACK_BITS = 16
"""Of the readout times the slope of the last units."""
RESIDUAL_BITS = 16
RATE_BITS = 32
"""Of learning rates, which are small."""
SQUARE_BITS = 16
"""Of sums of squared residuals as they are opened."""
SUM_BITS = 2 * RESIDUAL_BITS - SQUARE_BITS
"""Cut off sums of squares when they are opened."""
FACTOR_BITS = 16


@dataclass
class Pass:
    """What the way back needs of the way there."""

    x: Masked
    weights: list[Masked]
    """Of the layers between, and the readout."""
    inputs: list[Masked]
    """Of each layer's units, (d, n, h): what their slopes follow from."""
    outputs: list[Masked]
    back: Masked | None
    """The readout times the slope of the last units; None where nothing is learned."""
    residuals: Masked
    """Predictions less what they predict, (d, n, 1)."""


class SharedNetwork(ABC):
    """The shares of all weights, and what is done with them."""

    def __init__(self, arithmetic: Arithmetic, shares: Mapping[str, Words], allowed: Mask) -> None:
        self.arithmetic, self.shares = arithmetic, dict(shares)
        self.depth = sum(name.startswith("weight") for name in shares)
        self.allowed = allowed
        """Edges that may grow; all parties know it."""

    @abstractmethod
    def forward(self, x: Masked, encoder: Words | None = None, learning: bool = True) -> Pass:
        """Predict rows (n, d), every attribute by the others; `encoder` in place of the network's own."""

    def squared_residuals(self, there: Pass) -> Words:
        """Each attribute's sum over the rows, opened to its target, (own,)."""
        residuals = there.residuals
        sums = self.arithmetic.product(lambda a, b: (a * b).sum((1, 2)), residuals, residuals)
        return self.arithmetic.reveal(sums, SUM_BITS)

    @abstractmethod
    def backward(self, there: Pass, rates: Masked) -> None:
        """Let all weights grow by a batch; `rates` (d, 1, 1) are −η times what residuals weigh, known to targets."""

    def _learn_encoder(self, x: Masked, gradient: Masked, increments: dict[str, tuple[Words, int]]) -> None:
        """The encoder's increment, and all of them cut and added."""
        d, _, h = gradient.mask.shape
        encoder = self.arithmetic.product(np.matmul, x.view(transposed), gradient.view(by_row)).reshape(d, d, h)
        increments["encoder"] = encoder * self.allowed[..., None], VALUE_BITS
        for name, increment in zip(increments, self.arithmetic.truncate(*increments.values()), strict=True):
            self.shares[name] = self.shares[name] + increment

    def squares(self) -> tuple[Masked, Words]:
        """The encoder, masked, and a share of the squared norm of every block, (d, d)."""
        (encoder,) = self.arithmetic.mask(self.shares["encoder"])
        return encoder, self.arithmetic.product(lambda a, b: (a * b).sum(-1), encoder, encoder)

    def scale(self, encoder: Masked, factors: Masked) -> None:
        """Scale every block by a factor that no party knows."""
        scaled = self.arithmetic.product(np.multiply, encoder, factors.view(_in_blocks))
        (self.shares["encoder"],) = self.arithmetic.truncate((scaled, FACTOR_BITS))

    def restrict(self, allowed: Mask) -> None:
        """End the blocks whose edge is not allowed any more; this all parties know."""
        self.allowed = allowed
        self.shares["encoder"] = self.shares["encoder"] * allowed[..., None]

    def under(self, graph: Masked, encoder: Masked) -> Words:
        """The encoder with the edges of a graph only, which no party knows."""
        return self.arithmetic.product(np.multiply, encoder, graph.view(_in_blocks))

    def _shift(self, bias: str, gradient: Masked) -> None:
        self.shares[bias] = self.shares[bias] + self.arithmetic.share(gradient).sum(1, keepdims=True)


def shapes(d: int, width: int, depth: int) -> dict[str, tuple[int, ...]]:
    """Of everything that is learned."""
    between = {f"weight_{layer}": (d, width, width) for layer in range(depth)}
    biases = {f"bias_{layer}": (d, 1, width) for layer in range(depth)}
    ends = {"encoder": (d, d, width), "bias": (d, 1, width), "readout": (d, width, 1), "offset": (d, 1, 1)}
    return {**ends, **between, **biases}


def draw_share(stream: Stream, parties: int, depth: int, allowed: Mask, width: int) -> dict[str, Words]:
    """One party's part of the first weights: they are the sum of all parties' draws, so that nobody knows them."""
    d = len(allowed)
    drawn = {}
    for name, shape in shapes(d, width, depth).items():
        bound = {"bias": 0.0, "encoder": 1 / (d * math.sqrt(width))}.get(name, 1 / math.sqrt(width))
        # Divided so that the sum has the deviation of one draw within the bound.
        most = round(2**WEIGHT_BITS * bound / math.sqrt(parties))
        drawn[name] = stream.take(shape) % word(2 * most + 1) - word(most)
    drawn["encoder"] *= allowed[..., None]
    return drawn


def scaled_up(words: Words, bits: int) -> Words:
    return words * word(1 << bits)


def transposed(words: Words) -> Words:
    return words.swapaxes(-1, -2)


def by_row(words: Words) -> Words:
    """(n, d · h) of numbers (d, n, h)."""
    d, n, h = words.shape
    return words.swapaxes(0, 1).reshape(n, d * h)


def _in_blocks(words: Words) -> Words:
    return words[..., None]


MOST = 1e6
"""The mean squared residual of standardised attributes from which a fit counts as lost."""
BOUND = 1.5
"""How many times its variance a batch's mean squared residual may be before the whole batch weighs less. A cubic is not
bounded as tanh is: one row far out could throw a fit off its way."""
FARTHEST = 4.0
"""Values of standardised columns beyond it are moved to it, by the party that holds them, for the same reason."""


class Targets:
    """One party's attributes: normal around their predictions, each with a log-variance that stays at home."""

    def __init__(self, held_out: Array, rows: int, settings: Settings) -> None:
        self.rows, self.rate, self.gaussian = rows, settings.learning_rate, settings.likelihood == "gaussian"
        self.bounded = settings.strong == "replicated"
        """Whether units are bounded."""
        self.log_variance = np.zeros(held_out.shape[1])
        self.loss = 0.0
        """Summed over attributes and steps until it is taken."""
        self.loss_without_causes = 0.5 * float(np.square(held_out).mean(0).sum()) if len(held_out) else 0.0
        """Of standardised attributes at their mean."""

    def learn(self, sums: Words) -> Words:
        """−η · what each attribute's residuals of a batch weigh, (own, 1), by the sums of their squares."""
        squares = self._squares(sums, self.rows)
        self.loss += 0.5 * float((squares + self.log_variance).sum())
        weights = np.exp(-self.log_variance) * (BOUND / np.maximum(squares, BOUND))
        if self.gaussian:
            self.log_variance = self.log_variance - self.rate * 0.5 * (1 - np.minimum(squares, BOUND))
        return encode(-self.rate / self.rows * weights, RATE_BITS, 64.0)[:, None]

    def state(self) -> dict[str, Any]:
        return {"log_variance": torch.from_numpy(self.log_variance), "loss": self.loss}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.log_variance, self.loss = state["log_variance"].numpy(), state["loss"]

    def take_loss(self) -> float:
        taken, self.loss = self.loss, 0.0
        return taken

    def held_out_loss(self, sums: list[tuple[Words, int]]) -> float:
        """Of sets of other rows, summed over attributes. A cubic may miss one row by far: there, by the median set."""
        each = [self._squares(part, rows) for part, rows in sums]
        squares = np.average(each, axis=0, weights=[rows for _, rows in sums])
        if not self.bounded:
            squares = np.median(each, axis=0)
        return 0.5 * float((squares + self.log_variance).sum())

    def _squares(self, sums: Words, rows: int) -> Array:
        """The mean squared residual in units of its variance."""
        means = decode(sums, SQUARE_BITS) / rows
        # A wrap on shares shows here: sums of squares turn huge or negative.
        if not ((means > -1e-3) & (means < MOST)).all():
            raise RunError(f"the fit diverged: predictions left the range of the shares; lower its rate ({self.rate})")
        scaled: Array = np.maximum(means, 0.0) * np.exp(-self.log_variance)
        return scaled
