"""A party that holds attributes: shares of everything, and its own attributes' noise in the clear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point
from veracausa.crypto.ring64.arithmetic import Masked, zeros
from veracausa.crypto.ring64.fixed64 import Stream, Words, fresh_seed
from veracausa.crypto.ring64.shared import SharedArithmetic
from veracausa.discovery.engines.mpc import schedule as kinds
from veracausa.discovery.engines.mpc.cubic_network import CubicNetwork
from veracausa.discovery.engines.mpc.network import FARTHEST, Targets, draw_share
from veracausa.discovery.engines.mpc.schedule import DEALT, OPENING, SUMS, MpcSchedule, as_tensor, as_words, row_sets
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.engines.shares.protocol import counter
from veracausa.errors import WireError
from veracausa.wire.link import Link
from veracausa.wire.message import Kind


class StrongParty(MpcSchedule):
    """One party over its link. Without `seed` all that is secret comes from the system.

    `restart_index` says how often this run was started before. Masks, and the numbers of messages, are never those of
    another start.
    """

    arithmetic: SharedArithmetic

    def __init__(
        self, plan: Plan, name: str, values: Array, allowed: Mask, link: Link, seed: int | None, restart_index: int = 0
    ) -> None:
        self.name, self.link, self.seed, self.restart_index = name, link, seed, restart_index
        self.own, self.peers, self.first = plan.own(name), plan.peers(name), name == plan.parties[0]
        self.exchange = self.dealt = self.updates = counter(restart_index, 0)
        self.squares_kind, self.given_kind, self.order_kind = (
            make(plan) for make in (kinds.squares, kinds.given, kinds.order)
        )
        link.declare(
            kinds.SEEDS, DEALT, kinds.LOSSES, self.squares_kind, self.given_kind, self.order_kind, peer=VALIDATOR
        )
        for peer in self.peers:
            link.declare(kinds.COMMON_SEED, OPENING, SUMS, peer=peer)
        self.targets = targets_of(plan, values)
        self.losses: list[float] = []
        """Of each candidate on the held-out rows."""
        self.common = self._agree_on_seeds(plan)
        seeds = link.receive(VALIDATOR, kinds.SEEDS, counter(restart_index, 0)).tensors
        masks, roundings = (Stream(seeds[purpose].numpy().tobytes()) for purpose in ("masks", "roundings"))
        arithmetic = SharedArithmetic(self.first, masks, roundings, self._add_up, self._hand_over)
        network = CubicNetwork(arithmetic, first_weights(plan, name, allowed, seed), allowed)
        super().__init__(plan, arithmetic, network, own_columns(plan, name, values))

    @contextmanager
    def phase(self) -> Iterator[None]:
        if self.first:
            self.dealt += 1
            self.arithmetic.begin(as_words(self.link.receive(VALIDATOR, DEALT, self.dealt).tensors["words"]))
        yield
        self.arithmetic.end()

    def learn(self, sums: Words) -> Masked:
        rates = zeros((self.plan.d, 1, 1))
        rates[self.own, :, 0] = self.targets.learn(sums)
        return self.arithmetic.mask(rates)[0]

    def factors(self, squares: Words) -> Masked:
        self._tell(squares)
        return self.arithmetic.from_dealer(self._receive_given()[0])

    def settle(self, squares: Words) -> Mask:
        self._tell(squares)
        received = self.link.receive(VALIDATOR, self.order_kind, self.updates).tensors["allowed"]
        allowed: Mask = received.numpy()
        return allowed

    def end_epoch(self, epoch: int) -> None:
        pass

    def candidates(self, squares: Words) -> list[Masked]:
        self._tell(squares)
        return [self.arithmetic.from_dealer(graph) for graph in self._receive_given()]

    def score(self, sums: list[tuple[Words, int]]) -> None:
        self.losses.append(self.targets.held_out_loss(sums))

    def choose(self) -> None:
        if self.losses:
            losses = torch.tensor(self.losses, dtype=torch.float64)
            empty = self.targets.loss_without_causes
            self.link.send(VALIDATOR, kinds.LOSSES, self.updates, {"losses": losses}, empty=empty)

    def state(self) -> dict[str, Any]:
        return super().state() | {"targets": self.targets.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.targets.load_state(state["targets"])

    def _tell(self, squares: Words) -> None:
        """Hand the validator a share that says nothing but in the sum: it knows all masks, so it gets fresh ones."""
        self.updates += 1
        for peer, stream in self.common.items():
            drawn = stream.take(squares.shape)
            squares = squares + drawn if self.name < peer else squares - drawn
        words = {"words": as_tensor(squares)}
        self.link.send(VALIDATOR, self.squares_kind, self.updates, words, loss=self.targets.take_loss())

    def _receive_given(self) -> Words:
        return as_words(self.link.receive(VALIDATOR, self.given_kind, self.updates).tensors["words"])

    def _agree_on_seeds(self, plan: Plan) -> dict[str, Stream]:
        """One stream with every peer, which the party with the lower name draws the seed of."""
        common = {}
        for peer in self.peers:
            if self.name < peer:
                drawn = fresh_seed(self.seed, "common", self.name, peer, self.restart_index)
                self.link.send(
                    peer, kinds.COMMON_SEED, counter(self.restart_index, 0), {"seed": kinds.seed_tensor(drawn)}
                )
                common[peer] = Stream(drawn)
        for peer in self.peers:
            if self.name > peer:
                received = self.link.receive(peer, kinds.COMMON_SEED, counter(self.restart_index, 0)).tensors["seed"]
                common[peer] = Stream(received.numpy().tobytes())
        return common

    def _add_up(self, share: Words) -> Words:
        self.exchange += 1
        words = {"words": as_tensor(share)}
        for peer in self.peers:
            self.link.send(peer, OPENING, self.exchange, words)
        for peer in self.peers:
            share = share + self._received(peer, OPENING, share)
        return share

    def _hand_over(self, share: Words) -> Words:
        self.exchange += 1
        for peer in self.peers:
            words = {"words": as_tensor(share[self.plan.own(peer)])}
            self.link.send(peer, SUMS, self.exchange, words)
        own = share[self.own]
        for peer in self.peers:
            own = own + self._received(peer, SUMS, own)
        return own

    def _received(self, peer: str, kind: Kind, like: Words) -> Words:
        words = as_words(self.link.receive(peer, kind, self.exchange).tensors["words"])
        if words.shape != like.shape:
            raise WireError(f"{kind.name}.words", f"has {words.size} words, expected {like.size} (from {peer!r})")
        return words


def first_weights(
    plan: Plan, name: str, allowed: Mask, seed: int | None, drawing: int | None = None
) -> dict[str, Words]:
    """What one of so many (by default all parties) draws of the first weights."""
    stream = Stream(fresh_seed(seed, "weights", name))
    return draw_share(stream, drawing or len(plan.parties), plan.settings.depth, allowed, plan.settings.width)


def own_columns(plan: Plan, name: str, values: Array) -> list[Words]:
    """A party's share of every batch, (n, d): its columns, and zeros. It is masked before anything is sent."""
    own = plan.own(name)
    near = np.clip(values, -FARTHEST, FARTHEST)
    whole = zeros((len(values), plan.d))
    whole[:, own] = fixed_point.encode_columns(near, plan.names[own]).astype(np.int64).view(np.uint64)
    return [whole[rows] for rows in row_sets(plan)]


def targets_of(plan: Plan, values: Array) -> Targets:
    kept_apart = np.clip(values[plan.train_rows :], -FARTHEST, FARTHEST)
    return Targets(kept_apart, len(plan.batches[0]), plan.settings)
