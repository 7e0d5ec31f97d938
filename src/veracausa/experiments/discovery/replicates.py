"""VFedCD on many graphs and with many seeds at once: replicates of one model are trained side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.data.causal.columns import prepare
from veracausa.discovery.engines.centralized import CentralizedVFedCD, Searches
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.experiments.discovery.cells import CellResult, DiscoveryCell, Table
from veracausa.experiments.discovery.local_encoders import LocalEncoders
from veracausa.experiments.discovery.protected import ProtectedModel
from veracausa.seeding import derive

if TYPE_CHECKING:
    from veracausa.discovery.methods.vfedcd.settings import Settings


def side_by_side(cell: DiscoveryCell, fits: Sequence[tuple[Table, int]]) -> list[CellResult] | None:
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

    def make(one: Settings) -> CentralizedVFedCD:
        if cell.method == "local_encoders":
            return LocalEncoders(one, owners, rng)
        if one.bottleneck or one.row_noise:
            return ProtectedModel(one, owners, rng, binary)
        return CentralizedVFedCD(one, d, rng, binary=binary, replicates=count)

    fit = Searches(settings, make).fit(
        np.stack([train for train, _, _ in ready]), np.stack([kept for _, kept, _ in ready])
    )
    seconds = (time.process_time() - started) / count
    results = zip(fit.strengths, fit.allowed, fit.thresholds, strict=True)
    return [
        CellResult(greedy_cut(np.where(allowed, strengths, 0.0), threshold), seconds)
        for strengths, allowed, threshold in results
    ]


def _split(settings: Settings, table: Table, seed: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Rows to train on and rows kept apart, as a single fit with this seed has them, and which columns are binary."""
    values = table.data.values
    order = np.random.default_rng(derive(seed, "discovery", "kept apart")).permutation(len(values))
    train = len(values) - round(settings.held_out * len(values))
    ready = prepare(values[order], table.data.names, train_rows=train, missing="median")
    binary = np.array(ready.binary) & settings.bernoulli & (settings.likelihood != "mse")
    fitted = ready.values.copy()
    low, high = fitted.min(axis=0), fitted.max(axis=0)
    fitted[:, binary] = (fitted > (low + high) / 2)[:, binary]
    return fitted[:train], fitted[train:], binary
