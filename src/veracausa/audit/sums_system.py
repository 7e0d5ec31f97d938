"""A discovery from sums as an audit holds it: every party's rows, what they make of them, and what is released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.attacks.sums import FEW_VALUES, ColumnCurve, span
from veracausa.crypto.moments import MomentPlan
from veracausa.crypto.moments.encoding import encode_block
from veracausa.discovery.engines.sums.features import OwnFeatures, own_features
from veracausa.discovery.engines.sums.plan import MOST_WEIGHT, SumsPlan
from veracausa.discovery.methods.moments.expansion import ColumnKind, NodeLayout, clipped

GRID = 161
"""Values of a number at which its functions are tabulated."""
JUMPS = 4
FEWEST_FOR_TREES = 2000
FOLDS = 10
PENALTIES = tuple(10.0**power for power in range(-3, 5))


@dataclass(frozen=True)
class VictimColumn:
    """One column of a party as its guesses are scored."""

    name: str
    kind: ColumnKind
    truth: Array
    """(n,): of mean 0 and deviation 1 before far values are cut; of a nominal column the number of the category."""
    curve: ColumnCurve
    squares: NDArray[np.int64]
    """Which of the party's functions are squares of it."""

    @property
    def nominal(self) -> bool:
        return self.kind == "nominal"


@dataclass(frozen=True)
class SummedParty:
    """One party: its columns that take part, and its functions as they are summed up."""

    columns: tuple[VictimColumn, ...]
    features: Array
    """(n, width): as integers, in units of 1."""
    made: OwnFeatures

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Which functions are the columns themselves."""
        found = [column.curve.at[: len(column.curve.guesses)] for column in self.columns]
        return np.concatenate(found)


@dataclass(frozen=True)
class SumsSystem:
    """All parties' rows and the plan by which they are summed up."""

    plan: SumsPlan
    moments: MomentPlan
    parties: Mapping[str, SummedParty]
    values: Mapping[str, Array]
    kinds: Mapping[str, Sequence[ColumnKind]]
    others: Mapping[str, Array] | None = None
    """By party, the columns of other people, who are not summed up; None: the table's own rows stand for them."""

    @classmethod
    def of(
        cls,
        plan: SumsPlan,
        values: Mapping[str, Array],
        kinds: Mapping[str, Sequence[ColumnKind]],
        others: Mapping[str, Array] | None = None,
    ) -> SumsSystem:
        """Every party's functions, as its program makes them."""
        plan.check()
        made = {party: own_features(plan, party, values[party], kinds[party]) for party in plan.parties}
        moments = plan.moments({party: own.width for party, own in made.items()})
        moments.check()
        parties = {
            party: SummedParty(
                victim_columns(values[party], plan.columns[party], kinds[party], made[party]),
                encoded(moments, party, made[party].features),
                made[party],
            )
            for party in plan.parties
        }
        return cls(plan, moments, parties, values, kinds, others)

    @property
    def rows(self) -> int:
        return self.plan.rows

    @property
    def widths(self) -> dict[str, int]:
        return {party: own.features.shape[1] for party, own in self.parties.items()}

    @property
    def noise(self) -> float:
        """The deviation of one party's noise on a sum; 0 without differential privacy."""
        return 0.0 if self.moments.account is None else self.moments.account.deviation * self.moments.unit

    @property
    def rows_a_column(self) -> float:
        """Rows for each function of the two parties that have most of them."""
        return self.rows / sum(sorted(self.widths.values())[-2:])

    @cached_property
    def everybody(self) -> Array:
        """(n, all functions)."""
        return np.concatenate([own.features for own in self.parties.values()], axis=1)

    def without(self, row: int) -> SumsSystem:
        """The same discovery of all rows but one, every function made anew."""
        rest = np.delete(np.arange(self.rows), row)
        plan = SumsPlan(self.plan.settings, self.plan.columns, self.rows - 1, self.plan.seed)
        return SumsSystem.of(plan, {party: values[rest] for party, values in self.values.items()}, self.kinds)

    def weighted(self, party: str, roots: Array) -> Array:
        """(n, width): the functions of a party as a resample sums them up."""
        wide = replace(self.moments, limit=self.moments.limit * math.sqrt(MOST_WEIGHT))
        return encoded(wide, party, self.parties[party].made.features * roots[:, None])

    def expected(self, attackers: tuple[str, ...], victim: str) -> Array:
        """(n, guesses): what attackers' columns say of each row, by a regression on rows of other people.

        Of ridge on their functions and boosted trees on their columns, the one that does better on people left out.
        Without others, every tenth of the rows is predicted by a regression on the nine other tenths. No attack may use
        that: these rows are in the sums.
        """
        return _expected(self, attackers, victim)

    def alone(self, attackers: tuple[str, ...], victim: str) -> tuple[float, ...]:
        """R² of each number by attackers' columns and rows of other people, without any sum.

        Without others it is the adjusted R² of the regression over all rows: what one on any number of other people
        would reach.
        """
        expected, columns = self.expected(attackers, victim), self.parties[victim].columns
        if self.others is not None:
            guesses = [(column, expected[:, column.curve.guesses[0]]) for column in columns if not column.nominal]
            return tuple(explained(guess, column.truth) for column, guess in guesses)
        own = np.concatenate([self.parties[party].made.features for party in attackers], axis=1)
        basis, _, _ = span(own)
        left = self.rows / max(1, self.rows - basis.shape[1])
        numbers = [np.nan_to_num(column.truth) for column in columns if not column.nominal]
        return tuple(1 - (1 - explained(basis @ (basis.T @ truth), truth)) * left for truth in numbers)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def explained(guess: Array, truth: Array) -> float:
    """R² of a guess beside the column's mean, which is 0."""
    here = ~np.isnan(truth)
    return float(1 - np.square(truth[here] - guess[here]).sum() / max(np.square(truth[here]).sum(), 1e-300))


def encoded(moments: MomentPlan, party: str, features: Array) -> Array:
    """Functions as the integers that are summed up, cut to the plan's norm where noise is added."""
    return np.asarray(encode_block(moments, party, features, len(features)) * 2.0**-moments.value_bits)


def victim_columns(
    values: Array, names: Sequence[str], kinds: Sequence[ColumnKind], made: OwnFeatures
) -> tuple[VictimColumn, ...]:
    """The columns that take part, with tables of their functions."""
    found, start, guessed = [], 0, 0
    for column, name, kind, node in zip(values.T, names, kinds, made.nodes, strict=True):
        if node is None:
            continue
        at = np.arange(start, start + node.functions + node.powers)
        guesses = np.arange(guessed, guessed + node.response)
        truth = column if kind == "nominal" else standardised(column, column)
        curve = _curve(column, truth, node, made.features[:, at], at, guesses)
        squares = at[node.functions : node.functions + min(1, node.powers)]
        found.append(VictimColumn(name, kind, truth, curve, squares))
        start, guessed = start + node.width, guessed + node.response
    return tuple(found)


def standardised(values: Array, column: Array) -> Array:
    """Values in the units that a party's first function of a column has: of deviation 1 once far values are cut."""
    near = clipped(column[~np.isnan(column)])
    return np.asarray((values - near.mean()) / near.std())


def _curve(
    column: Array,
    truth: Array,
    node: NodeLayout,
    features: Array,
    at: NDArray[np.int64],
    guesses: NDArray[np.int64],
) -> ColumnCurve:
    here = ~np.isnan(column)
    values, counts = np.unique(truth[here], return_counts=True)
    if node.kind == "nominal" or len(values) <= FEW_VALUES:
        table = np.stack([np.median(features[here & (truth == value)], axis=0) for value in values])
        return ColumnCurve(node.kind, at, values, table, counts.astype(np.float64), guesses)
    # Whatever a party does to a column's functions at home, they stay functions of its value.
    near = standardised(clipped(column[here]), column)
    near, first = np.unique(near, return_index=True)
    points = features[here][first]
    # They may jump, where rows at an end share one value: both sides of the steepest steps are in the table.
    steep = np.square(np.diff(points, axis=0)).sum(axis=1) / (np.diff(near) + 1 / GRID)
    sides = np.argsort(-steep)[:JUMPS, None] + np.arange(2)
    grid = np.unique(np.concatenate([np.linspace(near[0], near[-1], GRID), near[sides].ravel()]))
    table = np.column_stack([np.interp(grid, near, each) for each in points.T])
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    chances = np.histogram(truth[here], edges)[0] + 0.1
    return ColumnCurve(node.kind, at, grid, table, chances, guesses)


@lru_cache(maxsize=64)
def _expected(system: SumsSystem, attackers: tuple[str, ...], victim: str) -> Array:
    # An attacker has its own functions as they are, whatever is cut before they are summed up.
    own = np.concatenate([system.parties[party].made.features for party in attackers], axis=1)
    party = system.parties[victim]
    if system.others is None:
        ridge = _Ridge(own, party.made.features[:, party.numbers])
        return ridge.left_out(ridge.penalty)
    learnt = np.concatenate([_functions(system, party) for party in attackers], axis=1)
    there = _functions(system, victim)[:, party.numbers]
    ridge = _Ridge(learnt, there)
    found = np.asarray(np.column_stack([np.ones(len(own)), own]) @ ridge.weights(ridge.penalty))
    rest = ridge.fold == FOLDS - 1
    errors = np.square(there - ridge.left_out(ridge.penalty))[rest].mean(axis=0)
    for at in range(there.shape[1]):
        trees = _trees(system, attackers, there[:, at], rest)
        if trees is not None and trees[0] < errors[at]:
            found[:, at] = trees[1]
    return found


def _trees(
    system: SumsSystem, attackers: tuple[str, ...], values: Array, rest: NDArray[np.bool_]
) -> tuple[float, Array] | None:
    """The error of boosted trees on some of the other people, and what they say of each row."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    assert system.others is not None
    if len(values) < FEWEST_FOR_TREES:
        return None
    learnt, own = (
        np.concatenate([each[party] for party in attackers], axis=1) for each in (system.others, system.values)
    )
    model = HistGradientBoostingRegressor(max_iter=200, learning_rate=0.05, random_state=0)
    model.fit(learnt[~rest], values[~rest])
    return float(np.square(values - model.predict(learnt))[rest].mean()), np.asarray(model.predict(own))


def _functions(system: SumsSystem, party: str) -> Array:
    """(others, width): a party's functions of other people's columns."""
    assert system.others is not None
    own = system.parties[party]
    made = np.zeros((len(system.others[party]), own.features.shape[1]))
    places = {name: at for at, name in enumerate(system.plan.columns[party])}
    for column in own.columns:
        theirs, ours = (table[party][:, places[column.name]] for table in (system.others, system.values))
        made[:, column.curve.at] = column.curve.of(theirs if column.nominal else standardised(theirs, ours))
    return made


class _Ridge:
    """Ridge regressions of some values on own functions, each without a tenth of the rows."""

    def __init__(self, own: Array, values: Array) -> None:
        self.whole, self.values = np.column_stack([np.ones(len(own)), own]), values
        self.fold = np.arange(len(own)) % FOLDS
        parts = [self.fold == fold for fold in range(FOLDS)]
        self.squares = [self.whole[part].T @ self.whole[part] for part in parts]
        self.products = [self.whole[part].T @ values[part] for part in parts]

    def weights(self, penalty: float, without: int | None = None) -> Array:
        """(1 + own, columns): an offset and slopes, by all tenths but one."""
        kept = [fold for fold in range(FOLDS) if fold != without]
        square = np.sum([self.squares[fold] for fold in kept], axis=0)
        inner = np.arange(1, len(square))
        square[inner, inner] += penalty
        product = np.sum([self.products[fold] for fold in kept], axis=0)
        return np.asarray(np.linalg.lstsq(square, product, rcond=1e-12)[0])

    def left_out(self, penalty: float) -> Array:
        """(n, columns): each tenth by the others."""
        found = np.zeros_like(self.values)
        for fold in range(FOLDS):
            inside = self.fold == fold
            found[inside] = self.whole[inside] @ self.weights(penalty, fold)
        return found

    @cached_property
    def penalty(self) -> float:
        """Of all penalties the one with the least error on rows that were left out."""
        errors = {each: float(np.square(self.values - self.left_out(each)).sum()) for each in PENALTIES}
        return min(errors, key=lambda each: errors[each])
