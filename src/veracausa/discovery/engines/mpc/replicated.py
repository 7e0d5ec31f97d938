"""A member of the strong mode without a dealer: three servers compute, parties hold columns, the validator judges.

A member may be a server and a party, or a server and the validator. No single one learns more than what is opened to
it. Any two servers together could open everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np
import torch

from veracausa.arrays import Array, Mask
from veracausa.crypto.ring64.arithmetic import Arithmetic, Masked
from veracausa.crypto.ring64.fixed64 import Words, added, floored, fresh_seed
from veracausa.crypto.ring64.replicated import (
    SERVERS,
    CipherStream,
    CommonKey,
    ReplicatedArithmetic,
    held,
    split,
)
from veracausa.discovery.engines.mpc import schedule as kinds
from veracausa.discovery.engines.mpc import servers as between
from veracausa.discovery.engines.mpc.network import SUM_BITS, SharedNetwork
from veracausa.discovery.engines.mpc.party import first_weights, own_columns, targets_of
from veracausa.discovery.engines.mpc.schedule import LOSSES, SUMS, MpcSchedule, as_tensor, as_words
from veracausa.discovery.engines.mpc.servers import (
    COLUMNS,
    GRAPHS,
    KEY,
    LOSS,
    RATES,
    SERVER,
    OutsideNetwork,
    rounding_seed,
    servers_of,
)
from veracausa.discovery.engines.mpc.validator import Judge
from veracausa.discovery.engines.mpc.wave_network import WaveNetwork
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.engines.shares.protocol import counter
from veracausa.errors import WireError
from veracausa.events import Observer, event_of
from veracausa.wire.link import Link
from veracausa.wire.message import Kind


class ReplicatedMember(MpcSchedule):
    """One member over its link. Without `seed` all that is secret comes from the system.

    `restart_index` says how often this run was started before. Keys, summands and the numbers of messages are never
    those of another start.
    """

    arithmetic: ReplicatedArithmetic

    def __init__(
        self,
        plan: Plan,
        name: str,
        values: Array | None,
        allowed: Mask,
        required: Mask,
        link: Link,
        seed: int | None,
        notify: Observer = lambda event: None,
        restart_index: int = 0,
    ) -> None:
        self.name, self.link, self.notify, self.restart_index = name, link, notify, restart_index
        self.servers = servers_of(plan)
        self.me = self.servers.index(name) if name in self.servers else None
        self.step = self.server_step = counter(restart_index, 0)
        self.targets = None if values is None else targets_of(plan, values)
        self.judge = Judge(plan, allowed, required) if name == VALIDATOR else None
        self.own = slice(0, 0) if values is None else plan.own(name)
        self.losses: list[float] = []
        """Of each candidate on the held-out rows."""
        self._inputs = CipherStream(fresh_seed(seed, "inputs", name, restart_index))
        self.strength_kind, self.given_kind, self.order_kind = (
            make(plan) for make in (between.strength_shares, between.given_shares, kinds.order)
        )
        link.declare(KEY, SERVER, COLUMNS, RATES, SUMS, LOSS, LOSSES, GRAPHS)
        link.declare(self.strength_kind, self.given_kind, self.order_kind)
        columns = [] if values is None else own_columns(plan, name, values)
        network: WaveNetwork | OutsideNetwork
        if self.me is None:
            arithmetic = cast("Arithmetic", None)
            network = OutsideNetwork(allowed, self._open_own)
        else:
            arithmetic = self._arithmetic(plan, seed)
            network = WaveNetwork(arithmetic, first_weights(plan, name, allowed, seed, SERVERS), allowed)
        super().__init__(plan, arithmetic, cast("SharedNetwork", network), columns)

    # --- what the schedule asks of everybody

    def enter(self, columns: list[Words]) -> list[Masked]:
        """Hand the own columns to the servers; a server puts together what all parties handed to it."""
        mine = None if self.targets is None else np.concatenate([rows[:, self.own] for rows in columns])
        parts = self._hand_in(COLUMNS, mine, [(sum(map(len, self._rows)), size) for size in self.plan.sizes])
        if self.me is None:
            return cast("list[Masked]", [None] * len(self._rows))
        first, second = (np.concatenate([part[at] for part in parts], axis=1) for at in (0, 1))
        ends = np.cumsum([len(rows) for rows in self._rows])[:-1]
        return [Masked(*pair) for pair in zip(np.split(first, ends), np.split(second, ends), strict=True)]

    def phase(self) -> AbstractContextManager[None]:
        return nullcontext()

    def learn(self, sums: Words) -> Masked:
        rates = None if self.targets is None else self.targets.learn(sums)[..., None]
        parts = self._hand_in(RATES, rates, [(size, 1, 1) for size in self.plan.sizes])
        return Masked(*(np.concatenate([part[at] for part in parts]) for at in (0, 1))) if parts else _nothing()

    def factors(self, squares: Words) -> Masked:
        self._tell(squares)
        given = self._give(None if self.judge is None else self.judge.factors()[None])
        return given[0] if given else _nothing()

    def settle(self, squares: Words) -> Mask:
        self._tell(squares)
        if self.judge is None:
            received = self.link.receive(VALIDATOR, self.order_kind, self.step).tensors["allowed"]
            allowed: Mask = received.numpy()
            return allowed
        allowed = self.judge.settle()
        for party in self.link.peers:
            self.link.send(party, self.order_kind, self.step, {"allowed": torch.from_numpy(allowed)})
        return allowed

    def end_epoch(self, epoch: int) -> None:
        if self.judge is not None:
            record = self.judge.end_epoch(epoch)
            self.notify(event_of("epoch", {"step": epoch + 1, "of": self.plan.epochs, **record}))

    def candidates(self, squares: Words) -> list[Masked]:
        self._tell(squares)
        graphs = None
        if self.judge is not None:
            found = self.judge.candidates()
            graphs = (found if self.plan.held_out else found[:0]).astype(np.uint64)
            for party in self.link.peers:
                self.link.send(party, GRAPHS, self.step, count=len(graphs))
        count = self._announced() if graphs is None else len(graphs)
        given = self._give(graphs)
        if self.me is not None and len(given) != count:
            raise WireError("graphs.count", f"is {count}, and shares of {len(given)} graphs came")
        return given or [_nothing()] * count

    def score(self, sums: list[tuple[Words, int]]) -> None:
        if self.targets is not None:
            self.losses.append(self.targets.held_out_loss(sums))

    def choose(self) -> None:
        if not self.plan.held_out:
            return
        if self.targets is not None:
            losses, empty = torch.tensor(self.losses, dtype=torch.float64), self.targets.loss_without_causes
            self.link.send(VALIDATOR, LOSSES, self.step, {"losses": losses}, empty=empty)
        if self.judge is not None:
            messages = [self.link.receive(party, LOSSES, self.step) for party in self.plan.parties]
            self.judge.choose_by(messages)

    def state(self) -> dict[str, Any]:
        """A server's holds one summand of every weight. No file has two, and none has a key."""
        more = {"targets": self.targets, "judge": self.judge}
        return super().state() | {name: part.state() for name, part in more.items() if part is not None}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        for name, part in (("targets", self.targets), ("judge", self.judge)):
            if part is not None:
                part.load_state(state[name])

    # --- between the servers

    def _arithmetic(self, plan: Plan, seed: int | None) -> ReplicatedArithmetic:
        """Each server draws the key that it has with the next one."""
        assert self.me is not None
        after, before = (self.servers[(self.me + turn) % SERVERS] for turn in (1, 2))
        drawn = fresh_seed(seed, "servers", self.name, after, self.restart_index)
        self.link.send(after, KEY, self.step, {"seed": kinds.seed_tensor(drawn)})
        received = self.link.receive(before, KEY, self.step).tensors["seed"].numpy().tobytes()
        own = CipherStream(rounding_seed(seed, self.name, self.restart_index))
        keys = CommonKey(drawn), CommonKey(received)
        return ReplicatedArithmetic(self.me, *keys, own, self._swap, self._hand_over, between.rounders(plan))

    def _swap(self, sent: Mapping[int, Words], expected: Mapping[int, int]) -> dict[int, Words]:
        self.server_step += 1
        for to, words in sent.items():
            self.link.send(self.servers[to], SERVER, self.server_step, {"words": as_tensor(words)})
        return {
            server: self._received(self.servers[server], SERVER, self.server_step, (count,))
            for server, count in expected.items()
        }

    # --- between servers, parties and the validator

    def _hand_in(self, kind: Kind, own: Words | None, shapes: list[tuple[int, ...]]) -> list[Words]:
        """Every party's numbers as summands at the servers: of each party the two that this server holds, (2, …)."""
        self.step += 1
        summands = [] if own is None else split(own, self._inputs)
        for at, server in enumerate(self.servers):
            if summands and server != self.name:
                self.link.send(server, kind, self.step, {"words": as_tensor(held(summands, at).ravel())})
        if self.me is None:
            return []
        return [
            held(summands, self.me) if party == self.name else self._received(party, kind, self.step, (2, *shape))
            for party, shape in zip(self.plan.parties, shapes, strict=True)
        ]

    def _hand_over(self, share: Words) -> Words:
        """Open to every party what is about its attributes; here the own part."""
        self.step += 1
        for party in self.plan.parties:
            if party != self.name:
                self.link.send(party, SUMS, self.step, {"words": as_tensor(share[self.plan.own(party)])})
        return self._own_sums([share[self.own]])

    def _open_own(self) -> Words:
        """As `_hand_over`, at a party that does not compute."""
        self.step += 1
        return floored(self._own_sums([]), SUM_BITS)

    def _own_sums(self, parts: list[Words]) -> Words:
        if self.targets is None:
            return np.zeros(0, dtype=np.uint64)
        shape = (self.own.stop - self.own.start,)
        return added([*parts, *(self._received(server, SUMS, self.step, shape) for server in self._other_servers())])

    def _tell(self, squares: Words) -> None:
        """Open all squared strengths to the validator, and sums of losses."""
        self.step += 1
        hidden = None if self.me is None else self.arithmetic.hidden(squares)
        if self.judge is None:
            if hidden is not None:
                self.link.send(VALIDATOR, self.strength_kind, self.step, {"words": as_tensor(hidden)})
            if self.targets is not None:
                self.link.send(VALIDATOR, LOSS, self.step, loss=self.targets.take_loss())
            return
        parts = [] if hidden is None else [hidden]
        for server in self._other_servers():
            message = self.link.receive(server, self.strength_kind, self.step)
            parts.append(as_words(message.tensors["words"]))
        losses = [self.link.receive(party, LOSS, self.step).meta["loss"] for party in self.plan.parties]
        self.judge.see(added(parts), sum(float(loss) for loss in losses))

    def _give(self, numbers: Words | None) -> list[Masked]:
        """The validator's numbers as summands at the servers."""
        if numbers is not None:
            summands = split(numbers, self._inputs)
            for at, server in enumerate(self.servers):
                if server != self.name:
                    tensors = {"words": as_tensor(held(summands, at))}
                    self.link.send(server, self.given_kind, self.step, tensors)
        if self.me is None:
            return []
        if numbers is not None:
            own = held(summands, self.me)
        else:
            own = as_words(self.link.receive(VALIDATOR, self.given_kind, self.step).tensors["words"])
        return [Masked(*pair) for pair in zip(*own, strict=True)]

    def _announced(self) -> int:
        count = self.link.receive(VALIDATOR, GRAPHS, self.step).meta["count"]
        assert isinstance(count, int)
        most = self.plan.settings.candidates + 1
        if not 0 <= count <= most:
            raise WireError("graphs.count", f"is {count}, at most {most} are compared")
        return count

    def _other_servers(self) -> Iterable[str]:
        return (server for server in self.servers if server != self.name)

    def _received(self, sender: str, kind: Kind, step: int, shape: tuple[int, ...]) -> Words:
        words = as_words(self.link.receive(sender, kind, step).tensors["words"])
        if words.size != (expected := math.prod(shape)):
            raise WireError(f"{kind.name}.words", f"has {words.size} words, expected {expected} (from {sender!r})")
        return words.reshape(shape)


def _nothing() -> Masked:
    """In the place of a number, at a member that does not compute."""
    return cast("Masked", None)
