"""A party of the protocol as published: algorithms 1 to 6 of the paper, its side of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto.agreement import tensor
from veracausa.crypto.randomness import make_draws
from veracausa.discovery.engines.literal import numbers as fixed
from veracausa.discovery.engines.literal import protocol
from veracausa.discovery.engines.literal.numbers import COLUMN_BITS, PRODUCT_BITS, WEIGHT_BITS, Integers, Numbers
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.methods.vfedcd.decoders import decoders_for
from veracausa.discovery.privacy import options as output
from veracausa.errors import WireError
from veracausa.wire.link import Link
from veracausa.wire.message import Message

MASK = 1.0
"""The deviation of HE2SS's float masks: algorithm 1 says `random_noise()` and no more."""
TINY = 1e-12
See = Callable[[str, Mapping[str, Any]], None]
"""Is told what a party sees in clear, by the name of what it is: for attacks."""


def first_fragments(rng: np.random.Generator, d: int, width: int, allowed: Mask) -> Array:
    """(d, d, h): one party's fragments of all encoders, near zero; no attribute is a source of itself."""
    drawn: Array = rng.uniform(-1, 1, (d, d, width)) / (d * np.sqrt(width)) * allowed[..., None]
    return drawn


def norms(fragments: Array) -> Array:
    """graph(·) of appendix D.1, of fragments (d, d, h)."""
    return np.asarray(np.sqrt(np.square(fragments).sum(-1)))


def pulled(fragments: Array, gradient: Array, rate: float) -> Array:
    """Fragments after a step along a gradient by their norms: through graph(·), so each along its own direction."""
    size = norms(fragments)
    direction = np.where(size[..., None] > TINY, fragments / np.maximum(size, TINY)[..., None], 0.0)
    return np.asarray(fragments - rate * gradient[..., None] * direction)


class LiteralParty:
    """`fragments` (d, d, h) are p_k.f_it of all sources i and targets t; `stored` are the others' fragments of the own
    encoders, under the others' keys."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        values: Array,
        binary: Mask,
        allowed: Mask,
        numbers: Numbers,
        seed: int | None,
        *,
        mask: float = MASK,
        fresh: bool = False,
        see: See | None = None,
    ) -> None:
        """`fresh`: all fragments are encrypted anew after every change, and not only those that algorithm 4 names."""
        self.plan, self.name, self.allowed, self.numbers = plan, name, allowed, numbers
        self.mask, self.fresh, self.see = mask, fresh, see or (lambda what, seen: None)
        settings, self.own, self.peers = plan.settings, plan.own(name), plan.peers(name)
        self.count, self.h = plan.count(name), settings.width
        draws = make_draws(seed, name)
        self.noise = draws.generator("literal masks")
        self.fragments = first_fragments(draws.generator("literal fragments"), plan.d, self.h, allowed)
        self.decoders = decoders_for(settings.likelihood)(
            1, self.count, self.h, settings.depth, settings.activation, binary & settings.bernoulli,
            settings.likelihood, draws.generator("decoders"),
        )  # fmt: skip
        self.batches = [np.ascontiguousarray(values[rows]) for rows in plan.batches]
        self.decoders.observe(np.concatenate(self.batches)[None])
        self.fixed = [fixed.encoded(x, COLUMN_BITS) for x in self.batches]
        self.stored: dict[str, Integers] = {}
        """By owner of the key: (own attributes, d · h)."""
        self.sent: dict[str, Array] = {}
        """By source: the own fragments of its encoders as they were encrypted last, (its attributes, d, h)."""
        self.step, self.loss = 0, 0.0
        self.known: Array
        bits = settings.key_bits
        self.encoders, self.remaining = protocol.encoders(plan, bits), protocol.remaining(plan, bits)
        self.gradient = protocol.gradient(plan, bits)
        self.part = protocol.feature_part(plan)
        self.structure, self.split = protocol.structure(plan), protocol.split(plan)
        self.result = output.result_kind("all", plan.d, self.count)

    def run(self, link: Link) -> None:
        """Take part in the whole training."""
        for peer in self.peers:
            link.declare(protocol.KEY, self.encoders, self.remaining, self.gradient, self.part, peer=peer)
        link.declare(self.structure, self.split, self.result, peer=VALIDATOR)
        self.initialise(link)
        for epoch in range(self.plan.settings.epochs):
            for batch, update in self.plan.order(epoch):
                self.step += 1
                self.backward(link, batch, self.forward(link, batch))
                if update:
                    self.constrain(link)
        told = link.receive(VALIDATOR, self.result, self.step + 1).tensors
        self.known = output.received(told, self.plan.d, self.own)

    def initialise(self, link: Link) -> None:
        """Algorithm 2: keys, and everybody's fragment of the own encoders under its own key."""
        key = {"key": tensor(self.numbers.key())}
        for peer in self.peers:
            link.send(peer, protocol.KEY, 0, key)
        for peer in self.peers:
            self.numbers.meet(peer, link.receive(peer, protocol.KEY, 0).tensors["key"].numpy())
        self._exchange_all(link)

    def forward(self, link: Link, batch: int) -> Array:
        """Algorithm 3 for all targets at once: Z_t of the own attributes, (n, own · h), t's own part among it."""
        x, n = self.batches[batch], len(self.batches[batch])
        shape = n, self.plan.d * self.h
        z = x @ self.fragments[self.own].reshape(self.count, -1)
        for peer in self.peers:
            z = z + self._hide(link, peer, self.fixed[batch], self.stored[peer], shape)
        for peer in self.peers:
            left = self._reveal(link, peer, shape)
            self.see("remaining", {"from": peer, "batch": batch, "values": left, "fragments": self.sent[peer]})
            z = z + left
        parts = z.reshape(n, self.plan.d, self.h)
        for peer in self.peers:
            mine = parts[:, self.plan.own(peer)].reshape(n, -1)
            link.send(peer, self.part, self.step, {"z": tensor(np.ascontiguousarray(mine))})
        total = parts[:, self.own].reshape(n, -1)
        for peer in self.peers:
            message = link.receive(peer, self.part, self.step)
            part = _shaped(message, "z", total.shape)
            self.see("part", {"from": peer, "batch": batch, "values": part})
            total = total + part
        self.see("features", {"batch": batch, "values": total})
        return np.asarray(total)

    def backward(self, link: Link, batch: int, opened: Array) -> None:
        """Algorithm 4, as the target of the own attributes and as the source of all others."""
        settings, x = self.plan.settings, self.batches[batch]
        features = opened.reshape(len(x), self.count, self.h).swapaxes(0, 1)[None]
        step = self.decoders.step(features, x.T[None], settings.learning_rate)
        self.loss += float(step.losses.sum())
        gradient = step.features[0].swapaxes(0, 1).reshape(len(x), -1)
        self.descend(self.name, self.name, x.T @ gradient)
        encrypted = self.numbers.encrypt(fixed.encoded(gradient, WEIGHT_BITS))
        for peer in self.peers:
            link.send(peer, self.gradient, self.step, {"gradient": tensor(encrypted)})
        for peer in self.peers:
            data = link.receive(peer, self.gradient, self.step).tensors["gradient"].numpy()
            shape = len(x), self.plan.count(peer) * self.h
            numbers = np.array(self.numbers.read(peer, data, shape[0] * shape[1]), dtype=object).reshape(shape)
            kept = self._hide(link, peer, self.fixed[batch].T, numbers, (self.count, shape[1]))
            self.descend(self.name, peer, kept)
        for peer in self.peers:
            left = self._reveal(link, peer, (self.plan.count(peer), self.count * self.h))
            self.see("gradient", {"from": peer, "batch": batch, "values": left, "known": gradient})
            self.descend(peer, self.name, left)
        if not self.fresh:
            self._exchange_own(link)

    def constrain(self, link: Link) -> None:
        """Algorithms 5 and 6: norms of the own fragments go up, a part of the gradient comes back, and is chunked."""
        sent = {"norms": tensor(norms(self.fragments))}
        link.send(VALIDATOR, self.structure, self.step, sent, loss=self.loss)
        self.loss = 0.0
        gradient = link.receive(VALIDATOR, self.split, self.step).tensors["gradient"].numpy()
        self.see("split", {"values": gradient})
        # chunk(): row i of the gradient is for the encoders of source i, whose fragments all parties hold.
        rate = self.plan.settings.learning_rate * self.plan.every
        self.fragments = pulled(self.fragments, gradient, rate) * self.allowed[..., None]
        if self.fresh:
            self._exchange_all(link)

    def _hide(self, link: Link, owner: str, left: Integers, right: Integers, shape: tuple[int, int]) -> Array:
        """HE2SS where the product is held: a float mask, kept, and the product less it, sent to the key's owner."""
        masks = fixed.encoded(self.noise.normal(0.0, self.mask, shape), PRODUCT_BITS)
        masked = self.numbers.masked_product(owner, left, right, masks)
        link.send(owner, self.remaining, self.step, {"masked": tensor(masked)})
        return fixed.decoded(masks.ravel().tolist(), PRODUCT_BITS, shape)

    def _reveal(self, link: Link, holder: str, shape: tuple[int, int]) -> Array:
        """HE2SS where the key is."""
        data = link.receive(holder, self.remaining, self.step).tensors["masked"].numpy()
        return fixed.decoded(self.numbers.decrypt(data, shape[0] * shape[1]), PRODUCT_BITS, shape)

    def descend(self, source: str, target: str, gradient: Array) -> None:
        """One step of the own fragment of an encoder along its gradient, (source, target · h)."""
        at = self.plan.own(source), self.plan.own(target)
        moved = self.plan.settings.learning_rate * gradient.reshape(self.fragments[at].shape)
        self.fragments[at] -= moved * self.allowed[at][..., None]

    def _exchange_all(self, link: Link) -> None:
        """Algorithm 2, line 8: p_k.f_j· under the own key to party j."""
        for peer in self.peers:
            own = self.fragments[self.plan.own(peer)].copy()
            self.sent[peer] = own
            encrypted = self.numbers.encrypt(fixed.encoded(own.reshape(len(own), -1), WEIGHT_BITS))
            link.send(peer, self.encoders, self.step, {"encoders": tensor(encrypted)})
        shape = self.count, self.plan.d * self.h
        for peer in self.peers:
            self.stored[peer] = self._received(link, peer, shape)

    def _exchange_own(self, link: Link) -> None:
        """Algorithm 4, lines 21 and 22: p_t.f_kt alone. No other fragment of a source's encoders is sent anew."""
        for peer in self.peers:
            own = self.fragments[self.plan.own(peer), self.own]
            self.sent[peer][:, self.own] = own
            encrypted = self.numbers.encrypt(fixed.encoded(own.reshape(len(own), -1), WEIGHT_BITS))
            link.send(peer, self.encoders, self.step, {"encoders": tensor(encrypted)})
        for peer in self.peers:
            at = self.plan.own(peer)
            columns = slice(at.start * self.h, at.stop * self.h)
            self.stored[peer][:, columns] = self._received(link, peer, (self.count, self.plan.count(peer) * self.h))

    def _received(self, link: Link, peer: str, shape: tuple[int, int]) -> Integers:
        data = link.receive(peer, self.encoders, self.step).tensors["encoders"].numpy()
        return np.array(self.numbers.read(peer, data, shape[0] * shape[1]), dtype=object).reshape(shape)


def _shaped(message: Message, name: str, shape: tuple[int, ...]) -> Array:
    numbers: Array = message.tensors[name].numpy()
    if numbers.shape != shape:
        raise WireError(f"{message.kind}.{name}", f"has shape {numbers.shape}, {shape} is expected")
    return numbers
