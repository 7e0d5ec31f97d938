"""What rows say of a graph, where they lie in one place: whether its noise is even."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.methods.moments.expansion import Expansion

SMOOTH = 3
"""Functions of a cause that may carry the noise's deviation."""
SURE = 1e-4
"""A chance below this speaks for uneven noise."""


@dataclass(frozen=True)
class RowFit:
    """A regression of each column on its causes in a graph: curves, and products of two causes."""

    made: Expansion
    values: Array
    """(n, d), without gaps."""
    graph: Mask

    def uneven(self) -> list[int]:
        """Columns whose noise is larger for some values of their causes than for others."""
        from scipy.stats import f as f_distribution

        found, rows = [], len(self.values)
        for effect in np.flatnonzero(self.graph.any(axis=0)):
            if self.made.nodes[effect].kind != "number":
                continue
            residual = self.values[:, effect] - self._predicted(int(effect))
            squares = np.minimum(residual**2, np.quantile(residual**2, 0.99))
            design = np.column_stack([np.ones(rows), *self._curves(int(effect), SMOOTH)])
            left = squares - design @ np.linalg.lstsq(design, squares, rcond=None)[0]
            free, rest = design.shape[1] - 1, rows - design.shape[1]
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

    def _predicted(self, effect: int) -> Array:
        from sklearn.linear_model import RidgeCV

        column, causes = self.values[:, effect], np.flatnonzero(self.graph[:, effect]).tolist()
        at = int(sum(node.width for node in self.made.nodes))
        products = []
        together = set(combinations(causes, 2))
        for pair in self.made.pairs:
            if (pair.first, pair.second) in together:
                products.append(self.made.features[:, at : at + pair.width])
            at += pair.width
        design = np.column_stack([*self._curves(effect), *products])
        fit = RidgeCV(alphas=np.geomspace(1e-3, 0.3, 6) * len(column)).fit(design, column)
        return np.asarray(fit.predict(design))
