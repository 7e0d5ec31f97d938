"""Two releases of moments of the same rows but one: their difference is the outer product of that row's features.

If the features were centred and scaled again without the row, the difference is no such product. But means and
deviations without the row follow from the first release and from the row. So the second release is a known function of
the row's features, with far more numbers than these, and the attack solves for them.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView, Release
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows

_TURNS = 30
_FAR = 8.0
"""Features further out than so many deviations are not looked for at the start."""
_GRID = 321
_SWEEPS, _MOST_SWEPT = 4, 128
"""Choices between two values for each feature go round so often, of so many features at most."""
_STEPS = 60
_TINY = 1e-12


@blind_attacks.register("two_releases", ReaderOptions)
class TwoReleases(RowReadingAttack):
    """The features of the row that two releases differ by, and the row behind them."""

    surface = "training rows"
    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.SECOND_RELEASE
    about = "the active party trains again after one row was added or removed, and takes the difference of the sums"
    breaks = "a second consent for the same rows"
    order = 5
    situations = ("a row less", "a row less, scaled again", "a row less, epsilon = 1")

    def guess(self, view: BlindView) -> BlindReading:
        known = view.own_moments.double().numpy()
        found, noise = [], 0.0
        for target, own in enumerate(known):
            one, other = view.releases(target)
            noise = max(noise, math.hypot(one.noise, other.noise))
            found.append(missing_row(one, other, own))
            view.progress(0.5 * (target + 1) / len(known))
        features = torch.from_numpy(np.stack(found))
        learnt = view.auxiliary_features.double()
        if noise:
            # It learns from features as noisy as those it has to read.
            deviation = noise / float(np.sqrt(np.square(known).sum(1).mean()))
            learnt = learnt + deviation * torch.randn(learnt.shape, generator=view.rng, dtype=torch.float64)
        self.said = {"noise": noise}
        rows, self.reader = read_rows(view, features, learnt, self.options)
        return BlindReading(rows=rows)


def missing_row(one: Release, other: Release, own: Array) -> Array:
    """(width,) the victim's features of the row that the second release lacks, whether they were scaled again or not.

    Both are tried where there is no noise, and what explains the second release better is taken.
    """
    plain = difference(one, other, own)
    if one.noise or other.noise:
        return plain
    anew = ScaledAnew(one, other, own)
    solved = anew.solved(plain)
    left = one.gram - other.gram
    mine, row = np.r_[one.own, one.labels], plain
    apart = np.square(left[one.victim, one.victim] - np.outer(row, row)).sum()
    apart += 2 * np.square(left[one.victim][:, mine] - np.outer(row, own)).sum()
    return plain if apart <= 2 * anew.apart(solved) else solved


class ScaledAnew:
    """The second release as a function of the row that it lacks, features centred and scaled over the others."""

    def __init__(self, one: Release, other: Release, own: Array) -> None:
        mine, victim = np.r_[one.own, one.labels], one.victim
        constant = one.own.stop - 1
        self.rest = one.rows - 1
        self.sums = one.gram[victim, constant]
        self.block, self.cross = one.gram[victim, victim], one.gram[victim][:, mine]
        self.seen, self.seen_cross = other.gram[victim, victim], other.gram[victim][:, mine]
        self.own = own
        self.own_sums = one.gram[constant, mine] - own
        """Of the attacker's columns, without the row."""
        self.spread = np.sqrt(np.maximum(np.diag(self.block) / one.rows, _TINY))

    def _scales(self, row: Array) -> tuple[Array, Array]:
        """Means and deviations of the features over the other rows."""
        means = (self.sums - row) / self.rest
        return means, np.sqrt(np.maximum((np.diag(self.block) - row**2) / self.rest - means**2, _TINY))

    def _residuals(self, row: Array) -> tuple[Array, Array]:
        """By how much the second release is missed: its block of two features, and of a feature and an own column."""
        means, scales = self._scales(row)
        block = (self.block - np.outer(row, row) - self.rest * np.outer(means, means)) / np.outer(scales, scales)
        cross = (self.cross - np.outer(row, self.own) - np.outer(means, self.own_sums)) / scales[:, None]
        block, cross = block - self.seen, cross - self.seen_cross
        np.fill_diagonal(block, 0.0)  # a scaled feature's own is the number of rows, whatever the row was
        return block, cross

    def apart(self, row: Array) -> float:
        block, cross = self._residuals(row)
        return float(np.square(block).sum() / 2 + np.square(cross).sum())

    def solved(self, plain: Array) -> Array:
        """(width,): the row that misses least, by Levenberg and Marquardt from several starts."""
        own_best, own_other = self._by_own_columns()
        starts = [own_best, self._chosen(own_best, own_other), np.clip(plain, *(_FAR * self.spread * [[-1], [1]]))]
        return min((self._descended(start) for start in starts), key=self.apart)

    def _by_own_columns(self) -> tuple[Array, Array]:
        """For each feature alone, the two values that the attacker's own columns bear out best.

        A value changes the mean by itself and the deviation by its square, so that one column leaves two of them.
        """
        grid = np.linspace(-_FAR, _FAR, _GRID)[:, None] * self.spread
        cost = np.stack([np.square(self._residuals(row)[1]).sum(axis=1) for row in grid])
        best = cost.argmin(axis=0)
        low = np.full_like(cost, np.inf)
        dips = (cost[1:-1] <= cost[:-2]) & (cost[1:-1] <= cost[2:])
        low[1:-1][dips] = cost[1:-1][dips]
        columns = np.arange(cost.shape[1])
        low[best, columns] = np.inf
        second = np.where(np.isfinite(low.min(axis=0)), low.argmin(axis=0), best)
        return grid[best, columns], grid[second, columns]

    def _chosen(self, first: Array, second: Array) -> Array:
        """Of two values for each feature, those that fit together in the block of the features."""
        row, cost = first.copy(), self.apart(first)
        for _ in range(_SWEEPS):
            start = cost
            for at in range(len(row)) if len(row) <= _MOST_SWEPT else ():
                kept = row[at]
                row[at] = second[at] if kept == first[at] else first[at]
                if (other := self.apart(row)) < cost:
                    cost = other
                else:
                    row[at] = kept
            if cost == start:
                break
        return row

    def _descended(self, row: Array) -> Array:
        cost, damping = self.apart(row), 1e-3
        for _ in range(_STEPS):
            square, slope = self._normal_equations(row)
            moved = False
            while damping < 1e8 and not moved:
                step = np.linalg.solve(square + damping * np.diag(np.diag(square) + _TINY), slope)
                trial = row - step
                if (other := self.apart(trial)) < cost:
                    moved, gained = True, cost - other
                    row, cost, damping = trial, other, max(damping / 5, 1e-12)
                else:
                    damping *= 5
            if not moved or gained <= 1e-12 * cost:
                break
        return row

    def _normal_equations(self, row: Array) -> tuple[Array, Array]:
        """JᵀJ and Jᵀr. A number of the block depends on its two features alone, one of own columns on one."""
        means, scales = self._scales(row)
        block, cross = self._residuals(row)
        louder = (means - row) / (self.rest * scales**2)  # how the logarithm of a deviation moves with the feature
        inside = (means - row)[None, :] / np.outer(scales, scales) - (block + self.seen) * louder[:, None]
        np.fill_diagonal(inside, 0.0)
        beside = (self.own_sums / self.rest - self.own)[None, :] / scales[:, None]
        beside = beside - (cross + self.seen_cross) * louder[:, None]
        square = inside * inside.T
        np.fill_diagonal(square, np.square(inside).sum(axis=1) + np.square(beside).sum(axis=1))
        return square, (inside * block).sum(axis=1) + (beside * cross).sum(axis=1)


def difference(one: Release, other: Release, own: Array) -> Array:
    """(width,) the victim's features f of the row: of D = [own, f]ᵀ[own, f] the best f in least squares.

    The cross block is linear in f and the victim's own block is f fᵀ; the two are fitted in turns, from the cross
    block's answer and from the own block's first direction, and the better end is taken. With noise on the sums the
    cross block alone is used: its error is known, so that a reader can learn with it.
    """
    gram = one.gram - other.gram
    mine = np.r_[one.own, one.labels]
    cross, block = gram[one.victim][:, mine] @ own, gram[one.victim, one.victim]
    weight = float(own @ own)
    starts = [cross / weight] if weight else []
    if starts and (one.noise or other.noise):
        return np.asarray(starts[0])
    level, directions = np.linalg.eigh((block + block.T) / 2)
    first = directions[:, -1] * math.sqrt(max(0.0, float(level[-1])))
    starts.append(first if first @ cross >= 0 else -first)
    best, least = starts[0], math.inf
    for start in starts:
        f = start
        for _ in range(_TURNS):
            f = (cross + block @ f) / (weight + float(f @ f) + 1e-12)
        left = (
            np.square(block - np.outer(f, f)).sum() + 2 * np.square(gram[one.victim][:, mine] - np.outer(f, own)).sum()
        )
        if left < least:
            best, least = f, float(left)
    return np.asarray(best)
