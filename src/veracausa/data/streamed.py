"""Tables of blind training that are streamed: the rows of every file are read in blocks each time they are wanted.

Rows that are streamed cannot be put in order. The parties' files must hold the same people in the same order, which is
compared by a digest of the ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from veracausa.data import preprocessing
from veracausa.data.blocks import StreamedTable
from veracausa.data.column_sums import ColumnSums, fit_pieces
from veracausa.data.columns import remarks
from veracausa.data.row_draw import RowDraw
from veracausa.data.split_tables import MOST_CLASSES, Task, check_present, encode, ordered_classes, unused_columns
from veracausa.data.tables import Holding, TableFileOptions, Tables, columns_held
from veracausa.data.vertical import SPLITS, Part, PartyData, RowBlock, Split, VerticalDataset
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from veracausa.config import Job

MOST_LABELS = 1 << 16
"""Different labels of a classification."""
CHECKED_IDS = 1 << 24
"""Up to so many rows, ids are checked to be all different: 8 bytes a row."""


@dataclass(frozen=True)
class LabelColumn:
    """The active party's labels: what they are is known from all of them, and they are read block by block."""

    name: str
    task: Task
    classes: tuple[str, ...] = ()
    whole: bool = True
    """Whether all numbers are whole: then 1.0 and 1 are the same class."""

    def encoded(self, series: pl.Series, where: str, rows: Sequence[int]) -> Tensor:
        import polars as pl

        if self.task == "classification" and series.dtype.is_float() and not self.whole:
            check_present(series, where, rows)
            series = series.cast(pl.String)
        return encode(series, self.task, self.classes, where, rows)


@dataclass(frozen=True)
class TableStream:
    """One party's rows of one split, read from its file."""

    table: StreamedTable
    split: Split
    draw: RowDraw | None = None
    """Which rows of the file they are; None: all."""
    fitted: Mapping[str, Any] | None = None
    """How the columns become numbers; None: the party has no features."""
    label: LabelColumn | None = None

    @property
    def has_features(self) -> bool:
        return self.fitted is not None

    @property
    def length(self) -> int:
        return self.table.rows if self.draw is None else self.draw.length(self.split)

    def pieces(self, columns: Sequence[str], start: int = 0) -> Iterator[tuple[Sequence[int], pl.DataFrame]]:
        """These columns of the rows from position `start` on, as the file's pieces give them, with their rows."""
        if self.draw is None:
            for first, frame in self.table.file.pieces(columns, start):
                yield range(first, first + frame.height), frame
            return
        left = self.length - start
        for first, frame in self.table.file.pieces(columns, self.draw.row_of(self.split, start)):
            here = np.flatnonzero(self.draw.codes(first, first + frame.height) == SPLITS.index(self.split))
            left -= len(here)
            if len(here):
                yield (here + first), frame[here]  # type: ignore[misc]
            if left <= 0:  # a limit may leave most of the file unread
                return

    def blocks(self, rows: int, start: int = 0) -> Iterator[RowBlock]:
        """The rows from position `start` on, so many at a time; the last block may be shorter."""
        needed = [c["name"] for c in (self.fitted or {"columns": ()})["columns"] if c["kind"] != "constant"]
        needed += [self.label.name] if self.label else []
        needed += [self.table.id] if self.table.id else []
        left = RowBlock(start, 0)
        for numbers, frame in self.pieces(list(dict.fromkeys(needed)), start):
            left = _joined(left, self._block(numbers, frame, left.start + left.length))
            whole = left.length // rows * rows
            yield from (_cut(left, at, rows) for at in range(0, whole, rows))
            left = _cut(left, whole, left.length - whole)
        if left.length:
            yield left

    def _block(self, rows: Sequence[int], frame: pl.DataFrame, start: int) -> RowBlock:
        where = str(self.table.path)
        features = None if self.fitted is None else preprocessing.apply(self.fitted, frame, where, rows)
        labels = None if self.label is None else self.label.encoded(frame[self.label.name], where, rows)
        return RowBlock(start, len(rows), features, None, labels, self._ids(rows, frame))

    def _ids(self, rows: Sequence[int], frame: pl.DataFrame) -> tuple[str, ...]:
        import polars as pl

        if self.table.id is not None:
            return tuple(_id_texts(frame[self.table.id]).to_list())
        return tuple((pl.Series(np.asarray(rows)) + 1).cast(pl.String).to_list())


def _joined(one: RowBlock, more: RowBlock) -> RowBlock:
    if not one.length:
        return more
    return RowBlock(
        one.start,
        one.length + more.length,
        None if one.features is None or more.features is None else torch.cat([one.features, more.features]),
        None,
        None if one.labels is None or more.labels is None else torch.cat([one.labels, more.labels]),
        (*(one.ids or ()), *(more.ids or ())),
    )


def _cut(block: RowBlock, at: int, rows: int) -> RowBlock:
    inside = slice(at, at + rows)
    return RowBlock(
        block.start + at,
        rows,
        None if block.features is None else block.features[inside],
        None,
        None if block.labels is None else block.labels[inside],
        None if block.ids is None else block.ids[inside],
    )


def stream_tables(tables: Tables[StreamedTable], options: TableFileOptions, job: Job) -> VerticalDataset:
    """The tables of all parties as streams; preprocessing is fitted on each party's own training rows, in pieces."""
    _refuse(job)
    active = tables.holdings[job.parties.active]
    columns = columns_held(tables, options.label, job)
    notes = [*tables.notes, *check_order(tables.holdings, job.parties.active)]
    label = find_labels(active, options)
    holdout = tables.holdout if active.test is None else None
    draw = RowDraw(active.train.rows, holdout, options.validation, options.train, options.test, job.seed)
    parties = {}
    for name in (job.parties.active, *job.parties.passive):
        own = label if name == job.parties.active else None
        parties[name] = _party(name, tables.holdings[name], columns.get(name), own, draw, options, job)
    notes += unused_columns(active, job.parties.active, options.label, columns)
    notes += [remark for name, data in parties.items() for remark in remarks(name, data.profile)]
    return VerticalDataset(
        options.name, job.parties.active, parties, label.task, label.classes, "features", tuple(notes)
    )


def stream_new(
    job: Job,
    tables: Mapping[str, StreamedTable],
    fitted: Mapping[str, Mapping[str, Any]],
    classes: Sequence[str],
) -> VerticalDataset:
    """New rows to predict, in `test`, as streams; parties' files must hold the same rows in the same order."""
    assert isinstance(job.data, TableFileOptions)
    active, names = job.parties.active, (job.parties.active, *job.parties.passive)
    leader = active if active in tables else next(iter(tables))
    notes = check_order({name: Holding(table) for name, table in tables.items()}, leader)
    task: Task = "classification" if classes else "regression"
    parties = {}
    for name in names:
        table, own = tables.get(name), fitted.get(name)
        # Without a file of its own the active party takes the rows' names from another.
        stream = TableStream(
            table or tables[leader],
            "test",
            fitted=own if table is not None else None,
            label=None if table is None or name != active else _new_labels(table, job.data.label, task, classes),
        )
        groups = preprocessing.feature_groups(own) if own is not None else None
        test = Part(stream.length, groups=groups, stream=stream)
        shape = (len(preprocessing.feature_names(own)),) if own is not None else ()
        parties[name] = PartyData(name, shape, test.none(), test.none(), test, own)
    return VerticalDataset(job.data.name, active, parties, task, tuple(classes), "features", notes)


def _new_labels(table: StreamedTable, name: str, task: Task, classes: Sequence[str]) -> LabelColumn | None:
    """The labels where the new rows have them."""
    if name not in table.columns:
        return None
    known, whole = 0, True
    for _, frame in table.file.pieces([name]):
        series = frame[name].drop_nulls()
        known += len(series)
        if series.dtype.is_float():
            whole = whole and bool((series == series.round(0)).all())
    return LabelColumn(name, task, tuple(classes), whole) if known else None


def _refuse(job: Job) -> None:
    if job.training.protocol != "blind":
        raise InputError(
            "data.stream: split training takes rows in any order, so they must be in memory; "
            'set training.protocol = "blind", or leave data.stream out'
        )
    if job.overlap.fraction < 1:
        raise InputError("data.stream: overlap.fraction draws from rows in memory; leave one of the two out")
    if job.training.baselines:
        raise InputError("data.stream: training.baselines need all rows in memory; leave one of the two out")


def _party(
    name: str,
    holding: Holding[StreamedTable],
    columns: tuple[str, ...] | None,
    label: LabelColumn | None,
    draw: RowDraw,
    options: TableFileOptions,
    job: Job,
) -> PartyData:
    train = TableStream(holding.train, "train", draw, label=label)
    aside = _aside(name, holding, columns or (), options.label, job)
    needed = list(dict.fromkeys([*(columns or ()), *aside]))
    found, profile = fit_pieces(holding.train.file, lambda: train.pieces(needed), columns or (), aside)
    fitted = None
    if columns is not None:
        fitted = found
        if not preprocessing.column_count(fitted):
            raise InputError(
                f"{holding.train.path}: every column of party {name!r} is constant in the training rows; "
                "there is nothing to learn from"
            )
    train = replace(train, fitted=fitted)
    streams = {"train": train, "validation": replace(train, split="validation"), "test": replace(train, split="test")}
    if holding.test is not None:
        tests = holding.test.rows
        own = None if options.test is None or options.test >= tests else RowDraw(tests, None, train=options.test)
        # With a limit, the test rows are the first ones of their file: what its own draw calls training rows.
        streams["test"] = TableStream(holding.test, "test" if own is None else "train", own, fitted, label)
    groups = preprocessing.feature_groups(fitted) if fitted is not None else None
    train_part, validation, test = (
        Part(streams[split].length, groups=groups, stream=streams[split]) for split in SPLITS
    )
    shape = () if fitted is None else (len(preprocessing.feature_names(fitted)),)
    return PartyData(name, shape, train_part, validation, test, fitted, profile)


def _aside(name: str, holding: Holding[StreamedTable], columns: Sequence[str], label: str, job: Job) -> dict[str, str]:
    """The columns that are none of its features, and what they are; of a shared file, not the others'."""
    aside = {holding.train.id: "id"} if holding.train.id else {}
    if name == job.parties.active:
        aside[label] = "label"
    return {column: what for column, what in aside.items() if column not in columns}


def find_labels(active: Holding[StreamedTable], options: TableFileOptions) -> LabelColumn:
    """What the labels are, from one pass over them; a missing one, or one that cannot be predicted, is refused."""
    table = active.train
    table.require(options.label, "the label")
    if table.rows < 2:
        raise InputError(f"{table.path}: has one row; training and test need one each at least")
    label = _labels_of(table, options)
    for file in (table, *([active.test] if active.test is not None else [])):
        file.require(options.label, "the label")
        if label.task == "regression" or file is not table:
            for first, frame in file.file.pieces([options.label]):
                rows = range(first, first + frame.height)
                label.encoded(frame[options.label], str(file.path), rows)
    return label


def _labels_of(table: StreamedTable, options: TableFileOptions) -> LabelColumn:
    import polars as pl

    where, dtype = str(table.path), table.file.schema[options.label]
    sums = ColumnSums(
        options.label,
        dtype,
        options.label in table.file.categorical,
        table.file.typed,
        where,
        "or set data.task = 'classification' if the labels are classes",
    )
    values: set[Any] = set()
    whole = True
    for first, frame in table.file.pieces([options.label]):
        series = frame[options.label]
        rows = range(first, first + frame.height)
        check_present(series, where, rows)
        if dtype.is_float():
            whole = whole and bool((series == series.round(0)).all())
        if dtype == pl.String:
            sums.add(series, rows)
        if len(values) <= MOST_LABELS:
            values.update(series.unique().to_list())
    numeric = dtype.is_numeric() and options.label not in table.file.categorical
    task: Task = "classification"
    if options.task == "auto":
        if dtype == pl.String and len(values) > MOST_CLASSES:
            sums.check_numbers()
        if numeric and (not whole or len(values) > MOST_CLASSES):
            task = "regression"
    else:
        task = options.task
    if task == "regression":
        return LabelColumn(options.label, task)
    if len(values) > MOST_LABELS:
        raise InputError(
            f"{where}: label column {options.label!r} has more than {MOST_LABELS} different values; "
            "set data.task = 'regression' if they are amounts"
        )
    series = pl.Series(options.label, list(values), dtype=dtype)
    names = set((series.cast(pl.Int64) if dtype.is_float() and whole else series).cast(pl.String).to_list())
    return LabelColumn(options.label, task, ordered_classes(names, numeric, options.label, where), whole)


def check_order(holdings: Mapping[str, Holding[StreamedTable]], leader: str) -> tuple[str, ...]:
    """Refuse files whose rows do not belong together line by line; and what a reader must know of it."""
    notes: dict[str, None] = {}
    for leading, what in ((holdings[leader].train, "train"), (holdings[leader].test, "test")):
        if leading is None:
            continue
        order = row_order(leading)
        for name, holding in holdings.items():
            table = holding.train if what == "train" else holding.test
            if table is None:
                raise InputError(f"party.{name}.data.test_path: is missing; {leader!r} has a test file, name its rows")
            if table is leading or table.path == leading.path:
                continue
            if table.rows != leading.rows:
                raise InputError(
                    f"{table.path}: has {table.rows} rows, and {leading.path} has {leading.rows}; {_ALIGN}"
                )
            if (table.id is None) != (leading.id is None):
                lacking = name if table.id is None else leader
                raise InputError(f"party.{lacking}.data.id: is missing; name the column of ids, or none at any party")
            if table.id is None:
                notes["no id column says that rows of the parties' files belong together: they are taken so"] = None
            elif row_order(table) != order:
                raise InputError(f"{table.path}: its ids are not those of {leading.path} in the same order; {_ALIGN}")
        if leading.id is not None and leading.rows > CHECKED_IDS:
            notes[f"{leading.path.name}: {leading.rows} ids are too many to check that none stands twice"] = None
    return tuple(notes)


_ALIGN = (
    "rows that are streamed cannot be put in order: write files with `veracausa align`, which finds the common rows "
    "and puts them in one order, or leave data.stream out"
)


def row_order(table: StreamedTable) -> str:
    """SHA-256 of the ids in their order; an id that is missing, or stands twice, is refused. Empty without ids."""
    if table.id is None:
        return ""
    digest = hashlib.sha256()
    hashes: list[np.ndarray[Any, Any]] = []
    for first, frame in table.file.pieces([table.id]):
        texts = _id_texts(frame[table.id])
        missing = texts.is_null().arg_true()
        if len(missing):
            raise InputError(
                f"{table.path}: row {first + int(missing[0]) + 1}: the id ({table.id!r}) is missing; "
                "fill it in or remove the row"
            )
        # With its length before each, no two lists of ids are one text, wherever the pieces were cut.
        digest.update("".join([f"{len(text)}:{text}" for text in texts.to_list()]).encode())
        if table.rows <= CHECKED_IDS:
            hashes.append(texts.hash(0).to_numpy())
    if hashes:
        _check_different(table, np.concatenate(hashes))
    return digest.hexdigest()


def _check_different(table: StreamedTable, hashes: np.ndarray[Any, Any]) -> None:
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if len(same):
        one, other = sorted((int(order[same[0]]) + 1, int(order[same[0] + 1]) + 1))
        raise InputError(f"{table.path}: rows {one} and {other} have the same id; keep one row an id")


def _id_texts(series: pl.Series) -> pl.Series:
    import polars as pl

    if series.dtype.is_float():
        # Integers beside a gap were turned into fractions by many a writer; they are still the same ids.
        series = series.fill_nan(None)
        whole = (series == series.round(0)).all()
        series = series.cast(pl.Int64) if whole else series
    return series.cast(pl.String)
