"""The protocol as published in one place and in floats: no keys, no fixed point, the same masks.

A mask is a part of a fragment after the first step, and norms of fragments are what the validator adds up. So the twin
draws all masks too, from the parties' own generators and in their order.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.engines.literal.numbers import PlainNumbers
from veracausa.discovery.engines.literal.party import MASK, LiteralParty, norms, pulled
from veracausa.discovery.engines.literal.validator import LiteralValidator, random_split, structure_gradient
from veracausa.discovery.engines.shares.plan import Plan


class LiteralTwin:
    """All parties' fragments side by side, and the copies that sources multiply by: what was encrypted last."""

    def __init__(
        self,
        plan: Plan,
        columns: Mapping[str, Array],
        allowed: Mask,
        seed: int,
        *,
        mask: float = MASK,
        fresh: bool = False,
    ) -> None:
        self.plan, self.allowed, self.fresh, self.mask = plan, allowed, fresh, mask
        none = {party: np.zeros(values.shape[1], dtype=bool) for party, values in columns.items()}
        self.parties = {
            party: LiteralParty(plan, party, values, none[party], allowed, PlainNumbers(), seed, mask=mask, fresh=fresh)
            for party, values in columns.items()
        }
        self.validator = LiteralValidator(plan, allowed, np.zeros_like(allowed), seed=seed, mask=mask)
        self.copies = {name: party.fragments.copy() for name, party in self.parties.items()}
        """By holder: its fragments as they were when they were last encrypted and sent."""
        self.features: list[dict[str, Array]] = []
        """Z_t of every step, by target."""

    @property
    def weights(self) -> Array:
        """(d, d, h): the encoders that the fragments add up to."""
        return np.asarray(sum(party.fragments for party in self.parties.values()))

    def run(self) -> Array:
        """All steps; the strengths that the validator ends with."""
        for epoch in range(self.plan.settings.epochs):
            for batch, update in self.plan.order(epoch):
                self._step(batch)
                if update:
                    self._constrain()
            self.validator.structure.end_epoch(self.validator.strengths[None], epoch)
        return self.validator.strengths

    def _step(self, batch: int) -> None:
        plan, h = self.plan, self.plan.settings.width
        rate = plan.settings.learning_rate
        total = np.zeros((len(plan.batches[batch]), plan.d, h))
        for party in self.parties.values():
            x = party.batches[batch]
            used = party.fragments[party.own] + sum(self.copies[peer][party.own] for peer in party.peers)
            total += (x @ used.reshape(party.count, -1)).reshape(total.shape)
            for _ in party.peers:
                party.noise.normal(0.0, self.mask, (len(x), plan.d * h))  # a mask of features: it cancels in the sum
        gradients = {}
        self.features.append({})
        for name, party in self.parties.items():
            x, z = party.batches[batch], total[:, party.own]
            self.features[-1][name] = z.reshape(len(x), -1)
            step = party.decoders.step(z.swapaxes(0, 1)[None], x.T[None], rate)
            gradients[name] = step.features[0].swapaxes(0, 1).reshape(len(x), -1)
            party.descend(name, name, x.T @ gradients[name])
        for name, source in self.parties.items():
            for peer in source.peers:
                kept = source.noise.normal(0.0, self.mask, (source.count, gradients[peer].shape[1]))
                whole = source.batches[batch].T @ gradients[peer]
                source.descend(name, peer, kept)
                self.parties[peer].descend(name, peer, whole - kept)
        if not self.fresh:
            for name, party in self.parties.items():
                for peer in party.peers:
                    at = plan.own(peer), party.own
                    self.copies[name][at] = party.fragments[at]

    def _constrain(self) -> None:
        validator, plan = self.validator, self.plan
        validator.strengths = np.sum([norms(party.fragments) for party in self.parties.values()], axis=0)
        gradient = structure_gradient(validator.structure, validator.strengths)
        parts = random_split(gradient, len(self.parties), validator.rng, self.mask)
        for party, part in zip(self.parties.values(), parts, strict=True):
            rate = plan.settings.learning_rate * plan.every
            party.fragments = pulled(party.fragments, part, rate) * self.allowed[..., None]
        if self.fresh:
            self.copies = {name: party.fragments.copy() for name, party in self.parties.items()}
