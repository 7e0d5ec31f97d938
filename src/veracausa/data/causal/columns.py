"""Columns made fit for a causal fit, and what was done to them in words: missing, constant, collinear, discrete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError

Missing = Literal["median", "drop", "refuse"]
Pairwise = Literal["pairwise"]
"""Missing values stay nan, for a method that sums over the rows where two columns both have a value."""
Unusable = Literal["drop", "refuse"]
Collinear = Literal["keep", "drop", "refuse"]

DISCRETE = 10
"""A column of whole numbers with at most so many different ones is called discrete."""
NAMING = 20
"""From so many rows on, a whole number that never occurs twice is suspected to be a row's name."""
COLLINEAR = 1e-6
"""A standardised column of which no larger share than this is left, given the ones before it, follows from them."""
FEW_ROWS = 50
"""From fewer rows than this nothing can be told of causes."""
NAMED = 8
"""So many columns a sentence names before it counts the others."""


@dataclass(frozen=True)
class PreparedColumns:
    """Columns to fit, and which they were."""

    values: Array
    """(rows kept, columns kept)"""
    names: tuple[str, ...]
    kept: tuple[int, ...]
    """Positions of the columns among those given; the others take no part and stay without edges."""
    binary: tuple[bool, ...]
    """Which of the kept columns hold two values only."""
    mean: Array
    scale: Array
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What speaks against any graph of these columns, in words."""
    nominal: tuple[str, ...] = ()
    """Which of the kept columns only name categories."""


def standardised(values: Array, train_rows: int | None = None) -> tuple[Array, Array, Array]:
    """Columns of mean 0 and deviation 1 by the first `train_rows` rows, with both; a constant is only centred."""
    train = values[:train_rows]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    return (values - mean) / scale, mean, scale


def without_missing(
    values: Array, names: Sequence[str], how: Missing | Pairwise, nominal: Sequence[str] = ()
) -> tuple[Array, tuple[str, ...]]:
    """Values without nan, but for `pairwise`, and what was done in words."""
    absent = np.isnan(values)
    counts = absent.sum(axis=0)
    if not counts.any():
        return values, ()
    empty = [name for name, count in zip(names, counts, strict=True) if count == len(values)]
    if empty:
        raise InputError(f"column {empty[0]!r} holds no value at all; leave it out")
    lacking = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
    if how == "pairwise":
        return values, missing_pairs(values, names)
    if how == "refuse":
        at = int(counts.argmax())
        raise InputError(
            f"column {names[at]!r} lacks {counts[at]} of {len(values)} values; "
            "set missing = 'median' or 'drop', or fill them in"
        )
    if how == "drop":
        whole = values[~absent.any(axis=1)]
        if len(whole) < 2:
            raise InputError(f"every one of the {len(values)} rows lacks a value; set missing = 'median'")
        return whole, (f"{len(values) - len(whole)} of {len(values)} rows dropped for a missing value",)
    middle = np.nanmedian(values, axis=0)
    for at in (at for at, name in enumerate(names) if name in nominal):
        codes, often = np.unique(values[~absent[:, at], at], return_counts=True)
        middle[at] = codes[often.argmax()]
    put = {name: "commonest category" if name in nominal else "median" for name in lacking}
    said = tuple(f"{name}: {count} missing values set to the {put[name]}" for name, count in lacking.items())
    return np.where(absent, middle, values), said


def missing_pairs(values: Array, names: Sequence[str]) -> tuple[str, ...]:
    """How many values are missing where, and that sums do without them; nothing where none is."""
    counts = np.isnan(values).sum(axis=0)
    lacking = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
    sums = "sums use the rows where both columns have one"
    if len(lacking) > 1:
        return (f"missing values: {_listed([f'{name} {count}' for name, count in lacking.items()])}; {sums}",)
    return tuple(f"{name}: {count} missing values; {sums}" for name, count in lacking.items())


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def arbitrary_order(nominal: Sequence[str]) -> tuple[str, ...]:
    """The warning of a method that takes the codes of nominal columns as a scale; none where there are none."""
    if not nominal:
        return ()
    hold, it = ("holds", "it") if len(nominal) == 1 else ("hold", "them")
    return (
        f"{_listed(nominal)} {hold} categories without an order, and this method takes their numbers as a scale: edges "
        f"and directions there rest on an arbitrary order; method 'moments' takes {it} as categories",
    )


def prepare(
    values: ArrayLike,
    names: Sequence[str],
    *,
    standardise: bool = True,
    missing: Missing | Pairwise = "median",
    constant: Unusable = "drop",
    collinear: Collinear = "keep",
    train_rows: int | None = None,
    nominal: Sequence[str] = (),
    category_rows: int = 1,
) -> PreparedColumns:
    """Columns ready to fit; scales come from the first `train_rows` rows. Of `pairwise` ones nothing is scaled.

    A nominal column takes part if two of its categories, rarer ones taken together, have `category_rows` rows each.
    """
    table = np.array(values, dtype=np.float64)
    if np.isinf(table).any():
        at = int(np.isinf(table).any(axis=0).argmax())
        raise InputError(f"column {names[at]!r} holds an infinite value; correct it or leave the column out")
    table, notes = without_missing(table, names, missing, nominal)
    if len(table) < 2:
        raise InputError(f"{len(table)} row is too few to learn from; give at least 2")
    kept = np.flatnonzero(_varying(table, train_rows))
    still = [names[at] for at in sorted(set(range(len(names))) - set(kept.tolist()))]
    if still and constant == "refuse":
        raise InputError(f"column {still[0]!r} is constant; leave it out, or set constant = 'drop'")
    if still:
        notes += (f"{_listed(still)}: constant, {_no_part(len(still))}",)
    thin = [at for at in kept.tolist() if names[at] in nominal and not _two_groups(table[:, at], category_rows)]
    if thin:
        rare = f"no two of its categories have {category_rows} rows each"
        notes += (f"{_listed([names[at] for at in thin])}: {rare}, {_no_part(len(thin))}",)
        kept = np.setdiff1d(kept, thin)
    if not len(kept):
        raise InputError("every column is constant; there is nothing to learn from: give columns whose values differ")
    used = len(table) if train_rows is None else min(train_rows, len(table))
    warnings: tuple[str, ...] = (few_rows(len(table)),) if len(table) < FEW_ROWS else ()
    filled = np.where(np.isnan(table), np.nanmean(table, axis=0), table)[:, kept]
    ready = standardised(filled, train_rows)[0][:train_rows]
    dependent = _dependent(ready)
    if dependent and len(kept) >= used:
        # Then it says nothing of single columns: any so many of them span all rows.
        said = f"{len(kept)} columns for {used} rows to learn from: edges can not be told apart"
        if collinear == "refuse":
            raise InputError(f"{said}; give more rows or fewer columns, or set collinear = 'keep'")
        left = f", and {len(dependent)} columns take no part" if collinear == "drop" else ""
        warnings += (f"{said}{left}; give more rows or fewer columns (--set data.columns=...)",)
    elif dependent:
        said_of = _said_of_dependent(ready, dependent, [names[at] for at in kept.tolist()], collinear)
        notes, warnings = (notes + said_of, warnings) if collinear == "drop" else (notes, warnings + said_of)
    if collinear == "drop":
        kept = np.delete(kept, dependent)
    table = table[:, kept]
    known = [column[~np.isnan(column)] for column in table.T]
    kinds = [len(np.unique(column[:10_000])) for column in known]
    own = tuple(names[at] for at in kept.tolist())
    notes += _said_of_values(dict(zip(own, known, strict=True)), dict(zip(own, kinds, strict=True)), nominal)
    mean, scale = np.zeros(len(kept)), np.ones(len(kept))
    if standardise and missing != "pairwise":
        table, mean, scale = standardised(table, train_rows)
    chosen = tuple(int(at) for at in kept)
    binary = tuple(kind == 2 for kind in kinds)
    left_nominal = tuple(name for name, two in zip(own, binary, strict=True) if name in nominal and not two)
    return PreparedColumns(table, own, chosen, binary, mean, scale, notes, warnings, left_nominal)


def _no_part(columns: int) -> str:
    return "takes no part and stays without edges" if columns == 1 else "take no part and stay without edges"


def few_rows(rows: int) -> str:
    return f"{rows} rows are too few to tell a cause from chance: take no edge for found; give some hundred rows"


def _varying(table: Array, train_rows: int | None) -> Mask:
    """Which columns have more than one value in the rows to train on."""
    train = table[:train_rows]
    known = ~np.isnan(train)
    mean = np.where(known, train, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    spread = np.sqrt(np.where(known, np.square(train - mean), 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return np.asarray(spread > 1e-12 * (1 + np.nanmax(np.abs(table), axis=0)))


def _two_groups(column: Array, rows: int) -> bool:
    """Whether two categories have so many rows each, those with fewer taken together."""
    counts = np.unique(column[~np.isnan(column)], return_counts=True)[1]
    return int((counts >= rows).sum()) + bool(counts[counts < rows].sum() >= rows) >= 2


def _said_of_values(known: dict[str, Array], kinds: dict[str, int], nominal: Sequence[str]) -> tuple[str, ...]:
    """What is to be said of numbers that may be codes, and of those that may be names; `kinds`: different values."""
    few, naming = {}, []
    for name, column in known.items():
        whole = bool((column == np.round(column)).all())
        if whole and 2 < kinds[name] <= DISCRETE and name not in nominal:
            few[name] = kinds[name]
        elif whole and len(column) >= NAMING and kinds[name] > DISCRETE and len(np.unique(column)) == len(column):
            naming.append(name)
    said = []
    if few:
        listed = _listed([f"{name} ({count} different values)" for name, count in few.items()])
        codes = "codes are named by --set data.categorical=NAME, in Python by a categorical column"
        said.append(f"discrete, fitted as {'numbers' if len(few) > 1 else 'a number'}: {listed}; {codes}")
    if naming:
        said.append(
            f"{_listed(naming)}: a different whole number in every row; if it only names the rows, leave it out "
            f"(--set data.id={naming[0]})"
        )
    return tuple(said)


def two_values(names: Sequence[str], fitted: str) -> tuple[str, ...]:
    """That these columns have two values, and how they are fitted; nothing where there is none."""
    return (f"{_listed(names)}: two values, fitted as {fitted}",) if names else ()


def _said_of_dependent(
    ready: Array, dependent: Sequence[int], names: Sequence[str], collinear: Collinear
) -> tuple[str, ...]:
    """One sentence on columns that repeat another one, and one on those that follow from several."""
    copies = _copies(ready, dependent)
    others = [names[at] for at in dependent if at not in copies]
    twice = [f"{names[at]} repeats {names[first]}" for at, first in copies.items()]
    follow = "follows" if len(others) == 1 else "follow"
    said = {f"{_listed(twice)}, up to its unit": len(twice)} if copies else {}
    said |= {f"{_listed(others)} {follow} linearly from the columns before": len(others)} if others else {}
    if collinear == "refuse":
        raise InputError(f"{next(iter(said))}; leave out such columns, or set collinear = 'keep' or 'drop'")
    drawn = "edges of such columns can not be told apart; --set collinear=drop leaves them out"
    return tuple(
        f"{sentence}, {_no_part(count)}" if collinear == "drop" else f"{sentence}: {drawn}"
        for sentence, count in said.items()
    )


def _copies(columns: Array, dependent: Sequence[int]) -> dict[int, int]:
    """Which of these columns repeat an earlier one, and which one that is."""
    unit = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    found = {}
    for at in dependent:
        near = np.abs(unit[:, :at].T @ unit[:, at])
        if at and near.max() > 1 - COLLINEAR**2:
            found[at] = int(near.argmax())
    return found


def _dependent(columns: Array) -> list[int]:
    """Columns that lie in the span of the earlier ones, by Gram and Schmidt, twice for the rounding."""
    basis = np.zeros((len(columns), 0))
    found = []
    for at in range(columns.shape[1]):
        rest = columns[:, at]
        length = np.linalg.norm(rest)
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        left = np.linalg.norm(rest)
        if left <= COLLINEAR * length:
            found.append(at)
        elif basis.shape[1] < len(columns):
            basis = np.column_stack([basis, rest / left])
    return found


@dataclass(frozen=True)
class PreparedTable:
    """What a fit is made of: columns that are ready, in one order, and what is known of them."""

    train: Array
    """(n, d)"""
    held_out: Array
    names: tuple[str, ...]
    binary: Mask
    required: Mask
    forbidden: Mask
    warnings: tuple[str, ...] = ()
    """What speaks against any graph of these columns, in words."""
    start: Mask | None = None
    """(d, d): the edges of a graph from which a search may start."""
    start_stands: bool = False
    """Whether its order is not compared with those of searches."""

    def resampled(self, rng: np.random.Generator) -> PreparedTable:
        """As many rows, drawn with replacement; a held-out row is never trained on."""
        train, held_out = (rows[rng.integers(0, len(rows), len(rows))] for rows in (self.train, self.held_out))
        return replace(self, train=train, held_out=held_out)
