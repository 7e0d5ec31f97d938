"""Training with a guarantee: as a party between others, and in one place to see what a budget costs in accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import ring
from veracausa.crypto.fixed_point import VALUE_BITS, WEIGHT_BITS
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import Ring
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.engines.shares.party import AttributeParty
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.methods.vfedcd.decoders import Decoders, Likelihood
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.mechanism import (
    PrivateDecoders,
    clip_rows,
    encode_clipped,
    make_mechanism,
    mechanism_of,
    normal,
    rounded_normal,
)
from veracausa.discovery.privacy.options import Privacy
from veracausa.wire.link import Link


class PrivateParty(AttributeParty):
    """The same messages; what the validator opens has noise in it that it does not know.

    The noise is added to shares before anything of them is opened. The target draws it: of the rows that it hides, the
    target sees the features anyway. It sends no losses, which would be one more release.
    """

    def __init__(self, plan: Plan, name: str, values: Array, binary: Mask, *more: Any) -> None:
        assert plan.privacy is not None
        super().__init__(plan, name, clip_rows(values, plan.privacy.values), binary, *more)
        self.mechanism = mechanism_of(plan, plan.privacy)
        self.source = self.draws.masks("noise", 0)
        self._source_of = 0

    def _decoders(self, likelihood: Likelihood, *shape_and_kind: Any) -> Decoders:
        return PrivateDecoders(*shape_and_kind, mechanism=self.mechanism, source=self.source)

    def rounding(self, epochs: Sequence[int], steps: int) -> Any:
        """The epoch's generator: what is too large after rounding is rounded again."""
        return [self.draws.generator("rounding", *epochs)] * steps

    def step(self, link: Link, batches: tuple[int, ...], rounding: Any) -> None:
        if self._source_of != self.epoch:
            self._source_of, self.source = self.epoch, self.draws.masks("noise", self.epoch)
            self.decoders.source = self.source  # type: ignore[attr-defined]
        settings, holder = self.plan.settings, self.holder
        foreign = holder.features(link, batches)
        x = self.training[list(batches)]
        turned = x.swapaxes(1, 2)
        decay = 2 * settings.sparsity_weight if settings.sparsity == "l2" else 0.0
        step = self.decoders.step(self._features(foreign, x, self.inner), turned, settings.learning_rate, decay)
        gradient = step.features[0].swapaxes(0, 1).reshape(foreign.shape[1:])
        steps = encode_clipped(-settings.learning_rate * gradient, self.mechanism, rounding)
        holder.descend(batches, steps[None])
        holder.into.grow(self._noise(*holder.into.fresh.shape))
        if self.plan.privacy is not None and self.plan.privacy.noise_from == "both":
            holder.out.grow(self._noise(*holder.out.fresh.shape))
        inner = ring.small_matmul(turned * 2.0**VALUE_BITS, steps[None]).reshape(self.inner.shape)
        inner += ring.centred(self._noise(*inner.shape))
        self.inner += self.inner_allowed * inner / 2.0**WEIGHT_BITS

    def _noise(self, *shape: int) -> Ring:
        return rounded_normal(self.source, self.mechanism.increment_deviation, *shape)

    def _factors(self, link: Link, at: Sequence[int]) -> tuple[Array, Array]:
        self.loss[:] = 0.0
        return super()._factors(link, at)


class PrivateCentralizedVFedCD(CentralizedVFedCD):
    """Clipped gradients with the noise of the federation, but no integers. Rows must be clipped before."""

    def __init__(self, settings: Settings, d: int, rng: np.random.Generator, privacy: Privacy, source: Masks) -> None:
        super().__init__(settings, d, rng)
        releases = settings.epochs + settings.refit_epochs
        self.mechanism = make_mechanism(privacy, d, settings.width, releases)
        self.source = source
        kind = (settings.depth, settings.activation, np.zeros(d, dtype=bool), settings.likelihood, rng)
        self.decoders = PrivateDecoders(1, d, settings.width, *kind, mechanism=self.mechanism, source=source)

    def step(self, x: Array) -> Array:
        losses = super()._step(x)
        moved = self.settings.learning_rate / x.shape[1] * self.mechanism.deviation
        self.weights -= moved * self.structure.allowed[..., None] * normal(self.source, *self.weights.shape)
        return losses
