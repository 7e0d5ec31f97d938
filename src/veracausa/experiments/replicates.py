"""VFedCD on many graphs and with many seeds at once: replicates of one model are trained side by side.

Three models stand here for comparison only: parties that encode their own columns, in one layer or in two, and
features that are protected.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.data.causal.columns import prepare
from veracausa.discovery.engines.centralized import CentralizedVFedCD, Searches
from veracausa.discovery.engines.staged import StagedSearch
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.decoders import SQUARES
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.start import moments_graph
from veracausa.discovery.privacy.countermeasures import mixing
from veracausa.experiments.discovery_cell import DiscoveryCell, FitResult, GraphTable
from veracausa.seeding import derive


def side_by_side(cell: DiscoveryCell, fits: Sequence[tuple[GraphTable, int]]) -> list[FitResult] | None:
    """A graph for every table and seed; the seconds are those of all, shared out.

    None where tables are not alike: in rows, in which columns have two values, or because a column is constant.
    """
    started = time.process_time()
    settings = VFedCD(**cell.method_settings).settings()
    ready = [_split(settings, table, seed) for table, seed in fits]
    first, _, binary = ready[0]
    if any(rows.shape != first.shape or not np.array_equal(flags, binary) for rows, _, flags in ready):
        return None
    if first.shape[1] < len(fits[0][0].owners):
        return None
    rng = np.random.default_rng(derive(cell.seeds[0], "discovery", "replicates", *cell.graphs, *cell.seeds))
    d, count = len(binary), len(fits)
    owners = np.stack([table.owners for table, _ in fits])

    start = stands = None
    if settings.start == "moments":
        each = zip(ready, fits, strict=True)
        found = [moments_graph(train, table.data.names, seed=seed) for (train, _, _), (table, seed) in each]
        start, stands = np.stack([graph for graph, _ in found]), np.array([lines for _, lines in found])

    def make(one: Settings, copies: int = 1) -> CentralizedVFedCD:
        if cell.method in LOCAL:
            return LOCAL[cell.method](one, owners, rng)
        if one.bottleneck or one.row_noise:
            return ProtectedModel(one, owners, rng, binary)
        own = None if settings.refits else start
        return CentralizedVFedCD(one, d, rng, binary=binary, replicates=copies * count, start=own)

    model = StagedSearch(settings, make, start, stands) if settings.refits else Searches(settings, make)
    fit = model.fit(np.stack([train for train, _, _ in ready]), np.stack([kept for _, kept, _ in ready]))
    seconds = (time.process_time() - started) / count
    results = zip(fit.strengths, fit.allowed, fit.thresholds, strict=True)
    return [
        FitResult(
            greedy_cut(np.where(allowed, strengths, 0.0), threshold),
            seconds,
            scores=model.counts(at) if isinstance(model, StagedSearch) else {},
        )
        for at, (strengths, allowed, threshold) in enumerate(results)
    ]


def _split(settings: Settings, table: GraphTable, seed: int) -> tuple[Array, Array, Mask]:
    """Rows to train on and rows kept apart, as a single fit with this seed has them, and which columns are binary."""
    values = table.data.values
    order = np.random.default_rng(derive(seed, "discovery", "kept apart")).permutation(len(values))
    train = len(values) - round(settings.held_out * len(values))
    ready = prepare(values[order], table.data.names, train_rows=train, missing="median", nominal=table.data.nominal)
    binary = np.array(ready.binary) & settings.bernoulli & (settings.likelihood not in SQUARES)
    fitted = ready.values.copy()
    low, high = fitted.min(axis=0), fitted.max(axis=0)
    fitted[:, binary] = (fitted > (low + high) / 2)[:, binary]
    return fitted[:train], fitted[train:], binary


class LocalEncoders(CentralizedVFedCD):
    """Each party has hidden units of its own for every target, which see its own columns only.

    With `depth = 0` their outputs are only added up; with more, decoders mix them.
    """

    def __init__(self, settings: Settings, owners: NDArray[np.int_], rng: np.random.Generator) -> None:
        replicates, d = owners.shape
        parties = int(owners.max()) + 1
        wide = settings.model_copy(update={"width": parties * settings.width})
        super().__init__(wide, d, rng, replicates=replicates)
        of_unit = np.repeat(np.arange(parties), settings.width)
        self.of_one_party = (of_unit[:, None] == of_unit).astype(float)
        """(units, units): whether two units are of one party."""
        self.sees = (owners[:, :, None, None] == of_unit).astype(float)
        """(R, d, 1, units): whether a unit sees a source."""
        # A party's units are a part of all: without this they would begin smaller than those of a shared encoder.
        self.weights *= self.sees * np.sqrt(parties)

    def _step(self, x: Array) -> Array:
        losses = super()._step(x)
        self.weights *= self.sees
        return losses


class TwoLayerEncoders(LocalEncoders):
    """Each party encodes its own columns in two layers, σ(W σ(φx)), and what it sends is only added up: the paper's
    dEsD (Appendix E.5.2), with a learnt read-out in place of the plain mean of the parts."""

    def __init__(self, settings: Settings, owners: NDArray[np.int_], rng: np.random.Generator) -> None:
        super().__init__(settings.model_copy(update={"depth": 1}), owners, rng)
        self.decoders.values["weight_0"] *= self.of_one_party * np.sqrt(int(owners.max()) + 1)

    def _step(self, x: Array) -> Array:
        losses = super()._step(x)
        self.decoders.values["weight_0"] *= self.of_one_party
        return losses


LOCAL: dict[str, type[LocalEncoders]] = {"local_encoders": LocalEncoders, "two_layer_encoders": TwoLayerEncoders}
"""Models of local encoders, by the names that experiments have for them."""


class ProtectedModel(CentralizedVFedCD):
    """`owners` (R, d) number the party of each attribute: weights between parties pass the bottleneck, and every target
    has noise on its features, because each has a foreign source."""

    def __init__(
        self,
        settings: Settings,
        owners: NDArray[np.int_],
        rng: np.random.Generator,
        binary: Mask | None = None,
    ) -> None:
        super().__init__(settings, owners.shape[1], rng, binary=binary, replicates=len(owners))
        self.across = owners[:, :, None] != owners[:, None, :]
        self.noise = settings.row_noise or 0.0
        self.mixed: Array | None = None
        if settings.bottleneck is not None:
            rows = mixing(settings.bottleneck, settings.width)
            self.mixed = rows.T @ rows
        self._narrow()

    def features(self, x: Array, weights: Array | None = None) -> Array:
        """(R, d, n, h), as the parties would open and spread them."""
        opened = super().features(x, weights)
        if not self.noise:
            return opened
        drawn = self.noise * self.rng.standard_normal(opened.shape)
        return opened + (drawn if self.mixed is None else drawn @ self.mixed)

    def _step(self, x: Array) -> Array:
        losses = super()._step(x)
        self._narrow()
        return losses

    def _narrow(self) -> None:
        """A step on V of W = V·M is a step on W that stays in the rows of M: the same as to project it."""
        if self.mixed is not None:
            self.weights = np.where(self.across[..., None], self.weights @ self.mixed, self.weights)
