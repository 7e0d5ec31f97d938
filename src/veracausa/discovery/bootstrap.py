"""How sure an edge is: the share of resamples of the rows in whose graph it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.engines.centralized import CentralizedVFedCD, fit_and_keep
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.searches import Searches
from veracausa.discovery.methods.vfedcd.settings import Settings


@dataclass(frozen=True)
class Rows:
    """What a fit is made of: columns that are ready, in one order, and what is known of them."""

    train: Array
    """(n, d)"""
    held_out: Array
    names: tuple[str, ...]
    binary: Mask
    required: Mask
    forbidden: Mask

    def resampled(self, rng: np.random.Generator) -> Rows:
        """As many rows, drawn with replacement; a row kept apart is never trained on."""
        train, held_out = (rows[rng.integers(0, len(rows), len(rows))] for rows in (self.train, self.held_out))
        return Rows(train, held_out, self.names, self.binary, self.required, self.forbidden)

    def model(self, rng: np.random.Generator, replicates: int = 1) -> Callable[[Settings], CentralizedVFedCD]:
        """Makes models of these columns, with weights drawn anew each time."""
        known = {"binary": self.binary, "required": self.required, "forbidden": self.forbidden}
        return lambda settings: CentralizedVFedCD(settings, len(self.names), rng, replicates=replicates, **known)

    def ordered(self, order: list[int]) -> Rows:
        """The same columns in another order."""
        square = np.ix_(order, order)
        return Rows(
            self.train[:, order],
            self.held_out[:, order],
            tuple(self.names[at] for at in order),
            self.binary[order],
            self.required[square],
            self.forbidden[square],
        )


def chosen_graph(strengths: Array, allowed: Mask, threshold: float, required: Mask) -> Mask:
    """The DAG that a fit stands for."""
    return greedy_cut(np.where(allowed, strengths, 0.0), threshold, required, ~allowed & ~required)


def bootstrap_graphs(
    settings: Settings,
    rows: Rows,
    resamples: int,
    rng: np.random.Generator,
    progress: Callable[[float], None] = lambda share: None,
    time_is_up: Callable[[], bool] = lambda: False,
    file: Path | None = None,
    resume: bool = False,
) -> Mask:
    """(resamples, d, d): a graph a resample; all are trained side by side, as replicates of one model."""
    drawn = [rows.resampled(rng) for _ in range(resamples)]
    model = Searches(settings, rows.model(rng, resamples))
    train, held_out = np.stack([one.train for one in drawn]), np.stack([one.held_out for one in drawn])
    fit = fit_and_keep(model, train, held_out, progress, time_is_up, file, resume)
    fitted = zip(fit.strengths, fit.allowed, fit.thresholds, strict=True)
    return np.stack([chosen_graph(*one, rows.required) for one in fitted])
