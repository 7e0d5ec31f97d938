"""A party's two roles in the protocol: target of the blocks into its attributes, source of the blocks out of them.

Each block W[k, t] is shared between its source k and its target t alone. All that is encrypted was done ahead: a step
only opens differences from masks that are used once, and computes in the field. Searches that are trained side by side
share every message: arrays have an axis for the S of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point, ring
from veracausa.crypto.fixed_point import VALUE_BITS, WEIGHT_BITS
from veracausa.crypto.randomness import Masks, RandomSource
from veracausa.crypto.ring import Ring, Small
from veracausa.crypto.shares import FORWARD_BITS, SharedBlocks, SharedWeights
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.offline_phase import TripleStore
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.engines.shares.protocol import PAD_SECRET, all_elements, elements, tensor
from veracausa.discovery.engines.shares.triples import TripleBatch
from veracausa.discovery.privacy import countermeasures as row_noise
from veracausa.discovery.privacy import countermeasures as zero_sum
from veracausa.wire.link import Link
from veracausa.wire.message import Message

FEATURE_BITS = VALUE_BITS + WEIGHT_BITS + FORWARD_BITS


def first_weights(plan: Plan, name: str, allowed: Mask, masks: Masks) -> NDArray[np.int64]:
    """(own, foreign, h): small signed numbers, uniform; the same scale as those of a model in one place."""
    own, others = plan.own(name), plan.foreign(name)
    bound = round(2**WEIGHT_BITS / (plan.d * np.sqrt(plan.numbers)))
    drawn = masks.uniform(plan.count(name), len(others), plan.numbers) % (2 * bound + 1) - bound
    weights: NDArray[np.int64] = drawn * allowed[own][:, others, None]
    return weights


def pooled(opened: Ring) -> Array:
    """The sum over all sources, as numbers."""
    # Of as many as there may be parties the sum stays in int64.
    return fixed_point.decode(ring.reduce(opened.sum(0)), FEATURE_BITS)


class ShareEngine:
    """One party's shares, and the exchanges with the other holder of each."""

    def __init__(
        self, plan: Plan, name: str, batches: list[Small], draws: RandomSource, restart_index: int = 0
    ) -> None:
        self.plan, self.name, self.batches, self.draws, self.restart_index = plan, name, batches, draws, restart_index
        self._alike = np.stack(batches[: len(plan.batches)])
        """The batches that are trained on."""
        self.peers, self.own, self.others = plan.peers(name), plan.own(name), plan.foreign(name)
        self.at = {peer: plan.among_foreign(name, peer) for peer in self.peers}
        """Where a peer's attributes lie among the foreign ones."""
        self.count, self.h = plan.count(name), plan.numbers
        self.width, self.columns = self.count * self.h, len(self.others) * self.h
        self.counts = {peer: plan.count(peer) for peer in self.peers}
        self.widths = [self.counts[peer] * self.h for peer in self.peers]
        self.masked = {peer: protocol.masked(plan, name, peer) for peer in self.peers}
        self.answer = {peer: protocol.answer(plan, name, peer) for peer in self.peers}
        self.pending: tuple[Small, Ring, Ring] | None = None
        """Of the last step, the rows (S, n, own), the hidden gradients (peers, S, n, own·h), which go with the next
        message, and this party's half of the triple as source."""
        self.me, self.number = plan.parties.index(name), {peer: plan.parties.index(peer) for peer in self.peers}
        self.phase = 0
        """So many times triples came in this start; all parties count the same."""
        self.pads: dict[int, bytes] = {}
        """The secrets shared with each other party, from which pads follow; none where every part is opened."""
        self.exchange = 0
        self.supply: TripleStore
        self.shares: SharedWeights
        """(blocks, h): of the blocks into this party's attributes, search by search, then of those out of them."""
        self.into: SharedBlocks
        """(S, foreign, own, h): this party's share as target."""
        self.out: SharedBlocks
        """(S, own, foreign, h): its share as source."""
        self.searches = 0
        """S, of those that are not over."""

    @property
    def step(self) -> int:
        """The number of the exchange, unlike that of any other, also in a start of this run before it was resumed."""
        return protocol.counter(self.restart_index, self.exchange)

    def use(self, made: Mapping[int, TripleBatch], orders: Sequence[Sequence[int]] | None = None) -> None:
        """Go on with these triples of some searches; what is left of the ones before is thrown away.

        `orders` say in which order each search uses its batches.
        """
        for one in made.values():
            for peer, half in one.source.items():
                half.features = zero_sum.padded(half.features, self.me, self.number[peer], self.phase, self.pads)
            self.phase += 1
        self.supply = TripleStore(made, self.peers, [len(rows) for rows in self.batches], orders)

    def share_first_weights(self, link: Link, allowed: Mask, searches: Sequence[int] = (0,)) -> None:
        """The source draws, the target gets a uniform share: who knew the weights could solve for the columns."""
        self.exchange = protocol.first_exchange(searches[0])
        drawn, given = zip(*(self._drawn(allowed, search) for search in searches), strict=True)
        shown = np.stack(given)
        kinds = {peer: protocol.first_share(self.plan, self.name, peer) for peer in self.peers}
        for peer, kind in kinds.items():
            link.send(peer, kind, self.step, {"share": tensor(shown[:, :, self.at[peer]].reshape(-1))})
        got = [
            elements(message, "share", len(searches), self.counts[peer], self.count, self.h)
            for peer, message in link.gather_each(kinds, self.step).items()
        ]
        into, out = np.concatenate(got, axis=1), ring.subtract(np.stack(drawn), shown)
        shares = SharedWeights(self._both(into, out, self.h))
        live = allowed[None].repeat(len(searches), axis=0)
        shares.allowed = self._both(live[:, self.others, self.own], live[:, self.own, self.others])
        self._hold(shares, len(searches))

    def _drawn(self, allowed: Mask, search: int) -> tuple[Ring, Ring]:
        """First weights of a search, and a uniform share of them, which the targets get."""
        masks = self.draws.masks("shares", search)
        drawn = ring.reduce(first_weights(self.plan, self.name, allowed, masks))
        return drawn, masks.uniform(*drawn.shape)

    def share_pads(self, link: Link) -> None:
        """Agree with every other party on what keeps a third one from seeing one source's part of its features."""
        if self.plan.settings.reveal_per_source or len(self.peers) == 1:
            return
        masks = self.draws.masks("pads", self.restart_index)
        number = self.number
        for peer in self.peers:
            if self.me < number[peer]:
                self.pads[number[peer]] = secret = zero_sum.secret(masks)
                link.send(peer, PAD_SECRET, self.step, {"secret": tensor(np.frombuffer(bytearray(secret), np.uint8))})
        for peer in self.peers:
            if self.me > number[peer]:
                received = link.receive(peer, PAD_SECRET, self.step).tensors["secret"]
                self.pads[number[peer]] = received.numpy().tobytes()

    def _hold(self, shares: SharedWeights, searches: int) -> None:
        others = len(self.others)
        between = searches * self.count * others
        self.shares, self.searches = shares, searches
        self.into = SharedBlocks(shares, slice(0, between), searches, others, self.count)
        self.out = SharedBlocks(shares, slice(between, None), searches, self.count, others)

    def keep(self, at: Sequence[int]) -> None:
        """Go on with these searches only: the others are over."""
        blocks = self._blocks(at)
        if blocks is not None:
            self._hold(self.shares.taken(blocks), len(at))

    def _blocks(self, at: Sequence[int]) -> NDArray[np.int_] | None:
        """The blocks of some searches, by their numbers; None: of all."""
        if len(at) == self.searches:
            return None
        each = np.arange(2 * self.searches * self.count * len(self.others)).reshape(2, self.searches, -1)
        return np.asarray(each[:, list(at)].reshape(-1))

    @staticmethod
    def _both(into: NDArray[Any], out: NDArray[Any], *last: int) -> NDArray[Any]:
        return np.concatenate([into.reshape(-1, *last), out.reshape(-1, *last)])

    def features(
        self, link: Link, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None = None, at: int | None = None
    ) -> Array:
        """(S, n, own·h): what the others' attributes add to this party's features, opened here.

        `batches` has one for each search; with `at` it is that of one of them alone.
        """
        got, kept = self._answers(link, batches, graph, at)
        # Of as many as there may be parties both sums stay in int64.
        opened = ring.reduce(got.sum(0) + ring.total(kept, 0) if len(got) > 2 else got.sum(0) + kept.sum(0))
        return fixed_point.decode(opened, FEATURE_BITS)

    def opened(
        self, link: Link, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None = None, at: int | None = None
    ) -> Ring:
        """(peers, S, n, own·h): what each peer's attributes add to this party's features.

        `graph` leaves only the edges of (d, own) and (own, d); every party must be given the same one.
        """
        return ring.add(*self._answers(link, batches, graph, at))

    def _answers(
        self, link: Link, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None, at: int | None
    ) -> tuple[Ring, Ring]:
        masks, kept, opened = self.supply.forward(batches)
        count, chosen = len(batches), slice(None) if at is None else slice(at, at + 1)
        mine = self.into.forward[chosen]
        if graph is not None:
            mine = mine * graph[0][self.others, :, None]
        hidden = ring.subtract(mine.reshape(count, -1, self.width), masks)
        asked = self._exchange(link, {peer: {"weights": hidden[:, own]} for peer, own in self.at.items()})
        parts = all_elements(asked, "weights", [(count, self.count, width) for width in self.widths], 2)
        theirs = self.out.forward[chosen]  # not before the exchange, which lets it grow
        if graph is not None:
            theirs = theirs * graph[1][:, self.others, None]
        weights = parts + theirs.reshape(count, self.count, -1)
        answers = ring.matmul(self._rows(batches), weights, opened)
        told = {peer: self._guarded(peer, answers[:, :, self._columns(peer)]) for peer in self.peers}
        got = self._answer(link, "features", told)
        rows = kept.shape[2]
        parts = all_elements(got, "features", [(count * rows, self.width)] * len(got), 0)
        return parts.reshape(-1, count, rows, self.width), kept

    def _rows(self, batches: tuple[int, ...]) -> Small:
        # Only one search at a time is compared on held-out rows, of which there may be fewer in the last batch.
        return self.batches[batches[0]][None] if len(batches) == 1 else self._alike[list(batches)]

    def _guarded(self, peer: str, answer: Ring) -> Ring:
        """The answer to a target, with the noise that the settings ask for."""
        if (deviation := self.plan.settings.row_noise) is not None:
            masks = self.draws.masks("row noise", self.step, self.number[peer])
            part = row_noise.part(deviation, len(self.peers))
            answer = ring.add(answer, row_noise.drawn(masks, part, FEATURE_BITS, *answer.shape))
        return answer

    def descend(self, batches: tuple[int, ...], steps: Small) -> None:
        """Let all blocks into this party's attributes grow by Xᵀ·steps, (S, n, own·h) fixed-point numbers."""
        masks, kept, half = self.supply.backward(batches)
        self.pending = self._rows(batches), ring.reduce(steps.astype(np.int64) - masks), half
        self.into.grow(kept.reshape(len(batches), -1, self.count, self.h))

    def norms(self, link: Link, at: Sequence[int]) -> tuple[Ring, Ring]:
        """This party's shares of the squared norm of every block into (S, foreign, own) and out (S, own, foreign), of
        some searches.

        With masks A and B of both holders, E = W − A − B is opened to both: ‖W‖² = ‖E‖² + 2⟨E, A + B⟩ + ‖A + B‖².
        The sum of the two shares' norms would be no norm at all: each share alone is uniform.
        """
        masks, squares = self.supply.square(at)
        count, between = len(at), masks.shape[1] // 2
        first, second = masks[:, :between], masks[:, between:]
        into = ring.subtract(self.into.norm[list(at)], first.reshape(count, -1, self.count, self.h))
        asked = self._exchange(link, {peer: {"norms": into[:, own]} for peer, own in self.at.items()})
        out = ring.subtract(self.out.norm[list(at)], second.reshape(count, self.count, -1, self.h))
        got = self._answer(link, "norms", {peer: out[:, :, own] for peer, own in self.at.items()})
        for peer, own in self.at.items():
            into[:, own] += elements(got[peer], "norms", count, self.counts[peer], self.count, self.h)
            out[:, :, own] += elements(asked[peer], "norms", count, self.count, self.counts[peer], self.h)
        shape = (count, -1, self.h)
        opened = ring.reduce(np.concatenate([into.reshape(shape), out.reshape(shape)], axis=1))
        times = 2 * masks
        times[:, :between] += opened[:, :between]
        shares = ring.reduce(ring.total(ring.multiply(opened, ring.reduce(times)), 2) + squares)
        return shares[:, :between].reshape(count, -1, self.count), shares[:, between:].reshape(count, self.count, -1)

    def weights(self, link: Link, at: Sequence[int]) -> tuple[Ring, Ring]:
        """This party's shares of the weights themselves, at the scale of the norms."""
        self._exchange(link, {peer: {} for peer in self.peers})
        return self.into.norm[list(at)], self.out.norm[list(at)]

    def shrink(self, into: Array, out: Array, at: Sequence[int]) -> None:
        """Scale all blocks of some searches by public factors, (S, d, own) and (S, own, d)."""
        self._change(SharedWeights.shrink, into, out, at)

    def restrict(self, into: Mask, out: Mask, at: Sequence[int]) -> None:
        """End the blocks of some searches whose edge is not allowed any more."""
        self._change(SharedWeights.restrict, into, out, at)

    def _change(
        self, how: Callable[[SharedWeights, Any], None], into: NDArray[Any], out: NDArray[Any], at: Sequence[int]
    ) -> None:
        given, blocks = self._both(into[:, self.others], out[:, :, self.others]), self._blocks(at)
        if blocks is None:
            how(self.shares, given)
        else:
            some = self.shares.taken(blocks)
            how(some, given)
            self.shares.put(blocks, some)

    def deliver(self, link: Link) -> None:
        """Hand over gradients that no other message took along."""
        if self.pending is not None:
            self._exchange(link, {peer: {} for peer in self.peers})

    def _exchange(self, link: Link, parts: Mapping[str, dict[str, Ring]]) -> dict[str, Message]:
        """Send what is hidden to the sources, and the last gradients with it; from theirs, this party's share grows."""
        self.exchange += 1
        for at, peer in enumerate(self.peers):
            sent = {name: tensor(part.reshape(-1)) for name, part in parts[peer].items()}
            if self.pending is not None:
                sent["gradients"] = tensor(self.pending[1][at].reshape(-1))
            link.send(peer, self.masked[peer], self.step, sent)
        messages = link.gather_each(self.masked, self.step)
        if self.pending is not None:
            rows, _, half = self.pending
            steps = all_elements(messages, "gradients", [(*rows.shape[:2], width) for width in self.widths], 2)
            self._grow_out(ring.matmul(rows.swapaxes(1, 2), steps, half))
            self.pending = None
        return messages

    def _grow_out(self, increment: Ring) -> None:
        self.out.grow(increment.reshape(len(increment), self.count, -1, self.h))

    def _answer(self, link: Link, name: str, parts: Mapping[str, Ring]) -> dict[str, Message]:
        for peer, part in parts.items():
            link.send(peer, self.answer[peer], self.step, {name: tensor(part.reshape(-1))})
        return link.gather_each(self.answer, self.step)

    def _columns(self, peer: str) -> slice:
        at = self.at[peer]
        return slice(at.start * self.h, at.stop * self.h)

    def declare(self, link: Link) -> None:
        """All kinds before any message: a peer that is ahead may send the next one while this party is busy."""
        for peer in self.peers:
            first = protocol.first_share(self.plan, self.name, peer)
            link.declare(first, PAD_SECRET, self.masked[peer], self.answer[peer], peer=peer)

    def state(self) -> dict[str, Any]:
        return {"exchange": self.exchange, "shares": self.shares.state(), "searches": self.searches}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.exchange = state["exchange"]
        self._hold(SharedWeights.of(state["shares"]), state["searches"])
