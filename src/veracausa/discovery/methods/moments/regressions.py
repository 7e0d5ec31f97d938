"""Which of the allowed causes explain a column, and how well: additive regressions read off the sums.

Parents are found by growing and shrinking under a penalised likelihood. What was computed for a set of parents is kept,
so that a search over orders, which asks for nearly the same sets again and again, costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import solve_triangular

from veracausa.arrays import Array, Mask
from veracausa.discovery.methods.moments.sums import SumTable

Parents = tuple[tuple[int, int], ...]
"""Causes with how many of their functions are taken, sorted."""
ROUNDS = 3
"""Growing and shrinking alternate at most so often."""
SMALL = 1e-12
ROWS_A_COEFFICIENT = 8
"""A regression has so many rows for each coefficient at least."""


PLENTY = 1000.0
GROWTH = 0.25


def tempered(rows: Array) -> Array:
    """The rows that a score counts.

    No model is exact: with very many rows every misfit looks certain, and the search would mend it by wrong edges.
    Beyond a thousand rows evidence therefore grows by the fourth root, and estimates alone become sharper.
    """
    return np.where(rows > PLENTY, PLENTY * (np.maximum(rows, 1.0) / PLENTY) ** GROWTH, rows)


@dataclass
class _Regression:
    """A column on some causes."""

    score: float
    """Log-likelihood less the penalty, in nats, up to a constant."""
    left: float
    """The log-determinant of the variance that is left: of one number, or of a nominal column's functions."""
    gains: Array
    """(d,): what the score gains most when a cause is added, or takes more functions."""
    levels: Array
    """(d,): how many functions it has then."""


class Regressions:
    """All regressions of one table. `penalty` multiplies BIC's, `most` bounds the functions of a cause."""

    def __init__(
        self,
        sums: SumTable,
        *,
        penalty: float = 1.0,
        most: int | None = None,
        min_gain: float = 0.0,
        required: Mask | None = None,
        ridge: float = 1e-9,
    ) -> None:
        self.sums, self.d = sums, sums.d
        self.size = sums.blocks.shape[1]
        self.flat = sums.blocks.reshape(self.d * self.size, -1)
        self.required = np.zeros((self.d, self.d), dtype=bool) if required is None else required
        self.rows = tempered(sums.counts.diagonal())
        self.cost = penalty * 0.5 * np.log(np.maximum(self.rows, 2.0))
        """(d,): of one coefficient, in nats, by target."""
        self.edge_cost = float(max(0.0, np.log(self.d) - 0.5 * np.log(max(sums.rows, 2))))
        """Of an edge, in nats, where there are many columns for few rows (Chen and Chen 2008)."""
        self.room = np.maximum(1.0, self.rows / ROWS_A_COEFFICIENT)
        """(d,): how many coefficients a regression may have."""
        self.min_gain = min_gain
        """An edge explains at least this share of what is left without it."""
        self.ridge = ridge
        self.noise = None if sums.noise is None else np.square(sums.noise)
        """(d·M, d·M): variances of the noise on the sums; None: they are exact."""
        self.may_multiply = bool(sums.pairs) and most is None
        self.products = False
        """Whether two causes may do together what they do not do one by one."""
        self.thorough = False
        limit = self.size if most is None else most
        steps = [tuple(k for k in node.levels if k <= limit or node.kind == "nominal") for node in sums.nodes]
        self.steps = [ks or (1,) for ks in steps]
        width = max(map(len, self.steps))
        self.level_table = np.array([[*ks, *[ks[-1]] * (width - len(ks))] for ks in self.steps])
        """(d, L): the levels of each cause, its last one repeated."""
        self.response = np.array([node.response for node in sums.nodes])
        self.entropy = np.array([np.inf if n.kind == "number" else np.log(n.response + 1) for n in sums.nodes])
        """(d,): the most that is to be told of a category, as if all were equally frequent."""
        self._known: list[dict[Parents, _Regression]] = [{} for _ in range(self.d)]
        self._together: list[dict[Parents, float]] = [{} for _ in range(self.d)]
        self._found: list[dict[int, tuple[float, Parents]]] = [{} for _ in range(self.d)]

    # ---- the parents of a column ---------------------------------------------------------------------------------

    def best(self, target: int, allowed: int) -> tuple[float, Parents]:
        """Score and parents of a column, with causes among the bits of `allowed`."""
        memo = self._found[target]
        found = memo.get(allowed)
        if found is None:
            found = memo[allowed] = self._grown_and_shrunk(target, allowed)
        return found

    def _grown_and_shrunk(self, target: int, allowed: int) -> tuple[float, Parents]:
        may = np.array([bool(allowed >> i & 1) for i in range(self.d)])
        may[target] = False
        parents: Parents = tuple(
            (int(i), int(self.level_table[i, 0])) for i in np.flatnonzero(self.required[:, target])
        )
        for _ in range(ROUNDS):
            start = parents
            parents = self._shrink(target, self._grow(target, parents, may))
            if parents == start:
                break
        return self.score(target, parents), parents

    def score(self, target: int, parents: Parents) -> float:
        """What a column's parents are worth, with products of two of them where these help."""
        if len(parents) < 2 or not self.products:
            return self.regression(target, parents).score
        memo = self._together[target]
        gain = memo.get(parents)
        if gain is None:
            gain = memo[parents] = self.interactions(target, parents)[0]
        return self.regression(target, parents).score + gain

    def _grow(self, target: int, parents: Parents, may: Mask) -> Parents:
        while True:
            known = self.regression(target, parents)
            gains = np.where(may, known.gains, -np.inf)
            cause = int(gains.argmax())
            if gains[cause] <= SMALL:
                return parents
            level = int(known.levels[cause])
            parents = tuple(sorted({**dict(parents), cause: level}.items()))

    def _shrink(self, target: int, parents: Parents) -> Parents:
        worth = self.score if self.thorough else self._score_one_by_one
        while parents:
            score = worth(target, parents)
            options: list[tuple[float, Parents]] = []
            for cause, level in parents:
                others = {one: k for one, k in parents if one != cause}
                fewer = tuple(sorted(others.items()))
                if not self.required[cause, target]:
                    options.append((worth(target, fewer), fewer))
                    if self.noise is not None and self.regression(target, fewer).gains[cause] <= 0:
                        return self._shrink(target, fewer)  # its gain may be the noise's alone
                for k in [k for k in self.steps[cause] if k < level][-1:]:
                    lower = tuple(sorted({**others, cause: k}.items()))
                    options.append((worth(target, lower), lower))
            best = max(options, default=(-np.inf, ()))
            if best[0] < score:
                return parents
            parents = best[1]
        return parents

    def _score_one_by_one(self, target: int, parents: Parents) -> float:
        return self.regression(target, parents).score

    def multiply(self, thorough: bool = False) -> None:
        """From now on products of two causes count. `thorough`: they decide which parents stay, too."""
        self.products, self.thorough = True, thorough
        self._found = [{} for _ in range(self.d)]

    def interactions(self, target: int, parents: Parents) -> tuple[float, float]:
        """What products of two parents add to the score, and by which factor they lower the variance that is left."""
        if np.isfinite(self.entropy[target]):
            return 0.0, 1.0
        ends = [(min(a, b), max(a, b)) for (a, _), (b, _) in combinations(parents, 2)]
        inside = [at for pair in ends if pair in self.sums.pairs for at in range(*_ends(self.sums.pairs[pair]))]
        if not inside:
            return 0.0, 1.0
        own, main = target * self.size, self.places(parents)
        gram = self.flat[np.ix_(main, main)] + self.ridge * np.eye(len(main))
        cross = self.sums.product_cross[np.ix_(inside, main)]
        solved = np.linalg.solve(gram, np.column_stack([cross.T, self.flat[main, own]]))
        rest = self.sums.product_gram[np.ix_(inside, inside)] - cross @ solved[:, :-1] + 1e-6 * np.eye(len(inside))
        toward = self.sums.product_cross[inside, own] - cross @ solved[:, -1]
        start = left = float(self.flat[own, own] - self.flat[own, main] @ solved[:, -1])
        gain, n, open_ = 0.0, float(self.rows[target]), np.ones(len(inside), dtype=bool)
        while open_.any():
            explained = np.where(open_, toward**2 / np.maximum(rest.diagonal(), 1e-6), 0.0)
            best = int(explained.argmax())
            more = -0.5 * n * np.log(max(1 - explained[best] / max(left, SMALL), SMALL)) - self.cost[target]
            if more <= 0:
                break
            gain, left, open_[best] = gain + more, left - explained[best], False
            column = rest[:, best] / rest[best, best]
            toward, rest = toward - column * toward[best], rest - np.outer(column, rest[best])
        return gain, max(left, SMALL) / max(start, SMALL)

    # ---- one regression --------------------------------------------------------------------------------------------

    def regression(self, target: int, parents: Parents) -> _Regression:
        known = self._known[target].get(parents)
        if known is None:
            known = self._known[target][parents] = self._compute(target, parents)
        return known

    def places(self, parents: Iterable[tuple[int, int]]) -> list[int]:
        """Where the functions of these parents lie in the flat matrix."""
        return [cause * self.size + k for cause, level in parents for k in range(level)]

    def _compute(self, target: int, parents: Parents) -> _Regression:
        d, size, width = self.d, self.size, int(self.response[target])
        inside = self.places(parents)
        own = slice(target * size, target * size + width)
        cross = self.flat[own].T.copy()  # (d·size, width)
        diagonal = self.sums.blocks[np.arange(d), :, np.arange(d), :].copy()
        variance = self.flat[own, own].copy()
        if inside:
            gram = self.flat[np.ix_(inside, inside)] + self.ridge * np.eye(len(inside))
            root = np.linalg.cholesky(gram)
            solved = solve_triangular(root, self.flat[inside], lower=True, check_finite=False)
            cross -= solved.T @ solved[:, own]
            variance -= solved[:, own].T @ solved[:, own]
            parts = solved.reshape(len(inside), d, size).transpose(1, 0, 2)
            diagonal -= parts.transpose(0, 2, 1) @ parts
            for cause, level in parents:
                diagonal[cause, :level, :] = diagonal[cause, :, :level] = 0.0
                diagonal[cause, range(level), range(level)] = 1.0
                cross[cause * size : cause * size + level] = 0.0
        diagonal[:, range(size), range(size)] += 1e-7
        roots = np.linalg.cholesky(diagonal)
        whitened = np.linalg.solve(roots, cross.reshape(d, size, width))  # (d, size, width)
        if self.noise is not None:
            weights = solve_triangular(root, solved, lower=True, trans="T", check_finite=False) if inside else None
            whitened /= np.sqrt(self._blurred(target, inside, weights, variance, diagonal))[:, :, None]
        left = _log_det(variance)
        n = self.rows[target]
        cost = self.cost[target] * width
        now_likely = float(self._likelihood(target, np.array(left)))
        score = n * now_likely - cost * len(inside) - self.edge_cost * len(parents)
        reduced = self._reduced(whitened, variance, left)  # (d, L)
        likelier = self._likelihood(target, left - reduced) - now_likely
        now = np.zeros(d, dtype=int)
        for cause, level in parents:
            now[cause] = level
        added = self.level_table - now[:, None]
        fresh = (now == 0)[:, None]
        gains = n * likelier - cost * added - self.edge_cost * fresh
        gains = np.where((added > 0) & (len(inside) + added <= self.room[target]), gains, -np.inf)
        if self.min_gain:
            gains = np.where(fresh & (reduced < self.min_gain), -np.inf, gains)
        gains[target] = -np.inf
        best = gains.argmax(axis=1)
        every = np.arange(d)
        return _Regression(score, left, gains[every, best], self.level_table[every, best])

    def _blurred(
        self, target: int, inside: Sequence[int], weights: Array | None, variance: Array, diagonal: Array
    ) -> Array:
        """(d, size): by how much noise and chance exceed chance alone in what each function seems to explain.

        What is left of the target is a combination u of functions, and what is left of another function is one, v. The
        noise E on the sums adds u'Ev to their covariance, whose variance is Σ u_i² v_j² var(E_ij). An edge has to
        explain so many times more to be believed.
        """
        assert self.noise is not None
        own = slice(target * self.size, target * self.size + int(self.response[target]))
        left = np.zeros((len(self.flat), own.stop - own.start))
        left[own] = np.eye(own.stop - own.start)
        if weights is not None:
            left[inside] -= weights[:, own]
        moved = self.noise @ np.square(left)
        if weights is not None:
            moved = moved + np.square(weights).T @ moved[inside]
        share = (moved / np.maximum(variance.diagonal(), SMALL)).mean(axis=1).reshape(self.d, self.size)
        rest = diagonal[:, range(self.size), range(self.size)]
        return np.asarray(1 + self.rows[target] * share / np.maximum(rest, SMALL))

    def _likelihood(self, target: int, left: Array) -> Array:
        """The log-likelihood of a row, in nats, where so much of a column is left (a log-determinant).

        A category tells no more than its entropy, however well it is predicted. Without that bound every effect of a
        category would look like its cause.
        """
        entropy = self.entropy[target]
        if not np.isfinite(entropy):
            return -0.5 * left
        return np.asarray(entropy * (1 - np.exp(left / (2 * entropy))))

    def _reduced(self, whitened: Array, variance: Array, left: float) -> Array:
        """(d, L): by how much the log-determinant of what is left falls with so many functions of a cause."""
        if variance.shape == (1, 1):
            explained = np.cumsum(np.square(whitened[:, :, 0]), axis=1)
            taken = np.take_along_axis(explained, self.level_table - 1, axis=1)
            return np.asarray(-np.log(np.maximum(1 - taken / max(variance[0, 0], SMALL), SMALL)))
        products = np.cumsum(whitened[:, :, :, None] * whitened[:, :, None, :], axis=1)
        taken = np.take_along_axis(products, (self.level_table - 1)[:, :, None, None], axis=1)
        rest = variance - taken
        sign, log = np.linalg.slogdet(rest)
        return np.asarray(left - np.where(sign > 0, log, -50.0))


def _log_det(variance: Array) -> float:
    if variance.shape == (1, 1):
        return float(np.log(max(variance[0, 0], SMALL)))
    sign, log = np.linalg.slogdet(variance)
    return float(log) if sign > 0 else -50.0


def _ends(at: slice) -> tuple[int, int]:
    return at.start, at.stop
