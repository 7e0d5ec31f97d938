"""One party's program for a release of sums: toss, keys, agreement, every pair, noise, and the release.

After a kill all parties start again with what each has saved. The toss and the keys are new, and with them all masks.
A pair whose shares both ends have kept is not made again. Noise is drawn once and kept before anything of it is sent,
so a release that is sent again is the same numbers.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from veracausa.crypto import ring
from veracausa.crypto.agreement import AGREEMENT, agree, exchange_keys, tensor, toss_together, word
from veracausa.crypto.discrete_gaussian import discrete_gaussian
from veracausa.crypto.moments import protocol
from veracausa.crypto.moments.account import EXACT, check_budget
from veracausa.crypto.moments.encoding import Blocks, encoded_blocks, exact_product
from veracausa.crypto.moments.engine import BlockEngine, InPlaceEngine
from veracausa.crypto.moments.exchange import MomentTurns, answer_pair, own_pair
from veracausa.crypto.moments.packing import PairPacking
from veracausa.crypto.moments.pairs import MomentKeys, PlainKeys
from veracausa.crypto.moments.plan import LARGEST_SUM, MomentPlan
from veracausa.crypto.moments.protocol import MOMENT_HELLO, MOMENT_TAKEN, MOMENT_TURN, TAG
from veracausa.crypto.moments.result import Moments, noise_of
from veracausa.crypto.randomness import RandomSource, Toss
from veracausa.crypto.ring import Ring, Small
from veracausa.errors import RunError, WireError
from veracausa.wire.link import Link

State = Mapping[str, Any]
Pair = tuple[str, str]


class MomentParty:
    """A party's part in one release. `run` gives the receiver the sums, and everybody else nothing.

    `blocks` gives the party's rows as the plan cuts them, the same at every call. `save` is given all that a restart
    needs, and `state` is what was saved last. `earlier` has the ρ of releases of the same rows that this party made
    before, by name, as `wire.ledger.releases` reads them.
    """

    def __init__(
        self,
        plan: MomentPlan,
        name: str,
        blocks: Blocks,
        draws: RandomSource,
        state: State | None = None,
        save: Callable[[State], None] = lambda state: None,
        *,
        engine: BlockEngine | None = None,
        earlier: Mapping[str, float] | None = None,
    ) -> None:
        plan.check()
        self.plan, self.name, self.blocks, self.draws, self.save = plan, name, blocks, draws, save
        self.engine: BlockEngine = engine or InPlaceEngine()
        self.peers = tuple(party for party in plan.parties if party != name)
        self.pairs = tuple(pair for pair in plan.pairs if name in pair)
        kept = dict(state or {})
        if kept and kept["plan"] != plan.digest():
            raise RunError("moments: what was saved belongs to another plan; begin a new run")
        self._release: str = kept.get("release") or secrets.token_hex(8)
        check_budget(plan.account, plan.budget, plan.delta, self._release, earlier or {})
        self._noise: Tensor | None = kept.get("noise")
        self._own: Tensor | None = kept.get("own")
        self._rows: str = kept.get("rows", "")
        self._shares: dict[str, dict[str, Any]] = dict(kept.get("shares", {}))
        """By peer: the start it was made in, and this party's share of the pair's sums, without noise."""
        self._keys: list[str] = list(kept.get("keys", []))
        self._moments: State | None = kept.get("moments")

    def run(self, link: Link, progress: Callable[[float], None] = lambda share: None) -> Moments | None:
        """Take part to the end; `progress` hears which share of this party's queries is done."""
        self._declare(link)
        toss, keys = self._begin(link)
        self._draw_noise()
        self._save()  # noise, the release's name and the keys that are used up, before anything follows from them
        kept, over = self._hello(link)
        if not over:
            self._sums(link, toss, keys, kept, progress)
            self._send_or_open(link)
        progress(1.0)
        return None if self._moments is None else Moments.of(self._moments)

    def state(self) -> dict[str, Any]:
        return {
            "plan": self.plan.digest(),
            "release": self._release,
            "noise": self._noise,
            "own": self._own,
            "rows": self._rows,
            "shares": self._shares,
            "keys": self._keys,
            "moments": self._moments,
        }

    def _save(self) -> None:
        self.save(self.state())

    def _declare(self, link: Link) -> None:
        for peer in self.peers:
            link.declare(*AGREEMENT, MOMENT_HELLO, MOMENT_TURN, peer=peer)
        for pair in self.pairs:
            packing = self.plan.packing(*pair)
            kinds = protocol.moment_query(packing), protocol.moment_answer(packing), MOMENT_TAKEN
            link.declare(*kinds, peer=self._other(pair))
        if self.name != self.plan.receiver:
            link.declare(protocol.moment_share(self.plan, self.name), peer=self.plan.receiver)
        else:
            for peer in self.peers:
                link.declare(protocol.moment_share(self.plan, peer), peer=peer)

    def _begin(self, link: Link) -> tuple[Toss, MomentKeys]:
        """At every start anew: what was tossed before a restart goes with the keys that it was for."""
        toss = toss_together(link, self.peers, 0, 0)
        made = self._make_keys(toss)
        own = made.public_key()
        received = exchange_keys(link, self.peers, 0, own)
        every = {party: own if party == self.name else received[party] for party in self.plan.parties}
        prints = agree(link, self.peers, 0, [self.plan.digest(), toss.seed.hex()], every, self._keys)
        self._keys.extend(fingerprint for fingerprint, key in zip(prints, every.values(), strict=True) if key.size)
        for pair in self.pairs:
            made.meet(self._other(pair), received[self._other(pair)])
        return toss, made

    def _make_keys(self, toss: Toss) -> MomentKeys:
        if self.plan.encryption == "none":
            return PlainKeys(self.plan.most)
        from veracausa.crypto.moments.bfv_pairs import BfvKeys

        return BfvKeys(toss, self.name)

    def _hello(self, link: Link) -> tuple[set[str], bool]:
        """The peers with whom shares of the same start were kept, and whether the receiver has all sums already."""
        for peer in self.peers:
            tag = bytes.fromhex(self._shares[peer]["tag"]) if peer in self._shares else bytes(TAG)
            link.send(peer, MOMENT_HELLO, 0, {"tag": word(tag)}, done=int(self._moments is not None))
        kept, over = set(), self._moments is not None
        for peer in self.peers:
            message = link.receive(peer, MOMENT_HELLO, 0)
            theirs = message.tensors["tag"].numpy().tobytes().hex()
            if peer in self._shares and self._shares[peer]["tag"] == theirs:
                kept.add(peer)
            over |= peer == self.plan.receiver and bool(message.meta["done"])
        return kept, over

    def _sums(
        self, link: Link, toss: Toss, keys: MomentKeys, kept: set[str], progress: Callable[[float], None]
    ) -> None:
        """This party's share of the sums of every pair, in the order that all keep to."""
        due = [pair for pair in self.pairs if self._other(pair) not in kept]
        self._turns = MomentTurns(link, [self._other(pair) for pair in due])
        if self.name != self.plan.receiver:
            self._turns.waiting.append(self.plan.receiver)
        count = sum(self.plan.packing(*pair).packet_count for pair in due) + 1
        self._queries = 0

        def done() -> None:
            self._turns.pulse()
            progress(min(1.0, self._queries / count))

        for pair in due:
            peer, packing = self._other(pair), self.plan.packing(*pair)
            tag = hashlib.sha256("\x1f".join(["moment pair", toss.seed.hex(), *pair]).encode()).digest()[:TAG].hex()
            self._turns.meet(peer)
            rows = self._queried(packing)
            if pair[0] == self.name:
                share = own_pair(link, peer, keys.owner(peer, packing), packing, rows, done)
            else:
                masks = self.draws.masks("moments", "mask", *pair, tag)
                answerer = keys.answerer(peer, packing, masks)
                share = answer_pair(link, peer, answerer, packing, rows, self.engine, done)
            self._turns.with_peer = ""
            self._shares[peer] = {"tag": tag, "share": tensor(share)}
            self._save()
        if self._own is None and self.plan.widths[self.name]:
            for _ in self._queried(
                PairPacking.best(self.plan.widths[self.name], 1, self.plan.rows, self.plan.block_rows)
            ):
                done()
            self._save()

    def _queried(self, packing: PairPacking) -> Iterator[tuple[int, Small]]:
        """A pass over this party's rows, cut as queries are. The first pass also sums up its own products."""
        own = None if self._own is not None else np.zeros((self.plan.widths[self.name],) * 2, dtype=np.int64)
        blocks, seen, block = encoded_blocks(self.plan, self.name, self.blocks), hashlib.blake2b(digest_size=16), -1
        for number, (at, first, last) in enumerate(packing.packets()):
            if at != block:
                rows, block = next(blocks), at
                seen.update(rows.astype("<i4").data)
                if own is not None:
                    own += exact_product(rows, rows, self.plan.most)
            self._queries += 1
            yield number, rows[first:last]
        next(blocks, None)  # refuses rows that are left over
        if self._rows and self._rows != seen.hexdigest():
            raise RunError(
                f"moments: the features of {self.name!r} changed between two passes over its rows; fix what they are "
                "computed by, or keep them in a file"
            )
        self._rows = seen.hexdigest()
        if own is not None:
            self._own = tensor(own[np.triu_indices(len(own))])

    def _draw_noise(self) -> None:
        """Of its own sums, then of each pair's. It is kept: with fresh noise a second release would be another one."""
        if self._noise is not None or self.plan.account is None or not self.plan.adds_noise(self.name):
            return
        # The twin draws the same noise in a simulation.
        purpose = replace(self.plan, encryption="none").digest()
        source = self.draws.masks("moments", "noise", purpose)
        self._noise = tensor(discrete_gaussian(source, self.plan.account.deviation, sum(self._sizes())))

    def _sizes(self) -> list[int]:
        """How many entries of its own sums and of each pair's a party has a share of."""
        width = self.plan.widths[self.name]
        return [width * (width + 1) // 2, *(self.plan.widths[a] * self.plan.widths[b] for a, b in self.pairs)]

    def _released(self) -> tuple[Ring, Ring]:
        """Its own sums, and its shares of the pairs', with noise."""
        own = np.zeros(0, dtype=np.int64) if self._own is None else self._own.numpy()
        shares = [self._shares[self._other(pair)]["share"].numpy().reshape(-1) for pair in self.pairs]
        whole = np.concatenate([ring.reduce(own), *shares])
        if self._noise is not None:
            whole = ring.add(whole, ring.reduce(self._noise.numpy()))
        return whole[: own.size], whole[own.size :]

    def _send_or_open(self, link: Link) -> None:
        account = self.plan.account
        rho = EXACT if account is None else account.rho
        own, shares = self._released()
        if self.name != self.plan.receiver:
            self._turns.announce(self.plan.receiver)
            kind = protocol.moment_share(self.plan, self.name)
            parts = {"own": tensor(own), "shares": tensor(shares)}
            spent: dict[str, str | float] = {"rho": rho, "release": self._release, "rows_digest": self.plan.rows_digest}
            link.send(self.plan.receiver, kind, 0, parts, **spent)
            return
        every = {self.name: (own, shares)}
        for peer in self.peers:
            self._turns.wait(peer)
            message = link.receive(peer, protocol.moment_share(self.plan, peer), 0)
            if message.meta["rho"] != rho:
                raise WireError("moment_share.rho", f"{peer!r} spends another share of the budget than was agreed")
            if message.meta["rows_digest"] != self.plan.rows_digest:
                raise WireError("moment_share.rows_digest", f"{peer!r} releases other rows than were agreed")
            every[peer] = protocol.elements(message, "own"), protocol.elements(message, "shares")
        integers = opened(self.plan, every)
        made = Moments(self.plan.rows, self.plan.slices, integers, self.plan.unit, noise_of(self.plan), account)
        self._moments = made.state()
        self._save()

    def _other(self, pair: Pair) -> str:
        return pair[1] if pair[0] == self.name else pair[0]


def opened(plan: MomentPlan, released: Mapping[str, tuple[Ring, Ring]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """All sums, from every party's own sums and shares; refused where one leaves the range that it must have."""
    whole = np.zeros((plan.width, plan.width), dtype=np.int64)
    for party, (own, _) in released.items():
        at, size = plan.slices[party], plan.widths[party]
        block = np.zeros((size, size), dtype=np.int64)
        block[np.triu_indices(size)] = ring.centred(own)
        whole[at, at] = block + np.triu(block, 1).T
    left = {party: shares for party, (_, shares) in released.items()}
    for one, other in plan.pairs:
        shape = plan.widths[one], plan.widths[other]
        size = shape[0] * shape[1]
        total = ring.centred(ring.reduce(left[one][:size] + left[other][:size])).reshape(shape)
        left[one], left[other] = left[one][size:], left[other][size:]
        whole[plan.slices[one], plan.slices[other]] = total
        whole[plan.slices[other], plan.slices[one]] = total.T
    if np.abs(whole).max(initial=0) > min(LARGEST_SUM, plan.rows * plan.most**2 + plan.noise_room):
        raise WireError("moment_share.shares", "do not add up to sums of so many rows; a party sent wrong shares")
    return whole
