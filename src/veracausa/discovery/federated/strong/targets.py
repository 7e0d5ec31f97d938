"""What a target does with its predictions, in the clear at home: losses, errors, and the noise it learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.wide.words import Words, decode, encode
from veracausa.discovery.decoders import Likelihood
from veracausa.discovery.federated.strong.network import GRADIENT_BITS, UNIT_BITS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

STEP_LIMIT = 1.0
"""The most that one row may move its prediction's offset in a step."""


class Targets:
    """One party's attributes, (n, own) a batch, and their log-variances."""

    def __init__(self, batches: list[Array], binary: Mask, likelihood: Likelihood, rate: float) -> None:
        self.batches = [np.ascontiguousarray(values.T) for values in batches]
        self.binary, self.likelihood, self.rate = binary[:, None], likelihood, rate
        self.log_variance = np.zeros((len(binary), 1))
        self.loss = 0.0
        """Summed over attributes and steps until it is taken."""

    def respond(self, batch: int, predictions: Words) -> Words:
        """−η · the gradient by each prediction, (own, n), and a step of the log-variances."""
        mean = decode(predictions, UNIT_BITS)
        losses, by_mean, by_variance = self._loss(mean, self.batches[batch])
        self.loss += float(losses.sum())
        self.log_variance -= self.rate * by_variance
        return encode(-self.rate * by_mean, GRADIENT_BITS, STEP_LIMIT)

    def take_loss(self) -> float:
        taken, self.loss = self.loss, 0.0
        return taken

    def losses(self, batch: int, predictions: Words) -> float:
        """Summed over attributes, mean over the rows of the batch."""
        return float(self._loss(decode(predictions, UNIT_BITS), self.batches[batch])[0].sum())

    def losses_without_causes(self, batches: list[int]) -> float:
        """Of standardised attributes at their mean, and of binary ones at their share of ones."""
        values = np.concatenate([self.batches[batch] for batch in batches], axis=1)
        share = np.clip(values.mean(1), 1e-6, 1 - 1e-6)
        entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
        return float(np.where(self.binary[:, 0], entropy, 0.5 * np.square(values).mean(1)).sum())

    def _loss(self, mean: Array, values: Array) -> tuple[Array, Array, Array]:
        """The losses, and their gradients by the mean and by the log-variance."""
        rows = mean.shape[1]
        error = mean - values
        if self.likelihood == "mse":
            return 0.5 * np.square(error).mean(1), error / rows, np.zeros_like(self.log_variance)
        scaled = error * np.exp(-self.log_variance)
        squares = (error * scaled).mean(1, keepdims=True)
        losses, by_mean, by_variance = 0.5 * (squares + self.log_variance), scaled / rows, 0.5 * (1 - squares)
        if self.binary.any():
            odds = (np.logaddexp(0, mean) - values * mean).mean(1, keepdims=True)
            losses = np.where(self.binary, odds, losses)
            by_mean = np.where(self.binary, (0.5 * (1 + np.tanh(0.5 * mean)) - values) / rows, by_mean)
            by_variance = np.where(self.binary, 0.0, by_variance)
        return losses[:, 0], by_mean, by_variance
