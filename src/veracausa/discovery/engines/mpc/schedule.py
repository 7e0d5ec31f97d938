"""What is done when: the same for every party, for the validator, who deals, and for the clear twin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.arrays import Mask
from veracausa.crypto.ring64.arithmetic import Arithmetic, Masked
from veracausa.crypto.ring64.fixed64 import Words
from veracausa.discovery.engines.mpc.network import SharedNetwork
from veracausa.discovery.engines.mpc.protocol import as_tensor, as_words
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.runs.store import Store


class MpcSchedule(ABC):
    """A straight program; the plan says what comes next, so nobody has to ask."""

    def __init__(self, plan: Plan, arithmetic: Arithmetic, network: SharedNetwork, columns: list[Words]) -> None:
        self.plan, self.arithmetic, self.network = plan, arithmetic, network
        self._columns = columns
        self.held_out = range(len(plan.batches), len(columns))
        self.x: list[Masked] = []
        self.epoch = 0
        """So many are done."""

    def run(self, store: Store | None = None) -> None:
        """From the first epoch that is not done; with a store, what a later start goes on from is kept there."""
        plan, search = self.plan, self.plan.searches[0]
        if store is not None and store.start_step is not None:
            self.load_state(store.load(store.start_step))
        # The rows never change, so each is masked once, for all steps.
        self.x = self.arithmetic.mask(*self._columns)
        for epoch in range(self.epoch, plan.epochs):
            if epoch == plan.settings.epochs:
                with self.stretch():
                    _, squares = self.network.squares()
                self.network.restrict(self.settle(squares))
            for batch, look in plan.order(epoch):
                with self.stretch():
                    there = self.network.forward(self.x[batch])
                    self.network.backward(there, self.learn(self.network.squared_residuals(there)))
                if look:
                    self._look()
            self.end_epoch(epoch)
            self.epoch = epoch + 1
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
        with self.stretch():
            encoder, squares = self.network.squares()
        factors = self.factors(squares)
        with self.stretch():
            self.network.scale(encoder, factors)

    def _compare(self) -> None:
        """The held-out loss of graphs that the validator proposes, which no party sees."""
        with self.stretch():
            encoder, squares = self.network.squares()
        for graph in self.candidates(squares):
            with self.stretch():
                weights = self.network.under(graph, encoder)
            sums = []
            for rows in self.held_out:
                with self.stretch():
                    there = self.network.forward(self.x[rows], weights, learning=False)
                    sums.append((self.network.squared_residuals(there), len(self._columns[rows])))
            self.score(sums)
        self.choose()

    @abstractmethod
    def stretch(self) -> AbstractContextManager[None]:
        """Computing that the dealer prepares in one piece."""

    @abstractmethod
    def learn(self, sums: Words) -> Words:
        """Targets learn their noise from a batch's squared residuals; a share of what these weigh now, (d, 1)."""

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
        """Note a candidate's loss, by the squared residuals of every set of rows kept apart."""

    @abstractmethod
    def choose(self) -> None: ...


def row_sets(plan: Plan) -> list[NDArray[np.int64]]:
    """Batches, and then the rows kept apart, in sets no smaller than a batch."""
    kept_apart = np.arange(plan.train_rows, plan.rows)
    count = max(1, len(kept_apart) // len(plan.batches[0]))
    return [*plan.batches, *(np.array_split(kept_apart, count) if len(kept_apart) else [])]
