"""Rows and gradients that keep to their bounds, and the noise that hides any one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.fixed_point import GRADIENT_BITS, GRADIENT_LIMIT, VALUE_BITS, WEIGHT_BITS
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import BITS, Ring, Small, reduce
from veracausa.discovery.methods.vfedcd.decoders import Decoders, DecoderStep
from veracausa.discovery.privacy.accountant import Account, noise_for
from veracausa.discovery.privacy.options import Privacy
from veracausa.errors import InputError, RunError

if TYPE_CHECKING:
    from veracausa.discovery.engines.shares.plan import Plan


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

    def step(self, features: Array, target: Array, rate: float, decay: float = 0.0) -> DecoderStep:
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
        return DecoderStep(losses, back)

    def _by_variance(self, error: Array, scaled: Array) -> Array:
        """Each row's gradient of its log-variance; none where the likelihood has no variance."""
        if self.likelihood == "mse":
            return np.zeros_like(error)
        return np.where(self.binary[:, None, None], 0.0, 0.5 * (1 - error * scaled))


def _squares(values: Array) -> Array:
    return np.asarray(np.square(values).sum(-1, keepdims=True))


MOST_NOISE = 2.0**WEIGHT_BITS
"""The deviation of an increment's noise from which a fit can not last: a weight of 1 at every step."""


@dataclass(frozen=True)
class Mechanism:
    """Bounds and noise of one release, in the units of a gradient that is summed, not averaged, over its batch.

    A row's gradient of the network of target j is x ⊗ g_j for the encoder, and the rest for its decoder. The target
    knows g_j and bounds ‖x‖ by what every party keeps to; so it can keep the whole below `clip` without seeing x. All
    targets together get at most √d times that from a row.
    """

    clip: float
    row: float
    """The bound of ‖x‖, over all attributes."""
    attributes: int
    width: int
    noise: float
    """In units of `contribution`."""
    unit: float = 0.0
    """What a gradient's integer 1 stands for; 0: no integers."""

    @property
    def most_units(self) -> float:
        """The most that ‖g_j‖ can be, in integers."""
        return self.clip / math.hypot(self.row, 1.0) / self.unit

    @property
    def rounded_units(self) -> float:
        """The most that ‖g_j‖ is let be after its entries were rounded at random."""
        return math.sqrt(self.most_units**2 + self._rounding)

    @property
    def _rounding(self) -> float:
        # At least 39 % of all roundings keep to this (Kairouz, Liu and Steinke, 2021); others are drawn again.
        return self.width / 4 + self.most_units + math.sqrt(self.width) / 2

    @property
    def contribution(self) -> float:
        """The most that one row adds to all gradients together, as a norm."""
        rounding = self._rounding * self.unit**2 if self.unit else 0.0
        return math.sqrt(self.attributes * (self.clip**2 + self.row**2 * rounding))

    @property
    def deviation(self) -> float:
        """σ of the noise on every entry of the summed gradient."""
        return self.noise * self.contribution

    @property
    def increment_deviation(self) -> float:
        """The same for an increment Xᵀ·G of integers."""
        return self.deviation * 2.0**VALUE_BITS / self.unit


def make_mechanism(privacy: Privacy, attributes: int, width: int, releases: int, unit: float = 0.0) -> Mechanism:
    """What a run of so many epochs needs."""
    noise = noise_for(privacy.epsilon, privacy.delta, releases)
    made = Mechanism(privacy.clip, privacy.values * math.sqrt(attributes), attributes, width, noise, unit)
    if unit and (made.rounded_units > GRADIENT_LIMIT or made.increment_deviation > MOST_NOISE):
        raise InputError(
            f"privacy: epsilon {privacy.epsilon:g} with clip {privacy.clip:g} over {releases} epochs asks for steps or "
            "noise that shares can not hold; take a smaller clip, larger batches or a lower rate"
        )
    return made


def mechanism_of(plan: Plan, privacy: Privacy) -> Mechanism:
    """That of a federation: gradients are averaged over a batch, times the rate, and integers."""
    unit = len(plan.batches[0]) / (plan.settings.learning_rate * 2.0**GRADIENT_BITS)
    return make_mechanism(privacy, plan.d, plan.settings.width, plan.epochs, unit)


NOT_COVERED = (
    "the features that a target opens (each party sees them of every row)",
    "means and deviations that columns were standardised by (they count as public)",
    "other runs on the same rows, whose budgets add up",
)


SEEDED = "a simulation: the noise follows from a seed, and who has it can take it off again"


def statement(privacy: Privacy, releases: int, planned: int, seeded: bool = False) -> dict[str, object]:
    """What can be said of a run with so many releases of each row, of which so many were planned."""
    account = Account(noise_for(privacy.epsilon, privacy.delta, planned), releases, privacy.delta)
    return {
        "mechanism": "gaussian noise on clipped gradients",
        "guarantee": SEEDED if seeded else "differential privacy",
        "epsilon": account.epsilon,
        "delta": account.delta,
        "mu": account.mu,
        "rho": account.rho,
        "noise": account.noise,
        "releases": releases,
        "neighbours": "one row of all parties replaced",
        "against": "the validator and readers of the graph, none of whom works with a party",
        "not_covered": list(NOT_COVERED),
    }


def said(stated: Mapping[str, object]) -> str:
    """The statement as a sentence; noise without an ε only says so."""
    if "epsilon" not in stated:
        return f"{stated['mechanism']}: {stated['guarantee']}"
    return (
        f"{stated['guarantee']}: epsilon {stated['epsilon']:.4g} at delta {stated['delta']:.3g} for one row, "
        f"{stated['releases']} releases, against {stated['against']}; not covered: {'; '.join(NOT_COVERED)}"
    )


_PRECISION = 53


def uniform(source: Masks, *shape: int) -> Array:
    """Between 0 and 1, both left out, in steps of 2⁻⁵³."""
    words = source.uniform(*shape) >> (BITS - _PRECISION)
    return np.asarray((words + 0.5) / 2.0**_PRECISION)


def normal(source: Masks, *shape: int) -> Array:
    """Normal, by Box and Muller; steps of 2⁻⁵³ end its tails at 8.6 deviations."""
    count = int(np.prod(shape))
    half = -(-count // 2)
    radius, angle = uniform(source, 2, half)
    radius, angle = np.sqrt(-2 * np.log(radius)), 2 * np.pi * angle
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)


def rounded_normal(source: Masks, deviation: float, *shape: int) -> Ring:
    """round(N(0, σ²)) as elements of the field.

    Added to integers it is the rounding of integers + N(0, σ²): what a Gaussian mechanism guarantees holds unchanged.
    """
    return reduce(np.rint(deviation * normal(source, *shape)).astype(np.int64))


"""Of a block's strength."""
