"""Tables as each party holds them: rows aligned on the active party's ids, columns and labels turned into numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.data import overlap, preprocessing
from veracausa.data.columns import numbers_or_words, profile, remarks
from veracausa.data.ids import TableFile, held_by_all
from veracausa.data.options import DataOptions
from veracausa.data.overlap import hold_out, limit_notes
from veracausa.data.tables import Holding, TableOptions, Tables, columns_held
from veracausa.data.vertical import SPLITS, Part, PartyData, Split, VerticalDataset
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from veracausa.config import Job


Rows = Mapping[Split, Tensor]
"""By split and position: a row of the active party's file, or of one's own (-1: the party lacks it)."""
Everywhere = Callable[[Split, Tensor], Tensor]
"""Which of these rows of the active party's file every party with features holds."""


def split_tables(tables: Tables[TableFile], options: TableOptions, job: Job) -> VerticalDataset:
    """The tables split between parties, positions agreed; preprocessing fitted on each party's own training rows."""
    active = tables.holdings[job.parties.active]
    labels = Labels.of(active, options)
    columns = columns_held(tables, options.label, job)

    def found(name: str, split: Split, rows: Tensor) -> Tensor:
        own, leading = file_of(tables.holdings[name], split), file_of(active, split)
        return rows if own is leading else own.find([leading.ids[row] for row in rows.tolist()])

    sizes = active.train.frame.height, None if active.test is None else active.test.frame.height
    drawn = draw_splits(sizes, options, tables.holdout, job.seed)
    agreed, notes = keep_common(
        drawn, options, lambda split, rows: held_by_all([found(name, split, rows) for name in columns])
    )
    parties = {}
    for name in (job.parties.active, *job.parties.passive):
        own = {split: found(name, split, rows) for split, rows in agreed.items()}
        targets = labels.at(own) if name == job.parties.active else None
        parties[name] = PartyRows(name, tables.holdings[name], own, job, options.label).data(columns.get(name), targets)
    notes = (*tables.notes, *notes, *unused_columns(active, job.parties.active, options.label, columns))
    notes += tuple(remark for name, data in parties.items() for remark in remarks(name, data.profile))
    return VerticalDataset(options.name, job.parties.active, parties, labels.task, labels.classes, "features", notes)


def file_of(holding: Holding[TableFile], split: Split) -> TableFile:
    """Where the rows of a split lie."""
    return holding.test if split == "test" and holding.test is not None else holding.train


@dataclass(frozen=True)
class Labels:
    """The active party's labels, by split and row of its file."""

    task: Task
    classes: tuple[str, ...]
    values: Mapping[Split, Tensor]

    @classmethod
    def of(cls, active: Holding[TableFile], options: TableOptions) -> Labels:
        active.train.require(options.label, "the label")
        column = active.train.frame[options.label]
        if active.train.frame.height < 2:
            raise InputError(f"{active.train.path}: has one row; training and test need one each at least")
        if options.task == "auto":
            check_amounts(column, str(active.train.path))
        task = task_of(column) if options.task == "auto" else options.task
        classes = classes_of(column, str(active.train.path)) if task == "classification" else ()
        encoded: dict[int, Tensor] = {}
        for file in (active.train, *([active.test] if active.test is not None else [])):
            file.require(options.label, "the label")
            encoded[id(file)] = encode(file.frame[options.label], task, classes, str(file.path))
        return cls(task, classes, {split: encoded[id(file_of(active, split))] for split in SPLITS})

    def at(self, rows: Rows) -> dict[Split, Tensor]:
        return {split: self.values[split][own] for split, own in rows.items()}


@dataclass(frozen=True)
class Drawn:
    """Which rows of the active party's file make up each split, before some party lacks any."""

    rows: Rows
    in_all: int
    """Training rows before a limit."""


def draw_splits(sizes: tuple[int, int | None], options: DataOptions, holdout: float, seed: int) -> Drawn:
    """The splits of an active party whose file has so many rows, and its test file where there is one."""
    train, test = torch.arange(sizes[0]), torch.arange(sizes[1] or 0)
    if sizes[1] is None:
        drawn = hold_out(len(train), holdout, seeding.generator(seed, "holdout"), "data.holdout")
        train, test = train[~drawn], train[drawn]
    in_all = len(train)
    train = train[: options.train]
    drawn = hold_out(len(train), options.validation, seeding.generator(seed, "validation"), "data.validation")
    return Drawn({"train": train[~drawn], "validation": train[drawn], "test": test}, in_all)


def keep_common(
    drawn: Drawn, options: TableOptions, everywhere: Everywhere
) -> tuple[dict[Split, Tensor], tuple[str, ...]]:
    """The same splits, less the rows of validation and test that some party lacks; and what was left out."""
    agreed, notes = dict(drawn.rows), []
    for split in ("validation", "test"):
        common = everywhere(split, agreed[split])
        agreed[split] = agreed[split][common]
        if not common.all():
            dropped = len(common) - int(common.sum())
            notes.append(f"{options.name}: {dropped} of {len(common)} {split} rows dropped: not every party holds them")
    if not len(agreed["test"]):
        raise InputError("no test row is held by every party; check that the id columns name the same people")
    notes += limit_notes(options, (drawn.in_all, len(agreed["test"])))
    agreed["test"] = agreed["test"][: options.test]
    return agreed, tuple(notes)


def unused_columns(active: Holding[Any], name: str, label: str, columns: Mapping[str, Any]) -> tuple[str, ...]:
    """What is to be said where the active party has features and the job does not use them."""
    spare = [column for column in active.train.columns if column not in (active.train.id, label)]
    if not active.own or name in columns or not spare:
        return ()
    return (f"party {name}: {len(spare)} columns of its own are not used (partition.active_has_features is false)",)


@dataclass(frozen=True)
class PartyRows:
    """One party's way from the rows of its own file at each position to its parts."""

    name: str
    holding: Holding[TableFile]
    found: Rows
    job: Job
    label: str = ""

    def data(self, columns: tuple[str, ...] | None, labels: Mapping[Split, Tensor] | None) -> PartyData:
        fitted: dict[str, Any] | None = None
        # Overlap first: what a party is said to lack must not shape its preprocessing.
        positions, found = self._held("train")
        file, rows = self.holding.train, found[positions]
        frame = file.take(rows)
        if columns is not None:
            fitted = preprocessing.fit(frame, columns, str(file.path), rows.tolist())
            if not preprocessing.column_count(fitted):
                raise InputError(
                    f"{file.path}: every column of party {self.name!r} is constant in the training rows; "
                    "there is nothing to learn from"
                )
        columns_seen = profile(frame, fitted, self._aside(columns or ()))
        train, validation, test = (
            self._part(split, fitted, None if labels is None else labels[split]) for split in SPLITS
        )
        shape = () if train.features is None else tuple(train.features.shape[1:])
        return PartyData(self.name, shape, train, validation, test, fitted, columns_seen)

    def _aside(self, columns: Sequence[str]) -> dict[str, str]:
        """The columns that are none of its features, and what they are; of a shared file, not the others'."""
        file, active = self.holding.train, self.name == self.job.parties.active
        aside = {file.id: "id"} if file.id else {}
        if active:
            aside[self.label] = "label"
        if self.holding.own:
            aside |= {name: "left out" for name in file.frame.columns if name not in columns and name not in aside}
        return {name: what for name, what in aside.items() if name in file.frame.columns}

    def _held(self, split: Split) -> tuple[Tensor, Tensor]:
        """The positions this party holds, and the row of its file for every position (-1: none)."""
        found, job = self.found[split], self.job
        positions = (found >= 0).nonzero().flatten()
        if split == "train":
            if not len(positions):
                raise InputError(
                    f"party {self.name!r}: no id of {self.holding.train.path} is among the active party's; "
                    "check that both id columns name the same people in the same way"
                )
            if self.name in overlap.parties_lacking(job.overlap, job.parties.passive):
                positions = positions[overlap.held(len(positions), job.overlap.fraction, job.seed, self.name)]
        return positions, found

    def _part(self, split: Split, fitted: Mapping[str, Any] | None, labels: Tensor | None) -> Part:
        file = file_of(self.holding, split)
        if fitted is None:
            rows = self.found[split]
            return Part(len(rows), labels=labels, ids=tuple(file.ids[row] for row in rows.tolist()))
        positions, found = self._held(split)
        rows, length = found[positions], len(found)
        features = preprocessing.apply(fitted, file.take(rows), str(file.path), rows.tolist())
        index = None if len(positions) == length else overlap.index_of(positions, length)
        ids = [""] * length
        for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
            ids[position] = file.ids[row]
        return Part(length, features, index, labels, tuple(ids), preprocessing.feature_groups(fitted))


Task = Literal["classification", "regression"]

# Whole numbers with more different values than this are taken for amounts, unless the job says otherwise.
MOST_CLASSES = 20


def task_of(labels: pl.Series) -> Task:
    """Regression for fractions and for numbers of many different values, else classification."""
    known = labels.drop_nulls()
    if not known.dtype.is_numeric():
        return "classification"
    fractional = known.dtype.is_float() and bool((known != known.round(0)).any())
    return "regression" if fractional or known.n_unique() > MOST_CLASSES else "classification"


def check_amounts(labels: pl.Series, where: str) -> None:
    """Refuse labels that are amounts but for a stray word: they would become as many classes as there are amounts."""
    import polars as pl

    if labels.dtype == pl.String and labels.n_unique() > MOST_CLASSES:
        numbers_or_words(labels, where, None, "or set data.task = 'classification' if the labels are classes")


def classes_of(labels: pl.Series, where: str) -> tuple[str, ...]:
    """The class names in order: of size for numbers, else of the alphabet."""
    return ordered_classes(set(_names(labels, where).unique()), labels.dtype.is_numeric(), labels.name, where)


def ordered_classes(names: set[str], numeric: bool, label: str, where: str) -> tuple[str, ...]:
    """The class names in order, at least two."""
    if len(names) < 2:
        only = f"the one value {names.pop()!r}" if names else "no value"
        raise InputError(f"{where}: label column {label!r} has {only}; a class label needs at least 2")
    return tuple(sorted(names, key=float) if numeric else sorted(names))


def encode(
    labels: pl.Series, task: Task, classes: Sequence[str], where: str, rows: Sequence[int] | None = None
) -> Tensor:
    """(rows,) int64 class numbers, or float32 targets; `rows` are the file's own row numbers, for messages."""
    import polars as pl

    if task == "regression":
        return torch.from_numpy(_targets(labels, where, rows))
    names = _names(labels, where, rows)
    numbers = names.replace_strict(list(classes), range(len(classes)), default=-1, return_dtype=pl.Int64).to_numpy()
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        at = int(unknown[0])
        raise InputError(
            f"{where}: label column {labels.name!r}, row {_row(at, rows)}: "
            f"{names[at]!r} is no known class{did_you_mean(names[at], classes)}"
        )
    return torch.tensor(numbers, dtype=torch.int64)


def _row(at: int, rows: Sequence[int] | None) -> int:
    return int(at if rows is None else rows[at]) + 1


def _names(labels: pl.Series, where: str, rows: Sequence[int] | None = None) -> pl.Series:
    import polars as pl

    check_present(labels, where, rows)
    # 1.0 and 1 are the same class: a file with a gap elsewhere may have had its integers turned into fractions.
    if labels.dtype.is_float() and bool((labels == labels.round(0)).all()):
        labels = labels.cast(pl.Int64)
    return labels.cast(pl.String)


def _targets(labels: pl.Series, where: str, rows: Sequence[int] | None) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    import polars as pl

    check_present(labels, where, rows)
    numbers = labels.cast(pl.Float64, strict=False)
    with np.errstate(over="ignore"):
        values = numbers.fill_null(float("inf")).to_numpy().astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"{where}: label column {labels.name!r}, row {_row(at, rows)}: {labels[at]!r} is no number to predict; "
            "correct it, or set data.task = 'classification'"
        )
    return values


def check_present(labels: pl.Series, where: str, rows: Sequence[int] | None = None) -> None:
    """Refuse a missing label, with its row."""
    absent = labels.is_null()
    if labels.dtype.is_float():
        absent = absent | labels.is_nan().fill_null(True)
    missing = absent.arg_true()
    if len(missing):
        raise InputError(
            f"{where}: label column {labels.name!r}, row {_row(int(missing[0]), rows)}: "
            "the label is missing; fill it in or remove the row"
        )
