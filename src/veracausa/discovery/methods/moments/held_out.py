"""What rows say of a graph, where they lie in one place: how likely held-out ones are, and whether noise is even."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.discovery.methods.moments.expansion import Expansion
from veracausa.seeding import derive

Rows = NDArray[np.int64]
SHARE = 0.2
"""Of the rows, held out."""
CERTAIN = (0.01, 0.99)
"""A chance that is read off a straight line is moved between these."""
SMOOTH = 3
"""Functions of a cause that may carry the noise's deviation."""
SURE = 1e-4
"""A chance below this speaks for uneven noise."""


def held_out_rows(rows: int, seed: int, share: float = SHARE) -> tuple[Rows, Rows]:
    """Which rows train and which are held out: those that `vfedcd` takes with this seed."""
    order = np.random.default_rng(derive(seed, "discovery", "kept apart")).permutation(rows)
    train = rows - round(share * rows)
    return order[:train], order[train:]


@dataclass(frozen=True)
class RowFit:
    """A regression of each column on its causes in a graph: curves, and products of two causes."""

    made: Expansion
    values: Array
    """(n, d), without gaps."""
    graph: Mask

    def log_likelihood(self, train: Rows, apart: Rows) -> float:
        """Of a held-out row, on average, in nats; columns standardised by the rows that train."""
        total = 0.0
        for effect, node in enumerate(self.made.nodes):
            column = self.values[:, effect]
            if node.kind == "binary":
                column = (column == column.max()).astype(float)
                chance = np.clip(self._predicted(effect, column, train)[apart], *CERTAIN)
                total += float(np.mean(np.log(np.where(column[apart] > 0, chance, 1 - chance))))
                continue
            column = (column - column[train].mean()) / max(column[train].std(), 1e-12)
            residual = column - self._predicted(effect, column, train)
            variance = self._variance(effect, residual, train)[apart]
            total -= 0.5 * float(np.mean(np.log(2 * np.pi * variance) + residual[apart] ** 2 / variance))
        return total

    def _variance(self, effect: int, residual: Array, train: Rows) -> Array:
        """(n,): of the noise; where its causes carry it, a smooth function of them."""
        level = max(float(residual[train].var()), 1e-9)
        if effect not in self._uneven:
            return np.full(len(residual), level)
        from sklearn.linear_model import RidgeCV

        design = np.column_stack(self._curves(effect, SMOOTH))
        logs = np.log(residual**2 + 1e-3 * level)
        fit = RidgeCV(alphas=np.geomspace(1e-3, 0.3, 6) * len(train)).fit(design[train], logs[train])
        shape = np.exp(np.clip(fit.predict(design) - logs[train].mean(), -4, 4))
        return np.asarray(shape * float(np.mean(residual[train] ** 2 / shape[train])))

    @cached_property
    def _uneven(self) -> frozenset[int]:
        return frozenset(self.uneven())

    def uneven(self) -> list[int]:
        """Columns whose noise is larger for some values of their causes than for others."""
        from scipy.stats import f as f_distribution

        found, every = [], np.arange(len(self.values))
        for effect in np.flatnonzero(self.graph.any(axis=0)):
            if self.made.nodes[effect].kind != "number":
                continue
            residual = self.values[:, effect] - self._predicted(int(effect), self.values[:, effect], every)
            squares = np.minimum(residual**2, np.quantile(residual**2, 0.99))
            design = np.column_stack([np.ones(len(every)), *self._curves(int(effect), SMOOTH)])
            left = squares - design @ np.linalg.lstsq(design, squares, rcond=None)[0]
            free, rest = design.shape[1] - 1, len(every) - design.shape[1]
            ratio = (np.sum((squares - squares.mean()) ** 2) - left @ left) / free / max(left @ left / rest, 1e-300)
            if f_distribution.sf(ratio, free, rest) < SURE:
                found.append(int(effect))
        return found

    def _curves(self, effect: int, most: int | None = None) -> list[Array]:
        starts = np.cumsum([0, *(node.width for node in self.made.nodes)])
        made = []
        for cause in np.flatnonzero(self.graph[:, effect]):
            width = self.made.nodes[cause].functions
            made.append(self.made.features[:, starts[cause] : starts[cause] + min(width, most or width)])
        return made

    def _predicted(self, effect: int, column: Array, train: Rows) -> Array:
        from sklearn.linear_model import RidgeCV

        causes = np.flatnonzero(self.graph[:, effect]).tolist()
        if not causes:
            return np.full(len(column), column[train].mean())
        at = int(sum(node.width for node in self.made.nodes))
        products = []
        together = set(combinations(causes, 2))
        for pair in self.made.pairs:
            if (pair.first, pair.second) in together:
                products.append(self.made.features[:, at : at + pair.width])
            at += pair.width
        design = np.column_stack([*self._curves(effect), *products])
        fit = RidgeCV(alphas=np.geomspace(1e-3, 0.3, 6) * len(train)).fit(design[train], column[train])
        return np.asarray(fit.predict(design))
