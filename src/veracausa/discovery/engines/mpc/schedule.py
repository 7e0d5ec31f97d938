"""What is done when, and which messages may cross: the same for every party, for the validator and for the twin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.arrays import Array, Mask
from veracausa.crypto.ring64.arithmetic import Arithmetic, Masked
from veracausa.crypto.ring64.fixed64 import SEED_BYTES, Words
from veracausa.discovery.engines.mpc.network import SharedNetwork
from veracausa.discovery.engines.mpc.servers import servers_of
from veracausa.discovery.engines.shares.plan import Plan, make_plan
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError
from veracausa.runs.store import Store
from veracausa.wire.message import Kind, TensorSpec


class MpcSchedule(ABC):
    """A straight program; the plan says what comes next, so nobody has to ask."""

    def __init__(self, plan: Plan, arithmetic: Arithmetic, network: SharedNetwork, columns: list[Words]) -> None:
        self.plan, self.arithmetic, self.network = plan, arithmetic, network
        self._columns, self._rows = columns, row_sets(plan)
        self.held_out = range(len(plan.batches), len(self._rows))
        self.x: list[Masked] = []
        self.epoch = 0
        """So many are done."""
        self.tell: Callable[[int], None] = lambda done: None
        """Hears after every epoch how many are done."""

    def run(self, store: Store | None = None) -> None:
        """From the first epoch that is not done; with a store, what a later start goes on from is kept there."""
        plan, search = self.plan, self.plan.groups[0]
        if store is not None and store.start_step is not None:
            self.load_state(store.load(store.start_step))
        self.x = self.enter(self._columns)
        for epoch in range(self.epoch, plan.epochs):
            if epoch == plan.settings.epochs:
                with self.phase():
                    _, squares = self.network.squares()
                self.network.restrict(self.settle(squares))
            for batch, update in plan.order(epoch):
                with self.phase():
                    there = self.network.forward(self.x[batch])
                    self.network.backward(there, self.learn(self.network.squared_residuals(there)))
                if update:
                    self._look()
            self.end_epoch(epoch)
            self.epoch = epoch + 1
            self.tell(self.epoch)
            if store is not None and plan.keeps(search, self.epoch):
                store.save(self.epoch, self.state())
        self._compare()

    def state(self) -> dict[str, Any]:
        """What the next epoch depends on. No mask and no seed of one: a later start has new ones."""
        shares = {name: as_tensor(words) for name, words in self.network.shares.items()}
        return {"epoch": self.epoch, "allowed": torch.from_numpy(self.network.allowed), "shares": shares}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.network.allowed = state["epoch"], state["allowed"].numpy()
        self.network.shares = {name: as_words(words) for name, words in state["shares"].items()}

    def _look(self) -> None:
        with self.phase():
            encoder, squares = self.network.squares()
        factors = self.factors(squares)
        with self.phase():
            self.network.scale(encoder, factors)

    def _compare(self) -> None:
        """The held-out loss of graphs that the validator proposes, which no party sees."""
        with self.phase():
            encoder, squares = self.network.squares()
        for graph in self.candidates(squares):
            with self.phase():
                weights = self.network.under(graph, encoder)
            sums = []
            for rows in self.held_out:
                with self.phase():
                    there = self.network.forward(self.x[rows], weights, learning=False)
                    sums.append((self.network.squared_residuals(there), len(self._rows[rows])))
            self.score(sums)
        self.choose()

    def enter(self, columns: list[Words]) -> list[Masked]:
        """Make every set of rows ready for products. They never change, so this is done once, for all steps."""
        return self.arithmetic.mask(*columns)

    @abstractmethod
    def phase(self) -> AbstractContextManager[None]:
        """Computing that the dealer prepares in one piece."""

    @abstractmethod
    def learn(self, sums: Words) -> Masked:
        """Targets learn their noise from a batch's squared residuals; what these weigh now, (d, 1, 1)."""

    @abstractmethod
    def settle(self, squares: Words) -> Mask:
        """The edges that the order of the attributes leaves."""

    @abstractmethod
    def factors(self, squares: Words) -> Masked:
        """By which every block is scaled."""

    @abstractmethod
    def end_epoch(self, epoch: int) -> None: ...

    @abstractmethod
    def candidates(self, squares: Words) -> list[Masked]:
        """The graphs to compare."""

    @abstractmethod
    def score(self, sums: list[tuple[Words, int]]) -> None:
        """Note a candidate's loss, by the squared residuals of every set of held-out rows."""

    @abstractmethod
    def choose(self) -> None: ...


def row_sets(plan: Plan) -> list[NDArray[np.int64]]:
    """Batches, and then the held-out rows, in sets no smaller than a batch."""
    kept_apart = np.arange(plan.train_rows, plan.rows)
    count = max(1, len(kept_apart) // len(plan.batches[0]))
    return [*plan.batches, *(np.array_split(kept_apart, count) if len(kept_apart) else [])]


_SEED = TensorSpec(torch.uint8, (SEED_BYTES,))
_WORDS = TensorSpec(torch.int64, (None,), max_free=1 << 28)

SEEDS = Kind("seeds", {"masks": _SEED, "roundings": _SEED})
"""From the dealer to a party, once: what its shares of all masks are drawn from."""
COMMON_SEED = Kind("common seed", {"seed": _SEED})
"""Between two parties, once: the validator must not know it."""
DEALT = Kind("dealt", {"words": _WORDS}, secret_shared=True)
"""From the dealer to the first party: what makes the drawn shares add up to products."""
OPENING = Kind("opening", {"words": _WORDS}, secret_shared=True)
"""Between parties: shares of masked numbers."""
SUMS = Kind("sums", {"words": TensorSpec(torch.int64, (None,))}, secret_shared=True)
"""To a target: shares of its attributes' sums of squared residuals."""
LOSSES = Kind("losses", {"losses": TensorSpec(torch.float64, (None,))}, {"empty": float})
"""A party's held-out loss of each candidate, summed over its attributes and rows, and that without any causes."""


def squares(plan: Plan) -> Kind:
    """To the validator: shares of all squared strengths."""
    return Kind("squares", {"words": TensorSpec(torch.int64, (plan.d, plan.d))}, {"loss": float}, secret_shared=True)


def given(plan: Plan) -> Kind:
    """From the validator: factors or graphs, masked."""
    return Kind("given", {"words": TensorSpec(torch.int64, (None, plan.d, plan.d))}, secret_shared=True)


def order(plan: Plan) -> Kind:
    """From the validator, once: the edges that the order of the attributes leaves."""
    return Kind("order", {"allowed": TensorSpec(torch.bool, (plan.d, plan.d))})


def as_tensor(words: Words) -> Tensor:
    return torch.from_numpy(np.require(words, requirements=["C", "W"]).view(np.int64))


def as_words(tensor: Tensor) -> Words:
    return tensor.numpy().view(np.uint64)


def seed_tensor(seed: bytes) -> Tensor:
    return torch.frombuffer(bytearray(seed), dtype=torch.uint8)


NO_BERNOULLI = "the strong mode has no Bernoulli likelihood; set bernoulli to false to fit it as a number"
FEWEST = 8
"""Rows whose squared residuals are opened as one sum."""


def strong_plan(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    train_rows: int | None,
    seed: int | None,
    **agreed: Any,
) -> Plan:
    """What all parties know; settings that this mode has no place for are refused."""
    if settings.servers and settings.strong != "replicated":
        raise InputError("servers: they compute on replicated shares; set strong to 'replicated', or leave servers out")
    if settings.sparsity == "l2":
        raise InputError("sparsity = 'l2': decoders on shares do not decay; use 'group_lasso'")
    if settings.bottleneck is not None or settings.row_noise is not None:
        raise InputError("bottleneck and row_noise change what is opened of a row; here nothing is, so leave them out")
    if settings.likelihood not in ("gaussian", "mse"):
        raise InputError(
            f"likelihood: the strong mode has no {settings.likelihood!r}; set likelihood to 'gaussian' or 'mse'"
        )
    if settings.noisy_rate != 1 or settings.refit_noisy_rate != 1:
        raise InputError(
            "noisy_rate, refit_noisy_rate: the strong mode has one rate for all attributes; leave them out"
        )
    if len(settings.each) > 1:
        raise InputError("searches: the strong mode has one; set searches to []")
    plan = make_plan(columns, names, settings.each[0], train_rows, seed, **agreed)
    if settings.strong == "replicated":
        servers_of(plan)  # refuses who can not compute
    fewest = min(len(rows) for rows in row_sets(plan))
    if fewest < FEWEST:
        raise InputError(f"batch: sums over {fewest} rows would be opened, which are nearly rows; at least {FEWEST}")
    return plan
