"""The validator: it deals what products and roundings take, and looks at the strengths. It sees nothing opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Mask
from veracausa.crypto.ring64.arithmetic import Masked, zeros
from veracausa.crypto.ring64.fixed64 import Stream, Words, added, fresh_seed
from veracausa.crypto.ring64.shared import Dealer
from veracausa.discovery.engines.mpc import protocol as kinds
from veracausa.discovery.engines.mpc.network import SharedNetwork, shapes
from veracausa.discovery.engines.mpc.protocol import as_tensor, as_words
from veracausa.discovery.engines.mpc.schedule import MpcSchedule, row_sets
from veracausa.discovery.engines.mpc.structure_update import Judge
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.engines.shares.protocol import counter
from veracausa.errors import WireError
from veracausa.events import Observer, event_of
from veracausa.wire.link import Link


class StrongValidator(MpcSchedule):
    """Together with any one party it could open everything: it knows the masks, the party what they cover."""

    arithmetic: Dealer

    def __init__(
        self,
        plan: Plan,
        allowed: Mask,
        required: Mask,
        link: Link,
        seed: int | None,
        notify: Observer = lambda event: None,
        life: int = 0,
    ) -> None:
        self.link, self.notify, self.judge = link, notify, Judge(plan, allowed, required)
        self.dealt = self.looks = counter(life, 0)
        self.squares_kind, self.given_kind, self.order_kind = (
            make(plan) for make in (kinds.squares, kinds.given, kinds.order)
        )
        declared = (kinds.SEEDS, kinds.DEALT, kinds.LOSSES, self.squares_kind, self.given_kind, self.order_kind)
        seeds = {name: dealer_seeds(seed, name, life) for name in plan.parties}
        for name, (masks, roundings) in seeds.items():
            link.declare(*declared, peer=name)
            tensors = {"masks": kinds.seed_tensor(masks), "roundings": kinds.seed_tensor(roundings)}
            link.send(name, kinds.SEEDS, counter(life, 0), tensors)
        arithmetic = Dealer(*([Stream(pair[at]) for pair in seeds.values()] for at in (0, 1)))
        settings = plan.settings
        shares = {name: zeros(shape) for name, shape in shapes(plan.d, settings.width, settings.depth).items()}
        columns = [zeros((len(rows), plan.d)) for rows in row_sets(plan)]
        super().__init__(plan, arithmetic, SharedNetwork(arithmetic, shares, allowed), columns)

    @contextmanager
    def stretch(self) -> Iterator[None]:
        yield
        self.dealt += 1
        self.link.send(self.plan.parties[0], kinds.DEALT, self.dealt, {"words": as_tensor(self.arithmetic.collect())})

    def learn(self, sums: Words) -> Words:
        return zeros((self.plan.d, 1))

    def factors(self, squares: Words) -> Masked:
        self._see()
        return self._give(self.judge.factors()[None])[0]

    def settle(self, squares: Words) -> Mask:
        self._see()
        allowed = self.judge.settle()
        for party in self.plan.parties:
            self.link.send(party, self.order_kind, self.looks, {"allowed": torch.from_numpy(allowed)})
        return allowed

    def end_epoch(self, epoch: int) -> None:
        record = self.judge.end_epoch(epoch)
        self.notify(event_of("epoch", {"step": epoch + 1, "of": self.plan.epochs, **record}))

    def candidates(self, squares: Words) -> list[Masked]:
        self._see()
        graphs = self.judge.candidates()
        return self._give((graphs if self.plan.held_out else graphs[:0]).astype(np.uint64))

    def score(self, sums: list[tuple[Words, int]]) -> None:
        pass

    def choose(self) -> None:
        if not self.plan.held_out:
            return
        messages = [self.link.receive(party, kinds.LOSSES, self.looks) for party in self.plan.parties]
        losses = [message.tensors["losses"].numpy() for message in messages]
        if any(len(part) != len(losses[0]) for part in losses):
            raise WireError("losses", "a party scored other graphs than were proposed")
        self.judge.choose(np.sum(losses, axis=0), sum(float(message.meta["empty"]) for message in messages))

    def state(self) -> dict[str, Any]:
        return super().state() | {"shares": {}, "judge": self.judge.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        nothing = {name: as_tensor(words) for name, words in self.network.shares.items()}
        super().load_state({**state, "shares": nothing})
        self.judge.load_state(state["judge"])

    def _see(self) -> None:
        """Add up the parties' shares of all squared strengths."""
        self.looks += 1
        messages = [self.link.receive(party, self.squares_kind, self.looks) for party in self.plan.parties]
        squares = added([as_words(message.tensors["words"]) for message in messages])
        self.judge.see(squares, sum(float(message.meta["loss"]) for message in messages))

    def _give(self, numbers: Words) -> list[Masked]:
        pairs = [self.arithmetic.deal_input(number) for number in numbers]
        told = np.stack([opened for opened, _ in pairs]) if pairs else numbers
        for party in self.plan.parties:
            self.link.send(party, self.given_kind, self.looks, {"words": as_tensor(told)})
        return [masked for _, masked in pairs]


def dealer_seeds(seed: int | None, name: str, life: int) -> tuple[bytes, bytes]:
    """For a party's shares of masks, and of roundings; those of another life of the run are others."""
    return fresh_seed(seed, "masks", name, life), fresh_seed(seed, "roundings", name, life)
