"""The strong mode in one place and in the clear: the integers that the parties' shares add up to. NOT PROTECTED."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto.ring64.arithmetic import Arithmetic, Floating, Masked, PlaintextArithmetic, real, whole
from veracausa.crypto.ring64.fixed64 import Stream, Words, added
from veracausa.crypto.ring64.replicated import CipherStream, ReplicatedInTheClear
from veracausa.discovery.engines.mpc.cubic_network import CubicNetwork
from veracausa.discovery.engines.mpc.network import SharedNetwork
from veracausa.discovery.engines.mpc.party import first_weights, own_columns, targets_of
from veracausa.discovery.engines.mpc.schedule import MpcSchedule
from veracausa.discovery.engines.mpc.servers import rounders, rounding_seed, servers_of
from veracausa.discovery.engines.mpc.validator import Judge, dealer_seeds
from veracausa.discovery.engines.mpc.wave_network import WaveNetwork
from veracausa.discovery.engines.shares.plan import Plan


class StrongTwin(MpcSchedule):
    """All parties' targets and the validator's judge around one clear network; a seed gives the federation's bits."""

    arithmetic: Arithmetic

    def __init__(
        self,
        plan: Plan,
        columns: Mapping[str, Array],
        allowed: Mask,
        required: Mask,
        seed: int,
        progress: Callable[[dict[str, float]], None] = lambda record: None,
        restart_index: int = 0,
    ) -> None:
        self.judge, self.progress = Judge(plan, allowed, required), progress
        self.targets = {name: targets_of(plan, values) for name, values in columns.items()}
        self.losses: dict[str, list[float]] = {name: [] for name in columns}
        replicated = plan.settings.strong == "replicated"
        arithmetic = (
            in_the_clear(plan, seed, restart_index) if replicated else dealt_in_the_clear(plan, seed, restart_index)
        )
        drawing = servers_of(plan) if replicated else plan.parties
        drawn = [first_weights(plan, name, allowed, seed, len(drawing)) for name in drawing]
        weights = {part: added([one[part] for one in drawn]) for part in drawn[0]}
        held = [own_columns(plan, name, values) for name, values in columns.items()]
        whole = [added(parts) for parts in zip(*held, strict=True)]
        super().__init__(plan, arithmetic, network_of(plan, arithmetic, weights, allowed), whole)

    def phase(self) -> AbstractContextManager[None]:
        return nullcontext()

    def learn(self, sums: Words) -> Masked:
        rates = [targets.learn(sums[self.plan.own(name)]) for name, targets in self.targets.items()]
        return self.arithmetic.mask(np.concatenate(rates)[..., None])[0]

    def factors(self, squares: Words) -> Masked:
        self._see(squares)
        return self.arithmetic.mask(self.judge.factors())[0]

    def settle(self, squares: Words) -> Mask:
        self._see(squares)
        return self.judge.settle()

    def end_epoch(self, epoch: int) -> None:
        self.progress(self.judge.end_epoch(epoch))

    def candidates(self, squares: Words) -> list[Masked]:
        self._see(squares)
        graphs = self.judge.candidates()
        return self.arithmetic.mask(*graphs.astype(np.uint64)) if self.plan.held_out else []

    def score(self, sums: list[tuple[Words, int]]) -> None:
        for name, targets in self.targets.items():
            own = [(part[self.plan.own(name)], rows) for part, rows in sums]
            self.losses[name].append(targets.held_out_loss(own))

    def choose(self) -> None:
        if self.plan.held_out:
            losses = np.sum([np.array(losses) for losses in self.losses.values()], axis=0)
            empty = sum(targets.loss_without_causes for targets in self.targets.values())
            self.judge.choose(losses, empty)

    def state(self) -> dict[str, Any]:
        targets = {name: targets.state() for name, targets in self.targets.items()}
        return super().state() | {"targets": targets, "judge": self.judge.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.judge.load_state(state["judge"])
        for name, targets in self.targets.items():
            targets.load_state(state["targets"][name])

    def _see(self, squares: Words) -> None:
        self.judge.see(squares, sum(targets.take_loss() for targets in self.targets.values()))


def network_of(plan: Plan, arithmetic: Any, weights: Mapping[str, Any], allowed: Mask) -> SharedNetwork:
    """With the units of this plan's mode."""
    made: Any = WaveNetwork if plan.settings.strong == "replicated" else CubicNetwork
    network: SharedNetwork = made(arithmetic, weights, allowed)
    return network


def dealt_in_the_clear(plan: Plan, seed: int, restart_index: int) -> PlaintextArithmetic:
    """Rounding as the masks would that a dealer draws for every party."""
    return PlaintextArithmetic([Stream(dealer_seeds(seed, name, restart_index)[1]) for name in plan.parties])


def in_the_clear(plan: Plan, seed: int, restart_index: int) -> PlaintextArithmetic:
    """Rounding as the masks would that the three servers draw in turn."""
    streams = [CipherStream(rounding_seed(seed, name, restart_index)) for name in servers_of(plan)]
    return ReplicatedInTheClear(streams, rounders(plan))


class FloatTwin(StrongTwin):
    """The same model in floating point, from the same first weights."""

    def __init__(
        self, plan: Plan, columns: Mapping[str, Array], allowed: Mask, required: Mask, seed: int, **more: Any
    ) -> None:
        super().__init__(plan, columns, allowed, required, seed, **more)
        weights = {name: real(words) for name, words in self.network.shares.items()}
        self.arithmetic = Floating()
        self.network = network_of(plan, self.arithmetic, weights, allowed)

    def _see(self, squares: Words) -> None:
        super()._see(whole(squares))
