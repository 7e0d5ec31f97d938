"""How sure an edge is: the share of resamples in which it is found again.

A resample weighs rows by counts that everybody may know, or draws the sums themselves anew. Sums over n independent
rows spread around their expectation much as those of normal rows with the same covariance do, so that such a draw needs
no row. It takes curves for normal numbers, which is what makes it cheaper and a little less exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.methods.moments.found import SumsFound, spread_out
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.moments.sums import SumTable
from veracausa.events import ProgressCallback
from veracausa.seeding import derive

MOST_WEIGHT = 9
"""Of a row in a resample: more is as good as never drawn."""


@dataclass(frozen=True)
class EdgeShares:
    """Of all resamples, how many have an edge; (d, d)."""

    directed: Array
    """With this direction; an edge whose direction is open counts half for either."""
    skeleton: Array
    """With either direction."""

    def ordered(self, order: Sequence[int]) -> EdgeShares:
        """The same with columns in another order."""
        square = np.ix_(order, order)
        return EdgeShares(self.directed[square], self.skeleton[square])

    def spread_out(self, kept: Sequence[int], d: int) -> EdgeShares:
        """The same over d columns, of which only the kept ones took part."""
        return EdgeShares(spread_out(self.directed, kept, d), spread_out(self.skeleton, kept, d))


def row_weights(rows: int, seed: int, number: int) -> Array:
    """(n,): how often each row counts in a resample; all of them once in the first one, numbered 0."""
    if not number:
        return np.ones(rows)
    rng = np.random.default_rng(derive(seed, "discovery", "weights", number))
    return np.minimum(rng.poisson(1.0, rows), MOST_WEIGHT).astype(np.float64)


def drawn_sums(gram: Array, rows: int, rng: np.random.Generator) -> Array:
    """Sums over as many new rows of the same covariance: a Wishart matrix, by Bartlett's decomposition."""
    values, vectors = np.linalg.eigh((gram + gram.T) / (2 * rows))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    size = len(gram)
    if size > rows:
        normal = rng.normal(size=(size, rows))
    else:
        normal = np.tril(rng.normal(size=(size, size)), -1)
        np.fill_diagonal(normal, np.sqrt(rng.chisquare(rows - np.arange(size))))
    half = root @ normal
    return np.asarray(half @ half.T)


def resampled_edges(
    tables: Iterable[SumTable],
    count: int,
    found: SumsFound,
    settings: SumsSettings,
    known: Known,
    seed: int,
    time_is_up: Callable[[], bool] = lambda: False,
    progress: ProgressCallback = lambda share: None,
) -> EdgeShares:
    """The shares of edges over the tables, each searched under the model that was found, from one start."""
    once = settings.model_copy(update={"starts": 1, "model": found.model})
    directed, skeleton = np.zeros(found.adjacency.shape), np.zeros(found.adjacency.shape)
    done = 0
    for table in _until(tables, time_is_up):
        rng = np.random.default_rng(derive(seed, "discovery", "resample", done))
        one = search_sums(table, once, known, rng, time_is_up)
        directed += np.where(one.undirected, 0.5, one.adjacency)
        skeleton += one.adjacency | one.adjacency.T
        done += 1
        progress(done / count)
    return EdgeShares(directed / max(done, 1), skeleton / max(done, 1))


def _until(tables: Iterable[SumTable], time_is_up: Callable[[], bool]) -> Iterator[SumTable]:
    """One table at least, and no more once the time is up."""
    for number, table in enumerate(tables):
        if number and time_is_up():
            return
        yield table
