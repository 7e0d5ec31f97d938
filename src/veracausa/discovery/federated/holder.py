"""A party's two roles in the protocol: target of the blocks into its attributes, source of the blocks out of them.

Each block W[k, t] is shared between its source k and its target t alone. The source's columns never change, so they are
encrypted once, under the source's key; the target multiplies them by its share and by its gradients, masks the result,
and the source opens a uniform number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto import fixed_point, ring
from veracausa.crypto.backends import make_encryption
from veracausa.crypto.backends.base import Bytes, EncryptedRows
from veracausa.crypto.draws import Draws
from veracausa.crypto.fixed_point import VALUE_BITS, WEIGHT_BITS
from veracausa.crypto.ring import Ring, Small
from veracausa.crypto.shares import FORWARD_BITS, SharedWeights
from veracausa.discovery.federated.plan import Plan
from veracausa.discovery.federated.protocol import ANSWER, COLUMNS, FIRST_SHARE, KEY, MASKED, tensor
from veracausa.wire.link import Link
from veracausa.wire.message import Message

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FEATURE_BITS = VALUE_BITS + WEIGHT_BITS + FORWARD_BITS


class Holder:
    """One party's shares, and the exchanges with the other holder of each."""

    def __init__(self, plan: Plan, name: str, batches: list[Small], draws: Draws) -> None:
        self.plan, self.batches, self.draws = plan, batches, draws
        self.peers, self.own, self.others = plan.peers(name), plan.own(name), plan.foreign(name)
        self.at = {peer: plan.among_foreign(name, peer) for peer in self.peers}
        """Where a peer's attributes lie among the foreign ones."""
        self.count, self.h = self.own.stop - self.own.start, plan.settings.width
        self.encryption = make_encryption(plan.encryption)
        self.keys: dict[str, Bytes] = {}
        self.rows: dict[str, EncryptedRows] = {}
        self.pending: dict[str, Bytes] = {}
        """Masked increments that the sources still have to get; they travel with the next message."""
        self.exchange = 0
        self.into: SharedWeights
        """(foreign, own, h): this party's share as target."""
        self.out: SharedWeights
        """(own, foreign, h): its share as source."""

    def set_up(self, link: Link) -> None:
        """Exchange keys and encrypted columns, once for the whole training."""
        for peer in self.peers:
            link.declare(KEY, COLUMNS, FIRST_SHARE, MASKED, ANSWER, peer=peer)
        for peer in self.peers:
            link.send(peer, KEY, 0, {"key": tensor(self.encryption.public_key())})
            rows = self.encryption.encrypt_rows(self.batches, self._columns(peer) * self.h)
            link.send(peer, COLUMNS, 0, {"rows": tensor(rows)})
        sizes = [len(batch) for batch in self.batches]
        for peer in self.peers:
            self.keys[peer] = link.receive(peer, KEY, 0).tensors["key"].numpy()
            rows = link.receive(peer, COLUMNS, 0).tensors["rows"].numpy()
            self.rows[peer] = self.encryption.open_rows(
                self.keys[peer], rows, sizes, self._columns(peer), self.count * self.h
            )

    def share_first_weights(self, link: Link, allowed: Mask) -> None:
        """The source draws, the target gets a uniform share: who knew the weights could solve for the columns."""
        shape = (self.count, len(self.others), self.h)
        bound = round(2**WEIGHT_BITS / (self.plan.d * np.sqrt(self.h)))
        drawn = self.draws.uniform(*shape) % (2 * bound + 1) - bound
        drawn *= allowed[self.own][:, self.others, None]
        given = self.draws.uniform(*shape)
        for peer in self.peers:
            link.send(peer, FIRST_SHARE, 0, {"share": tensor(given[:, self.at[peer]])})
        got = [link.receive(peer, FIRST_SHARE, 0).tensors["share"].numpy() for peer in self.peers]
        self.out = SharedWeights(ring.subtract(drawn, given))
        self.into = SharedWeights(np.concatenate(got))
        self.into.allowed = allowed[self.others][:, self.own]
        self.out.allowed = allowed[self.own][:, self.others]

    def features(self, link: Link, batch: int, graph: tuple[Mask, Mask] | None = None) -> Array:
        """(n, own·h): what the others' attributes add to this party's features, opened here.

        `graph` leaves only the edges of (d, own) and (own, d); every party must be given the same one.
        """
        self.exchange += 1
        n, width = len(self.batches[batch]), self.count * self.h
        masks = self.draws.uniform(len(self.peers), n, width)
        weights = self.into.forward
        if graph is not None:
            weights = weights * graph[0][self.others, :, None]
        weights = weights.reshape(-1, width)
        for peer, mask in zip(self.peers, masks, strict=True):
            self._send(link, peer, forward=self.rows[peer].forward([batch], weights[self.at[peer]][None], mask))
        asked = self._receive(link)
        known = self.out.forward
        if graph is not None:
            known = known * graph[1][:, self.others, None]
        parts = ring.matmul(self.batches[batch], known.reshape(self.count, -1))
        for peer, message in asked.items():
            part = parts[:, self.at[peer].start * self.h : self.at[peer].stop * self.h]
            y = self.encryption.decrypt_forward(
                message.tensors["forward"].numpy(), [part.shape[0]], self.count, part.shape[1]
            )
            link.send(peer, ANSWER, self.exchange, {"features": tensor(ring.add(y, part))})
        answers = [link.receive(peer, ANSWER, self.exchange).tensors["features"].numpy() for peer in self.peers]
        # Differences lie between −P and P; of as many as there may be parties the sum stays in int64.
        opened = ring.reduce((np.stack(answers) - masks).sum(0))
        return fixed_point.decode(opened, FEATURE_BITS)

    def descend(self, batch: int, steps: Small) -> None:
        """Let all blocks into this party's attributes grow by Xᵀ·steps, (n, own·h) fixed-point numbers."""
        mask = self.draws.uniform(len(self.others), self.count * self.h)
        for peer, at in self.at.items():
            self.pending[peer] = self.rows[peer].backward([batch], ring.reduce(steps.astype(np.int64)), mask[at][None])
        self.into.grow((ring.P - mask).reshape(-1, self.count, self.h))

    def norms(self, link: Link) -> tuple[Ring, Ring]:
        """This party's shares of the squared norm of every block into (foreign, own) and out (own, foreign).

        ‖S + R‖² = ‖S‖² + ‖R‖² + 2⟨S, R⟩: each holder knows one square, and the product of both is one more masked
        reply. The sum of the two shares' norms would be no norm at all: each share alone is uniform.
        """
        self.exchange += 1
        mine = self.into.norm
        for peer in self.peers:
            self._send(link, peer, share=self.encryption.encrypt(mine[self.at[peer]]))
        asked = self._receive(link)
        theirs = self.out.norm
        mask = self.draws.uniform(self.count, len(self.others), self.h)
        for peer, message in asked.items():
            at = self.at[peer]
            # The target encrypts blocks as (source, target, h), which is how the source holds them too.
            reply = self.encryption.products(
                self.keys[peer], message.tensors["share"].numpy(), theirs[:, at], mask[:, at]
            )
            link.send(peer, ANSWER, self.exchange, {"norm": tensor(reply)})
        cross = []
        for peer in self.peers:
            reply = link.receive(peer, ANSWER, self.exchange).tensors["norm"].numpy()
            products = self.encryption.decrypt_products(reply, (self._columns(peer), self.count, self.h))
            cross.append(ring.total(products, 2))
        into = ring.add(ring.total(ring.multiply(mine, mine), 2), ring.scale(np.concatenate(cross), 2))
        out = ring.subtract(ring.total(ring.multiply(theirs, theirs), 2), ring.scale(ring.total(mask, 2), 2))
        return into, out

    def weights(self, link: Link) -> tuple[Ring, Ring]:
        """This party's shares of the weights themselves, at the scale of the norms."""
        self._exchange_increments(link)
        return self.into.norm, self.out.norm

    def shrink(self, into: Array, out: Array) -> None:
        """Scale all blocks by public factors, (d, own) and (own, d)."""
        self.into.shrink(into[self.others])
        self.out.shrink(out[:, self.others])

    def restrict(self, into: Mask, out: Mask) -> None:
        """End the blocks whose edge is not allowed any more."""
        self.into.restrict(into[self.others])
        self.out.restrict(out[:, self.others])

    def deliver(self, link: Link) -> None:
        """Hand over increments that no other message took along."""
        if self.pending:
            self._exchange_increments(link)

    def _exchange_increments(self, link: Link) -> None:
        self.exchange += 1
        for peer in self.peers:
            self._send(link, peer)
        self._receive(link)

    def _send(self, link: Link, peer: str, **parts: Bytes) -> None:
        if peer in self.pending:
            parts["backward"] = self.pending.pop(peer)
        link.send(peer, MASKED, self.exchange, {name: tensor(part) for name, part in parts.items()})

    def _receive(self, link: Link) -> dict[str, Message]:
        """What each target sent; the increments it brought are added to this party's share."""
        messages = {peer: link.receive(peer, MASKED, self.exchange) for peer in self.peers}
        increments = []
        for peer, message in messages.items():
            if "backward" in message.tensors:
                width, n = self._columns(peer) * self.h, len(self.batches[0])
                got = self.encryption.decrypt_backward(message.tensors["backward"].numpy(), [n], self.count, width)
                increments.append(got.reshape(self.count, -1, self.h))
        if increments:
            self.out.grow(np.concatenate(increments, axis=1))
        return messages

    def _columns(self, peer: str) -> int:
        return self.plan.sizes[self.plan.parties.index(peer)]

    def state(self) -> dict[str, Any]:
        return {"exchange": self.exchange, "into": self.into.state(), "out": self.out.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.exchange = state["exchange"]
        self.into, self.out = SharedWeights.of(state["into"]), SharedWeights.of(state["out"])
