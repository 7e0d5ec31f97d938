"""Attacks on the columns of a discovery: what a party opened of a source, what it guesses, and the algebra of features.

Features are linear in a source's columns: X·W has no more directions than X has columns. A discovery from sums opens no
features of rows, and sums over all rows in their place (`attacks.sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.attacks.base import Attack, Grant, View, granted, recorded
from veracausa.attacks.sums import ColumnCurve, ReleasedSums


@dataclass(frozen=True)
class Opened:
    """One batch as the target lived it: what it opened, then by what it let the weights grow."""

    rows: NDArray[np.int64]
    """Places among the training rows."""
    features: Array
    """(rows, targets·h)."""
    steps: Array
    """(rows, targets·h): the weights grew by Xᵀ·steps."""
    factors: Array | None
    """(columns, targets): by what the validator had the blocks scaled afterwards, if it looked."""


@dataclass(frozen=True)
class Candidates:
    """The graphs under which the rows kept apart were opened, one or many, and the features under each."""

    graphs: Mask
    """(graphs, columns, targets)."""
    features: Array
    """(graphs, rows, targets, h)."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ColumnView(View):
    """What one party, or several together, saw of one source's columns. An attack holds nothing else.

    Rows are the training rows that were used; features are what the source's columns add to those of the targets.
    """

    columns: int
    """How many attributes the source holds, which is public. In sums a nominal one counts for each category but one."""
    own: Array
    """(n, own): the attacker's own columns."""
    rng: np.random.Generator
    last: Array = recorded("a feature of a row")
    """(n, targets, h): every row as it was opened last."""
    mean: Array = recorded("a feature of a row")
    """(n, targets, h): the mean over all openings since the edges' order was settled."""
    history: Array = recorded("a feature of a row")
    """(snapshots, n, targets·h): some epochs of all, from the first to the last."""
    strengths: Array = recorded("what the factors say of strengths")
    """(columns, targets): as they follow from the factors that every holder is told."""
    mean_strengths: Array = recorded("what the factors say of strengths")
    """The same, averaged over the structure updates of the refit's second half."""
    candidates: Candidates = recorded("an opening of the held-out rows")
    first: tuple[Opened, ...] = recorded("every step of the first epochs")
    """The first epochs, batch by batch."""
    openings: tuple[tuple[Opened, ...], ...] = recorded("every step of the first epochs")
    """The same of every search, and of every attacker in league: each had weights of its own for the same columns."""
    first_range: float = 0.0
    """The source draws its first weights from ± this, which all know."""
    first_weights: Array = granted(Grant.FIRST_WEIGHTS)
    """(columns, targets·h): the weights before the first batch."""
    known: tuple[NDArray[np.int64], Array] = granted(Grant.KNOWN_ROWS)
    """Rows by place, and the source's values there."""
    looked: tuple[Array, tuple[Opened, ...]] = granted(Grant.VALIDATOR, optional=True)
    """The weights as the validator of mode M1 saw them first, and the batches after that; in mode M2 it sees strengths
    only, and a view has none."""

    own_features: Array = recorded("a function of the attacker's columns")
    """(n, own): the attacker's part in the sums."""
    numbers: NDArray[np.int64] = recorded("a layout of the source's functions")
    """(columns,): which of the source's functions are the attributes themselves, of mean 0 and deviation 1."""
    positive: NDArray[np.int64] = recorded("a layout of the source's functions")
    """Which of the source's functions are squares, and never negative."""
    sums: ReleasedSums = granted(Grant.VALIDATOR, optional=True)
    """What the validator received, or every party where the sums are opened to all."""
    second: Callable[[int], tuple[ReleasedSums, ReleasedSums]] = granted(
        Grant.VALIDATOR | Grant.SECOND_RELEASE, optional=True
    )
    """Of target i: the sums with it, and those of all other rows."""
    weighted: Callable[[], tuple[ReleasedSums, ...]] = granted(Grant.VALIDATOR | Grant.SECOND_RELEASE, optional=True)
    """Further sums of the same rows, each row times a public weight: the resamples of a bootstrap."""
    cross_sums: Callable[[Array], Array] = granted(Grant.VALIDATOR | Grant.TAMPER, optional=True)
    """(n, k) features of the attacker's making in, their (k, functions) sums with the source's out; an `InputError`
    where the check at home refuses one."""
    smallest: int = 1
    """A feature must tell so many rows from the others."""
    targets: NDArray[np.int64] = recorded("a choice of few rows")
    """Places of the few rows that are asked for, where an attack costs a release each."""
    expected: Array = granted(Grant.AUXILIARY, optional=True)
    """(n, columns): what the attacker's own columns say of each row, by a regression on rows of other people."""
    curves: tuple[ColumnCurve, ...] = granted(Grant.WEIGHTS, optional=True)
    """What the source makes of its columns at home, column by column."""
    known_features: Array = granted(Grant.KNOWN_ROWS | Grant.WEIGHTS, optional=True)
    """(known, functions): the source's functions of the known rows."""
    people: Array = granted(Grant.KNOWN_ROWS | Grant.WEIGHTS, optional=True)
    """(people, functions): rows that the attacker knows, and of which it wants to know whether they were summed up."""

    @property
    def rows(self) -> int:
        return len(self.own)


@dataclass(frozen=True)
class ColumnGuess:
    """The source's columns as the attacker reads them."""

    values: Array
    """(rows, guesses); a column of nan is no guess."""
    ordered: bool = False
    """Whether guess i is of attribute i; else they are matched to the truth as well as possible, in the attacker's
    favour."""
    rows: Literal["training", "held out"] = "training"
    at: NDArray[np.int64] | None = None
    """Which rows the values are of; None: all."""
    unordered_rows: bool = False
    """Whether the attacker does not know which guess is of which row; they are matched in its favour."""
    membership: Mapping[str, Array] | None = None
    """By statistic, (people,): the higher, the likelier somebody is among the rows. Then there are no values."""


class ColumnAttack(Attack[ColumnView]):
    """The base of all attacks on columns: one object, any number of views."""

    about: ClassVar[str] = ""
    """One sentence for the report."""
    order: ClassVar[int] = 99
    """Its place in a table."""
    drawn: ClassVar[int] = 0
    """Its place in the figure, from 1; 0: it is not drawn."""
    colluding: ClassVar[bool] = False
    """Whether parties in league try it on their features side by side."""
    on_sums: ClassVar[bool] = False
    """Whether it can be tried on a batch's sums, which is all that the strong mode opens, as if they were features."""
    opened: ClassVar[Literal["features", "sums"]] = "features"
    """What it works on: features of rows (`vfedcd`), or sums over all rows (`moments`)."""
    seat: ClassVar[Literal["party", "validator"]] = "party"
    """Who attacks: a party with columns of its own, or the validator, who has none and no ids."""
    breaks: ClassVar[str] = ""
    """What must be broken or consented to for it; empty: the attacker keeps to the protocol."""
    situations: ClassVar[tuple[str, ...]] = ()
    """Of sums: in which of the audit's situations it is tried; none: in the one of its seat."""

    def read(self, view: ColumnView) -> ColumnGuess | None:
        """The guess, or None where this view holds nothing that the attack works on."""
        self.begin(view)
        return self.guess(view.limited_to(self.needs | self.uses))

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        raise NotImplementedError


NEGLIGIBLE = 1e-9
"""A direction with less than this share of the variance is rounding."""


def flat(features: Array) -> Array:
    """(n, …) as (n, numbers)."""
    return features.reshape(len(features), -1)


def beside(history: Array) -> Array:
    """(moments, n, m) as (n, moments·m): all that was opened of a row, side by side."""
    moments, n, m = history.shape
    return np.ascontiguousarray(history.swapaxes(0, 1)).reshape(n, moments * m)


def directions(features: Array, rank: int) -> Array:
    """(n, at most rank): the features' strongest directions, centred, each of variance one.

    With noise on the features this is also what takes most of it away: the noise lies in all directions, X·W in few.
    """
    centred = features - features.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    kept = singular[:rank] ** 2 > max(NEGLIGIBLE * np.sum(singular**2), 1e-30)
    return np.asarray(left[:, :rank][:, kept] * np.sqrt(len(features)))


def regressed(known: Array, values: Array, all_rows: Array) -> Array:
    """What a linear map of features says of all rows, fitted on the known ones; of the maps that fit, the smallest."""
    centre, mean = known.mean(0), values.mean(0)
    solution, *_ = np.linalg.lstsq(known - centre, values - mean, rcond=1e-8)
    return np.asarray((all_rows - centre) @ solution + mean)


def explained(features: Array, values: Array) -> Array:
    """R² of each column of `values` by a linear map of all features, fitted on all rows."""
    found = regressed(features, values, features)
    rest = np.square(values - found).sum(0)
    return np.asarray(1 - rest / np.square(values - values.mean(0)).sum(0))
