"""How likely rows are under a graph of straight lines, with noise of any shape beside them.

Along the right graph what is left of the columns is independent, so that their entropies add up to least. Sums of
pairs see third and fourth moments alone. Rows have the whole shape of the noise, and choose among graphs of lines. They
do not choose between lines and curves by likelihood: lines with spiky residuals can look likelier than curves that are
right. They choose by independence: what lines leave of an effect depends on its causes where these act by curves.

All of it needs rows in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.evidence import GraphEvidence, climbed, near_columns
from veracausa.metrics.independence import hsic

NORMAL = (1 + np.log(2 * np.pi)) / 2
"""Entropy of the standard normal distribution."""
PRICE = 1.5
"""Times BIC's price of a coefficient: an edge may change the shape of what is left by chance, too."""
ROWS = 10_000
"""Of more rows than this a sample counts."""
FITS = 100_000
"""Regressions that one climb may fit: each takes a fraction of a millisecond."""
FURTHEST = 1.0
"""Nats by which a shape may be likelier than the normal one. An exponential is .4; the approximation of the entropy
would take a few values far outside for many nats, and the search would look for such residuals."""
LEVEL = 0.01
"""Of all tests of a graph together."""
TESTED = 1000
"""Of more rows than this a sample is tested."""
DEPENDENT = 0.2
"""The share of effects whose residuals may depend on their causes along lines. A missing line is seen, too."""
SHAPED = 0.02
"""Nats a row by which noise of its own shape is likelier than normal noise, in half of the effects at least. Of normal
noise it is .001 to .004, and then no graph of lines is told from its class."""
RIDGE = 1e-9
SMALL = 1e-12


def entropy(columns: Array) -> Array:
    """Each standardised column's entropy by the maximum entropy approximation (Hyvärinen 1998)."""
    even = np.log(np.cosh(columns)).mean(axis=0) - 0.37457
    odd = (columns * np.exp(-(columns**2) / 2)).mean(axis=0)
    return np.asarray(NORMAL - 79.047 * even**2 - 7.4129 * odd**2)


def log_likelihood(residual: Array) -> float:
    """Of what is left of a column, in nats, under noise of its own shape."""
    residual = residual - residual.mean()
    deviation = max(float(residual.std()), SMALL)
    shape = max(float(entropy((residual / deviation)[:, None])[0]), NORMAL - FURTHEST)
    return float(-len(residual) * (np.log(deviation) + shape))


class LineEvidence(GraphEvidence):
    """The evidence of a column given its causes: least squares, and noise of the shape that is left."""

    def __init__(self, values: Array, rng: np.random.Generator) -> None:
        rows = values[np.sort(rng.permutation(len(values))[:ROWS])]
        rows = rows - rows.mean(axis=0)
        self.table: Array = rows / np.maximum(rows.std(axis=0), SMALL)
        super().__init__(*self.table.shape)
        self.gram = self.table.T @ self.table / self.rows

    def residual(self, effect: int, causes: Sequence[int]) -> Array:
        """(n,): what lines of the causes leave of a column."""
        column, inside = self.table[:, effect], list(causes)
        if not inside:
            return column
        gram = self.gram[np.ix_(inside, inside)] + RIDGE * np.eye(len(inside))
        return np.asarray(column - self.table[:, inside] @ np.linalg.solve(gram, self.gram[inside, effect]))

    def _fitted(self, effect: int, causes: tuple[int, ...]) -> float:
        residual = self.residual(effect, causes)
        self.noise[effect, causes] = min(1.0, float(residual.var()))
        return log_likelihood(residual) - PRICE * 0.5 * len(causes) * float(np.log(self.rows))

    def bears_out(self, graph: Mask, rng: np.random.Generator) -> bool:
        """Whether this is a graph of lines: noise beside them is not normal, and does not depend on the causes."""
        tested = np.sort(rng.permutation(self.rows)[:TESTED])
        shapes, chances = [], []
        for effect in np.flatnonzero(graph.any(axis=0)).tolist():
            causes = np.flatnonzero(graph[:, effect]).tolist()
            residual = self.residual(effect, causes)
            unit = (residual / max(float(residual.std()), SMALL))[:, None]
            shapes.append(NORMAL - float(entropy(unit)[0]))
            chances.append(hsic(unit[tested], self.table[tested][:, causes])[1])
        rejected = sum(chance * len(chances) < LEVEL for chance in chances)
        return bool(chances) and rejected <= DEPENDENT * len(chances) and float(np.median(shapes)) >= SHAPED


def least_dependent(columns: Array) -> int:
    """The column with the most evidence, over all pairs, that it is no effect (Hyvärinen and Smith 2013, eq. 6)."""
    deviation = columns.std(axis=0)
    standard = columns / np.where(deviation > 1e-12, deviation, 1)
    correlation = standard.T @ standard / len(standard)
    alone = entropy(standard)
    d = standard.shape[1]
    given = np.zeros((d, d))
    for cause in range(d):
        rest = standard - np.outer(standard[:, cause], correlation[cause])
        spread = np.sqrt(np.maximum(1 - correlation[cause] ** 2, 1e-12))
        given[cause] = entropy(rest / spread)
    # Row: cause. Larger: the joint entropy is smaller in this direction.
    evidence = (alone[None, :] + given.T) - (alone[:, None] + given)
    return int((-(np.minimum(0, evidence) ** 2).sum(axis=1)).argmax())


def sources_first(values: Array, time_is_up: Callable[[], bool] = lambda: False) -> tuple[list[int], list[int]]:
    """The order of DirectLiNGAM (Shimizu et al. 2011), one source after the other, and what time did not allow."""
    left = list(range(values.shape[1]))
    rest, order = values - values.mean(axis=0), []
    while len(left) > 1 and not time_is_up():
        source = left[least_dependent(rest[:, left])]
        order.append(source)
        left.remove(source)
        found = rest[:, source]
        rest = rest - np.outer(found, found @ rest / max(float(found @ found), 1e-300))
    return order, left


def along(evidence: GraphEvidence, order: Sequence[int], may: Mask) -> Mask:
    """The graph along an order: causes are added one by one, and taken out again, while that raises the evidence."""
    graph = np.zeros((evidence.d, evidence.d), dtype=bool)
    for place, effect in enumerate(order):
        causes: list[int] = []
        earlier = [one for one in order[:place] if may[one, effect]]
        for adds in (True, False):
            while True:
                if adds:
                    options = [[*causes, one] for one in earlier if one not in causes]
                else:
                    options = [[other for other in causes if other != one] for one in causes]
                best = max(options, key=lambda option: evidence(effect, option), default=causes)
                if evidence(effect, best) <= evidence(effect, causes):
                    break
                causes = best
        graph[causes, effect] = True
    return graph


def likeliest_lines(
    evidence: LineEvidence,
    start: Mask,
    may: Mask,
    required: Mask,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Mask:
    """The likeliest graph of lines that a climb reaches from a given one, and from that of DirectLiNGAM's order."""
    starts = [start]
    if not required.any():  # the order knows of no edge that must be
        order, left = sources_first(evidence.table, time_is_up)
        starts.append(along(evidence, [*order, *left], may))
    near = near_columns(starts)
    reached = [climbed(evidence, one, may, required, near, time_is_up, fits=FITS) for one in starts]
    return max(reached, key=evidence.of)
