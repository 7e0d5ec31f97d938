"""Rows and gradients that keep to their bounds, so that noise can hide any one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.draws import Masks
from veracausa.crypto.fixed_point import GRADIENT_BITS, VALUE_BITS
from veracausa.crypto.ring import Small
from veracausa.discovery.decoders import Decoders, Step
from veracausa.discovery.privacy.mechanism import Mechanism
from veracausa.discovery.privacy.noise import normal
from veracausa.errors import RunError

Array = NDArray[np.float64]

TRIES = 60


def clip_rows(values: Array, limit: float) -> Array:
    """Rows (n, columns) of a root mean square of at most `limit`, cut towards 0 to what shares hold exactly."""
    size = np.sqrt(np.square(values).mean(1, keepdims=True))
    shorter = values * np.minimum(1.0, limit / np.maximum(size, 1e-300))
    return np.asarray(np.trunc(shorter * 2.0**VALUE_BITS) / 2.0**VALUE_BITS)


def encode_clipped(steps: Array, mechanism: Mechanism, rng: np.random.Generator) -> Small:
    """Steps (n, targets·h) as integers, rounded at random, of a norm that the mechanism allows, target by target."""
    shape = steps.shape
    if not np.isfinite(steps).all():
        raise RunError("the fit diverged: noise or steps are too large; lower its rate, or take larger batches")
    scaled = (steps * 2.0**GRADIENT_BITS).reshape(-1, mechanism.width)
    encoded = np.floor(scaled + rng.random(scaled.shape))
    for _ in range(TRIES):
        beyond = np.sqrt(np.square(encoded).sum(1)) > mechanism.rounded_units
        if not beyond.any():
            break
        encoded[beyond] = np.floor(scaled[beyond] + rng.random((int(beyond.sum()), mechanism.width)))
    else:
        encoded[beyond] = np.trunc(scaled[beyond])
    return encoded.reshape(shape)


class PrivateDecoders(Decoders):
    """Decoders that no row moves by more than the clip, with noise on what they learn.

    They are not released, but the gradients of all later rows pass through them: without noise on them a row would
    change every later increment, whatever was clipped.
    """

    def __init__(self, *shape_and_kind: Any, mechanism: Mechanism, source: Masks) -> None:
        super().__init__(*shape_and_kind)
        self.mechanism, self.source = mechanism, source

    def step(self, features: Array, target: Array, rate: float, decay: float = 0.0) -> Step:
        """One step; the gradient of the features is clipped and has no noise yet."""
        values, rows = self.values, features.shape[2]
        outputs, mean = self._forward(features)
        losses, error, _ = self._loss(mean, target[..., None])
        by_variance = self._by_variance(mean - target[..., None], error * rows) / rows
        inner: dict[int, Array] = {}
        back = error * values["readout"].swapaxes(2, 3)
        for layer in reversed(range(self.depth)):
            inner[layer] = back * self.slope(outputs[layer + 1])
            back = inner[layer] @ values[f"weight_{layer}"].swapaxes(2, 3)
        back = back * self.slope(outputs[0])

        squares = np.square(by_variance) + np.square(error) * (1 + _squares(outputs[-1]))
        squares += _squares(back) * (1 + self.mechanism.row**2)
        for layer, gradient in inner.items():
            squares += _squares(gradient) * (1 + _squares(outputs[layer]))
        scale = np.minimum(1.0, self.mechanism.clip / rows / np.maximum(np.sqrt(squares), 1e-300))
        error, by_variance, back = error * scale, by_variance * scale, back * scale

        gradients = {"log_variance": by_variance.sum(2, keepdims=True), "offset": error.sum(2, keepdims=True)}
        gradients["readout"] = outputs[-1].swapaxes(2, 3) @ error
        for layer, gradient in inner.items():
            gradients[f"bias_{layer}"] = (gradient * scale).sum(2, keepdims=True)
            gradients[f"weight_{layer}"] = outputs[layer].swapaxes(2, 3) @ (gradient * scale)
        gradients["bias"] = back.sum(2, keepdims=True)
        for name, gradient in gradients.items():
            gradient = gradient + self.mechanism.deviation / rows * normal(self.source, *gradient.shape)
            if decay and name.startswith(("weight", "readout")):
                gradient = gradient + decay * values[name]
            values[name] -= rate * gradient
        return Step(losses, back)

    def _by_variance(self, error: Array, scaled: Array) -> Array:
        """Each row's gradient of its log-variance; none where the likelihood has no variance."""
        if self.likelihood == "mse":
            return np.zeros_like(error)
        return np.where(self.binary[:, None, None], 0.0, 0.5 * (1 - error * scaled))


def _squares(values: Array) -> Array:
    return np.asarray(np.square(values).sum(-1, keepdims=True))
