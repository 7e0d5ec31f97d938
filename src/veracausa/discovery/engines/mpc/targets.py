"""What a target learns of its attributes' fit: sums of squared residuals, and from them the noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.crypto.ring64.fixed64 import Words, decode, encode
from veracausa.discovery.engines.mpc.network import RATE_BITS, SQUARE_BITS
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import RunError

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
        self.rows, self.rate, self.gaussian = rows, settings.rate, settings.likelihood == "gaussian"
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
        """Of sets of other rows, summed over attributes: each by its median set, as a cubic may miss one row by far."""
        squares = np.median([self._squares(part, rows) for part, rows in sums], axis=0)
        return 0.5 * float((squares + self.log_variance).sum())

    def _squares(self, sums: Words, rows: int) -> Array:
        """The mean squared residual in units of its variance."""
        means = decode(sums, SQUARE_BITS) / rows
        # A wrap on shares shows here: sums of squares turn huge or negative.
        if not ((means > -1e-3) & (means < MOST)).all():
            raise RunError(f"the fit diverged: predictions left the range of the shares; lower its rate ({self.rate})")
        scaled: Array = np.maximum(means, 0.0) * np.exp(-self.log_variance)
        return scaled
