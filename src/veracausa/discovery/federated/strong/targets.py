"""What a target learns of its attributes' fit: sums of squared residuals, and from them the noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.wide.words import Words, decode, encode
from veracausa.discovery.federated.strong.network import RATE_BITS, SQUARE_BITS
from veracausa.discovery.settings import Settings
from veracausa.errors import RunError

Array = NDArray[np.float64]

MOST = 1e4
"""The mean squared residual of standardised attributes from which a fit counts as lost."""


class Targets:
    """One party's attributes: normal around their predictions, each with a log-variance that stays at home."""

    def __init__(self, held_out: Array, rows: int, settings: Settings) -> None:
        self.rows, self.rate, self.gaussian = rows, settings.rate, settings.likelihood == "gaussian"
        self.log_variance = np.zeros(held_out.shape[1])
        self.loss = 0.0
        """Summed over attributes and steps until it is taken."""
        self.loss_without_causes = 0.5 * float(np.square(held_out).mean(0).sum()) if len(held_out) else 0.0
        """Of standardised attributes at their mean."""

    def rates(self) -> Words:
        """−η · what a residual weighs, (own, 1): its precision, by the rows of a batch."""
        return encode(-self.rate * np.exp(-self.log_variance) / self.rows, RATE_BITS, 64.0)[:, None]

    def learn(self, sums: Words, steps: int) -> None:
        """A step of the log-variances, by each attribute's squared residuals summed over so many batches."""
        squares = self._means(sums, self.rows, steps) * np.exp(-self.log_variance)
        self.loss += 0.5 * float((squares + steps * self.log_variance).sum())
        if self.gaussian:
            self.log_variance = self.log_variance - self.rate * 0.5 * (steps - squares)

    def take_loss(self) -> float:
        taken, self.loss = self.loss, 0.0
        return taken

    def losses(self, sums: Words, rows: int) -> float:
        """Of other rows: summed over attributes, mean over rows."""
        squares = self._means(sums, rows, 1) * np.exp(-self.log_variance)
        return 0.5 * float((squares + self.log_variance).sum())

    def _means(self, sums: Words, rows: int, steps: int) -> Array:
        means = decode(sums, SQUARE_BITS) / rows
        # A wrap on shares shows here: sums of squares turn huge or negative.
        if not ((means > -1e-3) & (means < MOST * steps)).all():
            raise RunError(f"the fit diverged: predictions left the range of the shares; lower its rate ({self.rate})")
        return means
