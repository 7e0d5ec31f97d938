"""The decoders of a party's targets: one small network an attribute, all of them in one batched operation.

Arrays carry a leading axis of replicates (bootstraps, seeds, candidate graphs), which are trained side by side: R
replicates, m targets, n rows, h hidden units. Gradients are written out, because a step is a few dozen small products
and a tape would cost more than they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array

Activation = Literal["tanh", "sigmoid", "leaky_relu"]
Likelihood = Literal["gaussian", "heteroscedastic", "mse", "squared_error", "auto", "tested"]
"""auto and tested are for settings only: their searches have one of the first two each."""
SQUARES: dict[str, float] = {"mse": 0.5, "squared_error": 1.0}
"""Losses without a variance, and what each is times the squared error: that of appendix E.5 has no half."""

LEAK = 0.01


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "tanh": (np.tanh, lambda a: 1 - a * a),
    "sigmoid": (_sigmoid, lambda a: a * (1 - a)),
    "leaky_relu": (lambda x: np.where(x > 0, x, LEAK * x), lambda a: np.where(a > 0, 1.0, LEAK)),
}
"""Each activation, and its slope as a function of its output."""


@dataclass
class DecoderStep:
    """What one batch gave: the loss of each target, and the gradient of the features."""

    losses: Array
    """(R, m): mean over the rows."""
    features: Array
    """(R, m, n, h): the gradient of the sum of losses."""


class Decoders:
    """From the features of each target to its attribute: σ(Z + b), `depth` more layers, a linear read-out.

    Attributes share no weights: otherwise the strength of an edge would say nothing about its effect alone.
    """

    def __init__(
        self,
        replicates: int,
        targets: int,
        width: int,
        depth: int,
        activation: Activation,
        binary: NDArray[np.bool_],
        likelihood: Likelihood,
        rng: np.random.Generator,
    ) -> None:
        self.act, self.slope = ACTIVATIONS[activation]
        self.depth, self.binary, self.likelihood = depth, binary, likelihood
        shape = (replicates, targets)

        def uniform(*rest: int) -> Array:
            return np.asarray(rng.uniform(-1, 1, (*shape, *rest)) / np.sqrt(width))

        self.values: dict[str, Array] = {"bias": np.zeros((*shape, 1, width))}
        for layer in range(depth):
            self.values[f"weight_{layer}"] = uniform(width, width)
            self.values[f"bias_{layer}"] = uniform(1, width)
        self.values["readout"] = uniform(width, 1)
        self.values["offset"] = uniform(1, 1)
        self.values["log_variance"] = np.zeros((*shape, 1, 1))
        self.noisy_rate: float | Array = 1.0
        """How many times as fast an attribute of pure noise learns, for all replicates or (R, 1, 1, 1)."""

    def keep_narrow(self, widths: NDArray[np.int_]) -> None:
        """End the hidden units of each replicate beyond its width: they say nothing, and get no gradient."""
        beyond = np.arange(self.values["bias"].shape[-1]) >= widths[:, None, None, None]
        for layer in range(self.depth):
            self.values[f"weight_{layer}"] *= ~beyond & ~beyond.swapaxes(2, 3)
            self.values[f"bias_{layer}"] *= ~beyond
        self.values["readout"] *= ~beyond.swapaxes(2, 3)

    def standardised_residuals(self, features: Array, target: Array) -> tuple[Array, Array]:
        """(R, m, n) each: what the networks leave of a target in deviations of its noise, and these deviations."""
        mean = self._forward(features)[1][..., 0]
        deviation = np.exp(0.5 * np.broadcast_to(self.values["log_variance"][..., 0], mean.shape))
        return (target - mean) / deviation, deviation

    def _forward(self, features: Array) -> tuple[list[Array], Array]:
        values = self.values
        outputs = [self.act(features + values["bias"])]
        for layer in range(self.depth):
            outputs.append(self.act(outputs[-1] @ values[f"weight_{layer}"] + values[f"bias_{layer}"]))
        return outputs, outputs[-1] @ values["readout"] + values["offset"]

    def predict(self, features: Array) -> Array:
        """(R, m, n): the expected attribute (for a binary one, its probability)."""
        mean = self._forward(features)[1][..., 0]
        return np.asarray(np.where(self.binary[:, None], _sigmoid(mean), mean) if self.binary.any() else mean)

    def losses(self, features: Array, target: Array) -> Array:
        """(R, m): the negative log-likelihood, mean over the rows, without its constant."""
        return self._loss(self._forward(features)[1], target[..., None])[0]

    def losses_without_causes(self, target: Array) -> Array:
        """(R, m): the loss of standardised targets at their mean, and of binary ones at their share of ones."""
        share = np.clip(target.mean(2), 1e-6, 1 - 1e-6)
        entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
        return np.asarray(np.where(self.binary, entropy, SQUARES.get(self.likelihood, 0.5) * np.square(target).mean(2)))

    def step(self, features: Array, target: Array, rate: float, decay: float = 0.0) -> DecoderStep:
        """One step of gradient descent on a batch; `features` are (R, m, n, h), `target` is (R, m, n)."""
        values = self.values
        outputs, mean = self._forward(features)
        losses, gradients, back = self._head(outputs[-1], mean, target[..., None])
        for layer in reversed(range(self.depth)):
            back = back * self.slope(outputs[layer + 1])
            gradients[f"bias_{layer}"] = back.sum(2, keepdims=True)
            gradients[f"weight_{layer}"] = outputs[layer].swapaxes(2, 3) @ back
            back = back @ values[f"weight_{layer}"].swapaxes(2, 3)
        back = back * self.slope(outputs[0])
        gradients["bias"] = back.sum(2, keepdims=True)
        pace = self._pace()
        if pace is not None:
            back = back * pace
            gradients = {name: gradient * pace for name, gradient in gradients.items()}
        for name, gradient in gradients.items():
            if decay and name.startswith(("weight", "readout")):
                gradient = gradient + decay * values[name]
            values[name] -= rate * gradient
        return DecoderStep(losses, back)

    def _pace(self) -> Array | None:
        """(R, m, 1, 1): how many times as fast each attribute learns. None: all as the rate says.

        The gradient of a likelihood grows as noise shrinks. So attributes with much noise learn slowly, and their
        causes are pulled to nothing before they are seen.
        """
        if np.all(np.asarray(self.noisy_rate) == 1):
            return None
        pace = np.clip(self.noisy_rate * np.exp(0.5 * self.values["log_variance"]), 1.0, self.noisy_rate)
        return np.asarray(np.where(self.binary[:, None, None], 1.0, pace))

    def observe(self, rows: Array) -> None:
        """Take note of what the training rows (R, n, m) of the targets say before the first step."""

    def beside(self, others: Sequence[Self]) -> Self:
        """These decoders with the replicates of others after their own, as one."""
        made = copy(self)
        made.values = {
            name: np.concatenate([value, *(one.values[name] for one in others)]) for name, value in self.values.items()
        }
        return made

    def chosen(self, replicates: Sequence[int]) -> Self:
        """Some of the replicates alone."""
        made = copy(self)
        made.values = {name: value[list(replicates)] for name, value in self.values.items()}
        return made

    def _head(self, last: Array, mean: Array, target: Array) -> tuple[Array, dict[str, Array], Array]:
        """The losses, the gradients of all that follows the last layer, and the gradient of its output."""
        losses, error, log_variance = self._loss(mean, target)
        gradients = {"log_variance": log_variance, "offset": error.sum(2, keepdims=True)}
        gradients["readout"] = last.swapaxes(2, 3) @ error
        return losses, gradients, error * self.values["readout"].swapaxes(2, 3)

    def _loss(self, mean: Array, target: Array) -> tuple[Array, Array, Array]:
        """The losses, and their gradients by the mean and by the log-variance."""
        rows = mean.shape[2]
        error = mean - target
        if self.likelihood in SQUARES:
            times, still = SQUARES[self.likelihood], np.zeros_like(self.values["log_variance"])
            return times * (error * error).mean(2)[..., 0], 2 * times * error / rows, still
        s = self.values["log_variance"]
        precision = np.exp(-s)
        scaled = error * precision
        squares = (error * scaled).mean(2, keepdims=True)
        losses, by_mean, by_variance = 0.5 * (squares + s), scaled / rows, 0.5 * (1 - squares)
        if self.binary.any():
            chosen = self.binary[:, None, None]
            odds = (np.logaddexp(0, mean) - target * mean).mean(2, keepdims=True)
            losses = np.where(chosen, odds, losses)
            by_mean = np.where(chosen, (_sigmoid(mean) - target) / rows, by_mean)
            by_variance = np.where(chosen, 0.0, by_variance)
        return losses[..., 0, 0], by_mean, by_variance


LEAST = 0.0025
"""The least variance of a standardised attribute's noise: a row may not be so sure as to outweigh all others."""
FAR = 5.0
"""Beyond so many deviations an error counts by its size and not its square (Huber), or one row would move too much."""
EQUAL = 1e-9
"""Values as close as this are one."""


def rounding_variance(rows: Array) -> Array:
    """(R, d): the variance that rounding alone gives the columns of rows (R, n, d), s²/12 where values lie s apart.

    Between counts there is nothing, and a density could grow without bound on them. Of columns that are not rounded the
    nearest two values say that it is next to nothing.
    """
    gaps = np.diff(np.sort(rows, axis=1), axis=1)
    step = np.where(gaps > EQUAL, gaps, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(np.where(np.isfinite(step), step, 0.0) ** 2 / 12)


class HeteroscedasticDecoders(Decoders):
    """Decoders whose log-variance is a read-out of the last layer, constant before the first step."""

    def __init__(self, replicates: int, targets: int, width: int, *more: Any) -> None:
        super().__init__(replicates, targets, width, *more)
        self.values["readout_variance"] = np.zeros((replicates, targets, width, 1))
        self.least = np.full((replicates, targets, 1, 1), np.log(LEAST))

    def observe(self, rows: Array) -> None:
        self.least = np.log(np.maximum(rounding_variance(rows), LEAST))[..., None, None]

    def beside(self, others: Sequence[Self]) -> Self:
        made = super().beside(others)
        made.least = np.concatenate([self.least, *(one.least for one in others)])
        return made

    def chosen(self, replicates: Sequence[int]) -> Self:
        made = super().chosen(replicates)
        made.least = self.least[list(replicates)]
        return made

    def losses(self, features: Array, target: Array) -> Array:
        outputs, mean = self._forward(features)
        return self._likelihood(mean, self._log_variance(outputs[-1]), target[..., None])[0]

    def losses_without_causes(self, target: Array) -> Array:
        whole = super().losses_without_causes(target)
        variance = np.maximum(self.least, 0.0)[..., 0, 0]
        return np.asarray(np.where(self.binary, whole, whole * np.exp(-variance) + 0.5 * variance))

    def standardised_residuals(self, features: Array, target: Array) -> tuple[Array, Array]:
        outputs, mean = self._forward(features)
        deviation = np.exp(0.5 * np.maximum(self._log_variance(outputs[-1]), self.least))[..., 0]
        return (target - mean[..., 0]) / deviation, deviation

    def _log_variance(self, last: Array) -> Array:
        return np.asarray(last @ self.values["readout_variance"] + self.values["log_variance"])

    def _head(self, last: Array, mean: Array, target: Array) -> tuple[Array, dict[str, Array], Array]:
        values = self.values
        losses, by_mean, by_variance = self._likelihood(mean, self._log_variance(last), target)
        turned = last.swapaxes(2, 3)
        gradients = {
            "log_variance": by_variance.sum(2, keepdims=True),
            "readout_variance": turned @ by_variance,
            "offset": by_mean.sum(2, keepdims=True),
            "readout": turned @ by_mean,
        }
        back = by_mean * values["readout"].swapaxes(2, 3) + by_variance * values["readout_variance"].swapaxes(2, 3)
        return losses, gradients, back

    def _likelihood(self, mean: Array, log_variance: Array, target: Array) -> tuple[Array, Array, Array]:
        """The losses, and their gradients by each row's mean and log-variance."""
        rows = mean.shape[2]
        s = np.maximum(log_variance, self.least)
        precision = np.exp(-0.5 * s)
        error = (mean - target) * precision
        near = np.clip(error, -FAR, FAR)
        squares = near * error
        losses = squares - 0.5 * near * near + 0.5 * s
        by_mean, by_variance = near * precision / rows, 0.5 * (1 - squares) / rows
        # At the least variance only what raises it counts.
        by_variance = np.where((log_variance < self.least) & (by_variance > 0), 0.0, by_variance)
        if self.binary.any():
            chosen = self.binary[:, None, None]
            losses = np.where(chosen, np.logaddexp(0, mean) - target * mean, losses)
            by_mean = np.where(chosen, (_sigmoid(mean) - target) / rows, by_mean)
            by_variance = np.where(chosen, 0.0, by_variance)
        return losses.mean(2)[..., 0], by_mean, by_variance


def decoders_for(likelihood: Likelihood) -> type[Decoders]:
    """The decoders that have this likelihood."""
    return HeteroscedasticDecoders if likelihood == "heteroscedastic" else Decoders
