"""The published way to share: every party holds a fragment of every block. For comparison only.

A step changes the fragments of a block's source and target alone; those of all others only add work, about one party's
more for each of them, and messages. They protect nothing more: who would have to be kept from a block's weights are its
source and its target. And all parties learn the factors of all blocks, because all have something to scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.crypto import ring
from veracausa.crypto.ring import Ring
from veracausa.crypto.shares import SharedWeights
from veracausa.crypto.triples import OneTimePool, spans
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.engines.shares.protocol import elements, tensor
from veracausa.discovery.engines.shares.share_engine import ShareEngine, first_weights, pooled
from veracausa.discovery.engines.shares.triples import TripleBatch
from veracausa.wire.link import Link


class KWayShareEngine(ShareEngine):
    """One party's fragments of all blocks between attributes of different parties, ordered by source, then target."""

    def __init__(self, plan: Plan, *given: Any) -> None:
        super().__init__(plan, *given)
        self.sources, self.targets = np.nonzero(plan.between)
        starts = np.cumsum([0, *(size * (plan.d - size) for size in plan.sizes)])
        self.of = {party: slice(starts[at], starts[at + 1]) for at, party in enumerate(plan.parties)}
        """Where the blocks out of a party's attributes lie."""
        self.blocks_into = {
            peer: np.flatnonzero(
                np.isin(self.sources, _range(plan.own(peer))) & np.isin(self.targets, _range(self.own))
            )
            for peer in self.peers
        }
        self.first = plan.parties[0] == self.name

    def use(self, made: Mapping[int, TripleBatch], orders: Sequence[Sequence[int]] | None = None) -> None:
        (one,) = made.values()
        needs, peers, target, source = one.needs, self.peers, one.target, one.source
        forward, backward = [], []
        for at, rows in enumerate(spans([len(self.batches[batch]) for batch in needs.forward])):
            kept = {peer: target[peer].features[rows] for peer in peers}
            for_target = {
                party: ring.reduce(
                    sum((kept[peer][:, self._part(peer, party)] for peer in peers if peer != party), np.array(0))
                )
                for party in self.plan.parties
            }
            opened = ring.reduce(np.sum([source[peer].features[rows] for peer in peers], axis=0))
            forward.append(({peer: target[peer].weight_masks[at] for peer in peers}, for_target, opened))
        for at, rows in enumerate(spans([len(self.batches[batch]) for batch in needs.backward])):
            masks = np.stack([target[peer].gradient_masks[rows] for peer in peers])
            halves = np.concatenate([source[peer].increments[at] for peer in peers], axis=1)
            backward.append((masks, {peer: target[peer].increments[at] for peer in peers}, halves))
        self._forward = OneTimePool("forward", needs.forward, forward)
        self._backward = OneTimePool("backward", needs.backward, backward)
        squares = list(zip(one.square_masks, one.squares, strict=True))
        self._squares = OneTimePool("norm", [0] * len(squares), squares)

    def share_first_weights(self, link: Link, allowed: Mask, searches: Sequence[int] = (0,)) -> None:
        """The source draws, and all others get uniform fragments."""
        (search,) = searches
        self.exchange = protocol.first_exchange(search)
        masks = self.draws.masks("shares", search)
        own = ring.reduce(first_weights(self.plan, self.name, allowed, masks))
        kinds = {peer: protocol.first_share(self.plan, self.name, peer) for peer in self.peers}
        for peer, kind in kinds.items():
            given = masks.uniform(*own.shape)
            own = ring.subtract(own, given)
            link.send(peer, kind, self.step, {"share": tensor(given.reshape(-1))})
        fragments = np.zeros((len(self.sources), self.h), dtype=np.int64)
        fragments[self.of[self.name]] = own.reshape(-1, self.h)
        for peer, kind in kinds.items():
            at = self.of[peer]
            message = link.receive(peer, kind, self.step)
            fragments[at] = elements(message, "share", at.stop - at.start, self.h)
        shares = SharedWeights(fragments)
        shares.allowed = allowed[self.sources, self.targets]
        self._hold(shares, 1)

    def share_pads(self, link: Link) -> None:
        """Not needed: an answer holds masks of all parties but its target, so that only the sum says something."""

    def _hold(self, shares: SharedWeights, searches: int) -> None:
        self.shares, self.searches = shares, searches

    def keep(self, at: Sequence[int]) -> None:
        """There is one search at a time."""

    def features(
        self, link: Link, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None = None, at: int | None = None
    ) -> Array:
        return pooled(self.opened(link, batches, graph))

    def opened(
        self, link: Link, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None = None, at: int | None = None
    ) -> Ring:
        """(peers, 1, n, own·h), of which only the sum over all peers says something."""
        (batch,) = batches
        masks, kept, opened = self._forward.take(batch)
        forward = self._of_graph(graph)
        hidden = {
            peer: ring.subtract(forward[self.of[peer]].reshape(self.counts[peer], -1), masks[peer])
            for peer in self.peers
        }
        asked = self._exchange(link, {peer: {"weights": part} for peer, part in hidden.items()})
        weights = self._of_graph(graph)[self.of[self.name]].reshape(self.count, -1)
        for message in asked.values():
            weights = weights + elements(message, "weights", *weights.shape)
        answers = ring.matmul(self.batches[batch], ring.reduce(weights), opened)
        answered = {peer: ring.add(answers[:, self._part(self.name, peer)], kept[peer]) for peer in self.peers}
        parts = {peer: self._guarded(peer, answer) for peer, answer in answered.items()}
        got = self._answer(link, "features", parts)
        mine = kept[self.name]
        received = np.stack([elements(message, "features", *mine.shape) for message in got.values()])
        received[0] = ring.add(received[0], mine)
        return np.expand_dims(received, 1)

    def descend(self, batches: tuple[int, ...], steps: Array) -> None:
        (batch,) = batches
        masks, kept, half = self._backward.take(batch)
        hidden = ring.reduce(steps.astype(np.int64) - np.expand_dims(masks, 1))
        self.pending = self._rows(batches), hidden, half[None]
        for peer, increment in kept.items():
            self.shares.grow(increment.reshape(-1, self.h), self.blocks_into[peer])

    def _grow_out(self, increment: Ring) -> None:
        self.shares.grow(increment.reshape(-1, self.h), self.of[self.name])

    def norms(self, link: Link, at: Sequence[int]) -> tuple[Ring, Ring]:
        """This party's shares of the squared norms of all blocks, and nothing else."""
        masks, squares = self._squares.take(0)
        self._exchange(link, {peer: {} for peer in self.peers})
        opened = ring.subtract(self.shares.norm, masks)
        got = self._answer(link, "norms", dict.fromkeys(self.peers, opened))
        for message in got.values():
            opened = opened + elements(message, "norms", *masks.shape)
        opened = ring.reduce(opened)
        times = 2 * masks + opened if self.first else 2 * masks
        shares = ring.reduce(ring.total(ring.multiply(opened, ring.reduce(times)), 1) + squares)
        return shares[None], shares[None, :0]

    def weights(self, link: Link, at: Sequence[int]) -> tuple[Ring, Ring]:
        self._exchange(link, {peer: {} for peer in self.peers})
        return self.shares.norm[None], self.shares.norm[None, :0]

    def shrink(self, into: Array, out: Array, at: Sequence[int]) -> None:
        self.shares.shrink(into[0, self.sources, self.targets])

    def restrict(self, into: Mask, out: Mask, at: Sequence[int]) -> None:
        self.shares.restrict(into[0, self.sources, self.targets])

    def _of_graph(self, graph: tuple[Mask, Mask] | None) -> Ring:
        forward = self.shares.forward
        return forward if graph is None else forward * graph[0][self.sources, self.targets, None]

    def _part(self, source: str, target: str) -> slice:
        """The columns of a target among those of all blocks out of a source."""
        at = self.plan.among_foreign(source, target)
        return slice(at.start * self.h, at.stop * self.h)


def _range(own: slice) -> NDArray[np.int64]:
    return np.arange(own.start, own.stop)
