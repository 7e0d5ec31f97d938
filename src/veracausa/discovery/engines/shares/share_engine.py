"""A party's two roles in the protocol: target of the blocks into its attributes, source of the blocks out of them.

Each block W[k, t] is shared between its source k and its target t alone. All that is encrypted was done ahead: a step
only opens differences from masks that are used once, and computes in the field.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        self.peers, self.own, self.others = plan.peers(name), plan.own(name), plan.foreign(name)
        self.at = {peer: plan.among_foreign(name, peer) for peer in self.peers}
        """Where a peer's attributes lie among the foreign ones."""
        self.count, self.h = plan.count(name), plan.numbers
        self.width, self.columns = self.count * self.h, len(self.others) * self.h
        self.counts = {peer: plan.count(peer) for peer in self.peers}
        self.widths = [self.counts[peer] * self.h for peer in self.peers]
        self.masked = {peer: protocol.masked(plan, name, peer) for peer in self.peers}
        self.answer = {peer: protocol.answer(plan, name, peer) for peer in self.peers}
        self.pending: tuple[int, Ring, Ring] | None = None
        """Of the last step, the batch, the hidden gradients (peers, n, own·h), which go with the next message, and this
        party's half of the triple as source."""
        self.me, self.number = plan.parties.index(name), {peer: plan.parties.index(peer) for peer in self.peers}
        self.phase = 0
        """So many times triples came in this start; all parties count the same."""
        self.pads: dict[int, bytes] = {}
        """The secrets shared with each other party, from which pads follow; none where every part is opened."""
        self.exchange = 0
        self.supply: TripleStore
        self.shares: SharedWeights
        """(blocks, h): of the blocks into this party's attributes, then of those out of them."""
        self.into: SharedBlocks
        """(foreign, own, h): this party's share as target."""
        self.out: SharedBlocks
        """(own, foreign, h): its share as source."""

    @property
    def step(self) -> int:
        """The number of the exchange, unlike that of any other, also in a start of this run before it was resumed."""
        return protocol.counter(self.restart_index, self.exchange)

    def use(self, made: TripleBatch) -> None:
        """Go on with these triples; what is left of the ones before is thrown away."""
        for peer, half in made.source.items():
            half.features = zero_sum.padded(half.features, self.me, self.number[peer], self.phase, self.pads)
        self.phase += 1
        self.supply = TripleStore(made, self.peers, [len(rows) for rows in self.batches])

    def share_first_weights(self, link: Link, allowed: Mask, search: int = 0) -> None:
        """The source draws, the target gets a uniform share: who knew the weights could solve for the columns."""
        self.exchange = protocol.first_exchange(search)
        masks = self.draws.masks("shares", search)
        drawn = ring.reduce(first_weights(self.plan, self.name, allowed, masks))
        given = masks.uniform(*drawn.shape)
        kinds = {peer: protocol.first_share(self.plan, self.name, peer) for peer in self.peers}
        for peer, kind in kinds.items():
            link.send(peer, kind, self.step, {"share": tensor(given[:, self.at[peer]].reshape(-1))})
        got = [
            elements(message, "share", self.counts[peer], self.count, self.h)
            for peer, message in link.gather_each(kinds, self.step).items()
        ]
        into, out = np.concatenate(got), ring.subtract(drawn, given)
        shares = SharedWeights(np.concatenate([into.reshape(-1, self.h), out.reshape(-1, self.h)]))
        shares.allowed = self._both(allowed[self.others][:, self.own], allowed[self.own][:, self.others])
        self._hold(shares)

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

    def _hold(self, shares: SharedWeights) -> None:
        between, others = self.count * len(self.others), len(self.others)
        self.shares = shares
        self.into = SharedBlocks(shares, slice(0, between), others, self.count)
        self.out = SharedBlocks(shares, slice(between, None), self.count, others)

    @staticmethod
    def _both(into: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([into.reshape(-1), out.reshape(-1)])

    def features(self, link: Link, batch: int, graph: tuple[Mask, Mask] | None = None) -> Array:
        """(n, own·h): what the others' attributes add to this party's features, opened here."""
        got, kept = self._answers(link, batch, graph)
        # Of as many as there may be parties both sums stay in int64.
        opened = ring.reduce(got.sum(0) + ring.total(kept, 0) if len(got) > 2 else got.sum(0) + kept.sum(0))
        return fixed_point.decode(opened, FEATURE_BITS)

    def opened(self, link: Link, batch: int, graph: tuple[Mask, Mask] | None = None) -> Ring:
        """(peers, n, own·h): what each peer's attributes add to this party's features.

        `graph` leaves only the edges of (d, own) and (own, d); every party must be given the same one.
        """
        return ring.add(*self._answers(link, batch, graph))

    def _answers(self, link: Link, batch: int, graph: tuple[Mask, Mask] | None) -> tuple[Ring, Ring]:
        masks, kept, opened = self.supply.forward(batch)
        mine = self.into.forward
        if graph is not None:
            mine = mine * graph[0][self.others, :, None]
        hidden = ring.subtract(mine.reshape(-1, self.width), masks)
        asked = self._exchange(link, {peer: {"weights": hidden[at]} for peer, at in self.at.items()})
        parts = all_elements(asked, "weights", [(self.count, width) for width in self.widths], 1)
        theirs = self.out.forward  # not before the exchange, which lets it grow
        if graph is not None:
            theirs = theirs * graph[1][:, self.others, None]
        weights = parts + theirs.reshape(self.count, -1)
        answers = ring.matmul(self.batches[batch], weights, opened)
        got = self._answer(
            link, "features", {peer: self._guarded(peer, answers[:, self._columns(peer)]) for peer in self.peers}
        )
        rows = kept.shape[1]
        parts = all_elements(got, "features", [(rows, self.width)] * len(got), 0)
        return parts.reshape(-1, rows, self.width), kept

    def _guarded(self, peer: str, answer: Ring) -> Ring:
        """The answer to a target, with the noise that the settings ask for."""
        if (deviation := self.plan.settings.row_noise) is not None:
            masks = self.draws.masks("row noise", self.step, self.number[peer])
            part = row_noise.part(deviation, len(self.peers))
            answer = ring.add(answer, row_noise.drawn(masks, part, FEATURE_BITS, *answer.shape))
        return answer

    def descend(self, batch: int, steps: Small) -> None:
        """Let all blocks into this party's attributes grow by Xᵀ·steps, (n, own·h) fixed-point numbers."""
        masks, kept, half = self.supply.backward(batch)
        self.pending = batch, ring.reduce(steps.astype(np.int64) - masks), half
        self.into.grow(kept.reshape(-1, self.count, self.h))

    def norms(self, link: Link) -> tuple[Ring, Ring]:
        """This party's shares of the squared norm of every block into (foreign, own) and out (own, foreign).

        With masks A and B of both holders, E = W − A − B is opened to both: ‖W‖² = ‖E‖² + 2⟨E, A + B⟩ + ‖A + B‖².
        The sum of the two shares' norms would be no norm at all: each share alone is uniform.
        """
        masks, squares = self.supply.square()
        between = len(masks) // 2
        into = ring.subtract(self.into.norm, masks[:between].reshape(-1, self.count, self.h))
        asked = self._exchange(link, {peer: {"norms": into[at]} for peer, at in self.at.items()})
        out = ring.subtract(self.out.norm, masks[between:].reshape(self.count, -1, self.h))
        got = self._answer(link, "norms", {peer: out[:, at] for peer, at in self.at.items()})
        for peer, at in self.at.items():
            into[at] += elements(got[peer], "norms", self.counts[peer], self.count, self.h)
            out[:, at] += elements(asked[peer], "norms", self.count, self.counts[peer], self.h)
        opened = ring.reduce(np.concatenate([into.reshape(-1, self.h), out.reshape(-1, self.h)]))
        times = 2 * masks
        times[:between] += opened[:between]
        shares = ring.reduce(ring.total(ring.multiply(opened, ring.reduce(times)), 1) + squares)
        return shares[:between].reshape(-1, self.count), shares[between:].reshape(self.count, -1)

    def weights(self, link: Link) -> tuple[Ring, Ring]:
        """This party's shares of the weights themselves, at the scale of the norms."""
        self._exchange(link, {peer: {} for peer in self.peers})
        return self.into.norm, self.out.norm

    def shrink(self, into: Array, out: Array) -> None:
        """Scale all blocks by public factors, (d, own) and (own, d)."""
        self.shares.shrink(self._both(into[self.others], out[:, self.others]))

    def restrict(self, into: Mask, out: Mask) -> None:
        """End the blocks whose edge is not allowed any more."""
        self.shares.restrict(self._both(into[self.others], out[:, self.others]))

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
            batch, _, half = self.pending
            rows = self.batches[batch]
            steps = all_elements(messages, "gradients", [(len(rows), width) for width in self.widths], 1)
            increment = ring.matmul(rows.T, steps, half)
            self._grow_out(increment)
            self.pending = None
        return messages

    def _grow_out(self, increment: Ring) -> None:
        self.out.grow(increment.reshape(self.count, -1, self.h))

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
        return {"exchange": self.exchange, "shares": self.shares.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.exchange = state["exchange"]
        self._hold(SharedWeights.of(state["shares"]))
