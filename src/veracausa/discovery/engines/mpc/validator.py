"""The validator: it deals what products and roundings take, and judges the graph by strengths alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Array, Mask
from veracausa.crypto.ring64.arithmetic import Masked, zeros
from veracausa.crypto.ring64.fixed64 import Stream, Words, added, decode, encode, fresh_seed
from veracausa.crypto.ring64.shared import Dealer
from veracausa.discovery.engines.mpc import schedule as kinds
from veracausa.discovery.engines.mpc.cubic_network import CubicNetwork
from veracausa.discovery.engines.mpc.network import FACTOR_BITS, WEIGHT_BITS, shapes
from veracausa.discovery.engines.mpc.schedule import MpcSchedule, as_tensor, as_words, row_sets
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.engines.shares.protocol import counter
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd import structure as rules
from veracausa.discovery.methods.vfedcd.structure import Structure
from veracausa.discovery.result import Fit
from veracausa.errors import RunError, WireError
from veracausa.events import Observer, event_of
from veracausa.wire.link import Link
from veracausa.wire.message import Message


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
        restart_index: int = 0,
    ) -> None:
        self.link, self.notify, self.judge = link, notify, Judge(plan, allowed, required)
        self.dealt = self.updates = counter(restart_index, 0)
        self.squares_kind, self.given_kind, self.order_kind = (
            make(plan) for make in (kinds.squares, kinds.given, kinds.order)
        )
        declared = (kinds.SEEDS, kinds.DEALT, kinds.LOSSES, self.squares_kind, self.given_kind, self.order_kind)
        seeds = {name: dealer_seeds(seed, name, restart_index) for name in plan.parties}
        for name, (masks, roundings) in seeds.items():
            link.declare(*declared, peer=name)
            tensors = {"masks": kinds.seed_tensor(masks), "roundings": kinds.seed_tensor(roundings)}
            link.send(name, kinds.SEEDS, counter(restart_index, 0), tensors)
        arithmetic = Dealer(*([Stream(pair[at]) for pair in seeds.values()] for at in (0, 1)))
        settings = plan.settings
        shares = {name: zeros(shape) for name, shape in shapes(plan.d, settings.width, settings.depth).items()}
        columns = [zeros((len(rows), plan.d)) for rows in row_sets(plan)]
        super().__init__(plan, arithmetic, CubicNetwork(arithmetic, shares, allowed), columns)

    @contextmanager
    def phase(self) -> Iterator[None]:
        yield
        self.dealt += 1
        self.link.send(self.plan.parties[0], kinds.DEALT, self.dealt, {"words": as_tensor(self.arithmetic.collect())})

    def learn(self, sums: Words) -> Masked:
        return self.arithmetic.mask(zeros((self.plan.d, 1, 1)))[0]

    def factors(self, squares: Words) -> Masked:
        self._see()
        return self._give(self.judge.factors()[None])[0]

    def settle(self, squares: Words) -> Mask:
        self._see()
        allowed = self.judge.settle()
        for party in self.plan.parties:
            self.link.send(party, self.order_kind, self.updates, {"allowed": torch.from_numpy(allowed)})
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
        self.judge.choose_by([self.link.receive(party, kinds.LOSSES, self.updates) for party in self.plan.parties])

    def state(self) -> dict[str, Any]:
        return super().state() | {"shares": {}, "judge": self.judge.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        nothing = {name: as_tensor(words) for name, words in self.network.shares.items()}
        super().load_state({**state, "shares": nothing})
        self.judge.load_state(state["judge"])

    def _see(self) -> None:
        """Add up the parties' shares of all squared strengths."""
        self.updates += 1
        messages = [self.link.receive(party, self.squares_kind, self.updates) for party in self.plan.parties]
        squares = added([as_words(message.tensors["words"]) for message in messages])
        self.judge.see(squares, sum(float(message.meta["loss"]) for message in messages))

    def _give(self, numbers: Words) -> list[Masked]:
        pairs = [self.arithmetic.deal_input(number) for number in numbers]
        given = np.stack([opened for opened, _ in pairs]) if pairs else numbers
        for party in self.plan.parties:
            self.link.send(party, self.given_kind, self.updates, {"words": as_tensor(given)})
        return [masked for _, masked in pairs]


def dealer_seeds(seed: int | None, name: str, restart_index: int) -> tuple[bytes, bytes]:
    """For a party's shares of masks, and of roundings; those of another start of the run are others."""
    return fresh_seed(seed, "masks", name, restart_index), fresh_seed(seed, "roundings", name, restart_index)


class Judge:
    """Sees the (d, d) strengths and sums of losses."""

    def __init__(self, plan: Plan, allowed: Mask, required: Mask) -> None:
        self.plan, self.required = plan, required
        self.structure = Structure(plan.settings, allowed[None], required)
        self.strengths = np.zeros((plan.d, plan.d))
        self.threshold, self.held_out_loss = 0.0, float("nan")
        self.history: list[dict[str, float]] = []
        self.loss = 0.0
        self._thresholds, self._graphs = np.zeros(1), np.zeros((1, plan.d, plan.d), dtype=bool)

    def fit(self) -> Fit:
        """What was found, as one replicate of one search."""
        unknown = np.full(1, np.nan)
        found = self.strengths[None], self.structure.allowed, np.array([self.threshold]), np.array([self.held_out_loss])
        return Fit(*found, unknown, np.zeros(1, dtype=int), unknown, self.history)

    def see(self, squares: Words, loss: float) -> None:
        self.strengths = np.sqrt(np.maximum(decode(squares, 2 * WEIGHT_BITS), 0.0))
        self.loss += loss

    def factors(self) -> Words:
        """How every block is scaled."""
        factors = self.structure.factors(self.strengths[None], self.plan.every)[0]
        self.strengths = self.strengths * factors
        return encode(factors, FACTOR_BITS, 2.0)

    def settle(self) -> Mask:
        """End the search; from now on edges follow one order."""
        allowed: Mask = self.structure.settle(self.strengths[None])[0]
        self.strengths = self.strengths * allowed
        return allowed

    def end_epoch(self, epoch: int) -> dict[str, float]:
        structure = self.structure
        structure.end_epoch(self.strengths[None], epoch)
        record = {
            "epoch": float(epoch + 1),
            "weight": float(structure.weight[0]) if structure.searching else 0.0,
            "loss": self.loss / len(self.plan.batches),
            "acyclicity": float(structure.value[0]),
        }
        self.loss = 0.0
        if not np.isfinite(record["loss"]):
            raise RunError(
                f"the fit diverged in epoch {epoch + 1}; lower its rate ({self.plan.settings.learning_rate})"
            )
        self.history.append(record)
        return record

    def state(self) -> dict[str, Any]:
        structure = self.structure
        arrays = {"strengths": self.strengths, "allowed": structure.allowed, "weight": structure.weight,
                  "value": structure.value}  # fmt: skip
        return {
            "arrays": {name: torch.from_numpy(array) for name, array in arrays.items()},
            "penalty": {name: torch.from_numpy(array) for name, array in structure.penalty.state().items()},
            "searching": structure.searching,
            "history": self.history,
            "loss": self.loss,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        structure = self.structure
        arrays = {name: array.numpy() for name, array in state["arrays"].items()}
        self.strengths, structure.allowed = arrays["strengths"], arrays["allowed"]
        structure.weight, structure.value = arrays["weight"], arrays["value"]
        structure.penalty.load_state({name: array.numpy() for name, array in state["penalty"].items()})
        structure.searching, self.loss = state["searching"], state["loss"]
        self.history = [dict(record) for record in state["history"]]

    def candidates(self) -> Mask:
        """The graphs that are compared on held-out rows, (R, d, d)."""
        settings, allowed = self.plan.settings, self.structure.allowed[0]
        self.strengths = strengths = np.where(allowed, self.strengths, 0.0)
        if settings.threshold in rules.BY_LIKELIHOOD and self.plan.held_out:
            self._thresholds, self._graphs = rules.candidates(strengths, allowed, self.required, settings.candidates)
        else:
            fixed = settings.threshold if isinstance(settings.threshold, float) else 0.0
            found = rules.mixture_threshold(strengths, allowed) if settings.threshold == "mixture" else fixed
            self._thresholds = np.array([found])
            self._graphs = greedy_cut(strengths, found, self.required, ~allowed)[None]
        self.threshold = float(self._thresholds[0])
        return self._graphs

    def choose_by(self, messages: Sequence[Message]) -> None:
        """By what every party sent of its losses."""
        losses = [message.tensors["losses"].numpy() for message in messages]
        if any(len(part) != len(self._graphs) for part in losses):
            raise WireError("losses", "a party scored other graphs than were proposed")
        self.choose(np.sum(losses, axis=0), sum(float(message.meta["empty"]) for message in messages))

    def choose(self, losses: Array, empty: float) -> None:
        edges = self._graphs.sum((1, 2))
        chosen = rules.most_worthy(losses, edges, empty, self.plan.d, self.plan.settings.min_edge_gain)
        self.threshold, self.held_out_loss = float(self._thresholds[chosen]), float(losses[chosen])
