"""Which party's rows and columns lie in which file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from veracausa import seeding
from veracausa.data import partition
from veracausa.data.blocks import StreamedTable, open_rows
from veracausa.data.files import given_path
from veracausa.data.ids import TableFile
from veracausa.data.kept_rows import is_kept
from veracausa.data.options import DataOptions
from veracausa.data.table_files import MISSING, as_declared, read_table
from veracausa.errors import InputError, wrong_value
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from veracausa.config import Job


class TableOptions(DataOptions):
    """What every table takes."""

    label: str
    """The column to predict; the active party's."""
    id: str | None = None
    """The column that names a row; needed where parties have files of their own."""
    task: Literal["auto", "classification", "regression"] = "auto"

    def read(self, path: Path, id: str | None = None, own: OwnTable | None = None) -> pl.DataFrame:
        """The rows of one file in this source's format, as the party says of its `own`."""
        return read_table(path, **self.writing(id, own or OwnTable()))

    def writing(self, id: str | None, own: OwnTable) -> dict[str, Any]:
        """How a file is written, by what the job and the party say: what `read_table` takes."""
        return {
            "separator": own.separator or ",",
            "missing": MISSING if own.missing is None else own.missing,
            "text": (id,) if id else (),
            "categorical": own.categorical or (),
            "decimal": own.decimal or ".",
            "thousands": own.thousands or "",
            "encoding": own.encoding or "utf-8",
        }


class TableFileOptions(TableOptions):
    """Tables in files of one's own."""

    path: str | None = None
    """One file for all parties; a party's own is `party.NAME.data.path`."""
    test_path: str | None = None
    """The test rows; default: `holdout` of the others."""
    holdout: float = Field(0.2, gt=0, lt=1)
    """The share of the rows held out for the test, drawn with the job's seed."""
    match: Literal["all", "active"] = "all"
    """Across organisations: the rows that all parties have, or all of the active party's, with gaps where another
    lacks one. In one place it is always the latter."""
    categorical: tuple[str, ...] = ()
    """Columns of words, also where the words are numbers, such as codes."""

    stream: bool = False
    """Blind training: read the rows block by block each time they are wanted, and never hold the table in memory."""

    def open(self, path: Path, id: str | None, own: OwnTable) -> TableFile | StreamedTable:
        """One file, its rows in memory or opened to be streamed."""
        if self.stream:
            return StreamedTable(open_rows(path, **self.writing(id, own)), id)
        return TableFile(path, self.read(path, id, own), id)

    def writing(self, id: str | None, own: OwnTable) -> dict[str, Any]:
        both = (*self.categorical, *(own.categorical or ()))
        return super().writing(id, own.model_copy(update={"categorical": both}))


class OwnTable(BaseModel):
    """What a party says about its own table, in `party.NAME.data`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    test_path: str | None = None
    id: str | None = None
    columns: tuple[str, ...] | None = None
    separator: str | None = None
    decimal: Literal[".", ","] | None = None
    thousands: Literal["", ",", ".", "'", " "] | None = None
    encoding: str | None = None
    missing: tuple[str, ...] | None = None
    categorical: tuple[str, ...] | None = None


TableKind = TypeVar("TableKind", TableFile, StreamedTable)


@dataclass(frozen=True)
class Holding(Generic[TableKind]):
    """Where one party's rows lie, in memory or to be streamed, and which columns it names as its own."""

    train: TableKind
    test: TableKind | None = None
    """None: the test rows are in the same file."""
    columns: tuple[str, ...] | None = None
    own: bool = False
    """Whether the file is this party's alone."""


Frames = Mapping[Path, tuple[str, "pl.DataFrame"]]
"""Of rows given in Python: the file that will keep them -> what messages call them, and the rows."""


@dataclass(frozen=True)
class Tables(Generic[TableKind]):
    """A whole data set of tables, before its rows are aligned."""

    holdings: Mapping[str, Holding[TableKind]]
    holdout: float = 0.2
    notes: tuple[str, ...] = field(default_factory=tuple)


def own_table(job: Job, party: str) -> OwnTable:
    """The party's own settings, checked."""
    data = job.party[party].data if party in job.party else {}
    try:
        return OwnTable.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = did_you_mean(place, OwnTable.model_fields)
            raise InputError(f"party.{party}.data.{place}: no such setting{known}") from None
        raise InputError(f"party.{party}.data.{place}: {wrong_value(problem)}") from None


def open_tables(options: TableFileOptions, job: Job, frames: Frames | None = None) -> Tables[Any]:
    """Every party's files, each read once, or opened to be streamed; `frames` are there before their files are."""
    names = (job.parties.active, *job.parties.passive)
    owned = {name: own_table(job, name) for name in names}
    for name, own in owned.items():
        if own.path is None and options.path is None:
            why = "its labels" if name == job.parties.active else "its rows"
            raise InputError(
                f"party.{name}.data.path: is missing; say which file holds {why}, or set data.path for all"
            )
    opened: dict[tuple[Path, str | None], TableFile | StreamedTable] = {}

    def open_file(path: str, setting: str, own: OwnTable) -> TableFile | StreamedTable:
        id = own.id or options.id
        shown, frame = (frames or {}).get(Path(path), (None, None))
        if shown is None and is_kept(path) and not Path(path).is_file():
            raise InputError(f"{path}: the run's rows are no longer there; put the file back, or train again with them")
        place = given_path(path, setting) if shown is None else Path(shown)
        if (place, id) not in opened:
            if frame is None:
                opened[place, id] = options.open(place, id, own)
            else:
                declared = options.writing(id, own)["categorical"]
                opened[place, id] = TableFile(place, as_declared(frame, declared), id)
        return opened[place, id]

    holdings: dict[str, Holding[Any]] = {}
    for name, own in owned.items():
        # One of the two is there: checked above.
        train = open_file(own.path or str(options.path), f"party.{name}.data.path" if own.path else "data.path", own)
        test_path = own.test_path
        if test_path is None and (own.path is None or name == job.parties.active):
            test_path = options.test_path
        test = None
        if test_path is not None:
            test = open_file(test_path, f"party.{name}.data.test_path" if own.test_path else "data.test_path", own)
        holdings[name] = Holding(train, test, own.columns, own.path is not None)
    if len({holding.train.path for holding in holdings.values()}) > 1 and not options.stream:
        for name, holding in holdings.items():
            if holding.train.id is None:
                raise InputError(f"party.{name}.data.id: is missing; rows of several files are matched by an id column")
    _check_categorical(options, owned, holdings)
    active = holdings[job.parties.active]
    for name, holding in holdings.items():
        if holding.test is not None and active.test is None:
            raise InputError(f"party.{name}.data.test_path: the active party has no test file; set data.test_path too")
    return Tables(holdings, options.holdout)


def _check_categorical(
    options: TableFileOptions, owned: Mapping[str, OwnTable], holdings: Mapping[str, Holding[Any]]
) -> None:
    for name, own in owned.items():
        for column in own.categorical or ():
            holdings[name].train.require(column, f"party.{name}.data.categorical")
    known = list(dict.fromkeys(column for holding in holdings.values() for column in holding.train.columns))
    for column in options.categorical:
        if column not in known:
            raise InputError(f"data.categorical: no file has a column {column!r}{did_you_mean(column, known)}")


def columns_held(tables: Tables[Any], label: str, job: Job) -> dict[str, tuple[str, ...]]:
    """Party -> the columns it holds as features; parties without any are left out."""
    active, parties = job.parties.active, (job.parties.active, *job.parties.passive)
    kind, by_job = job.partition.kind, job.partition.columns
    partition.check_named_parties(job.partition, parties)
    if kind == "strips":
        raise InputError("partition.kind = 'strips' is for pictures; use 'columns' or 'random' for a table")
    named: dict[str, tuple[str, ...]] = {}
    for name in parties:
        own = tables.holdings[name].columns
        if own is not None and name in by_job:
            raise InputError(f"party.{name}.data.columns and partition.columns.{name} both name columns; keep one")
        if own is not None or name in by_job:
            named[name] = own if own is not None else by_job[name]
    if kind == "random" and named:
        raise InputError("partition.kind = 'random' draws the columns, but some are named; remove one of the two")
    held, unnamed = {}, []
    for name in parties:
        holding = tables.holdings[name]
        if name in named:
            held[name] = named[name]
        elif name == active and not job.partition.active_has_features:
            continue
        elif holding.own:
            held[name] = tuple(c for c in holding.train.columns if c not in (holding.train.id, label))
        else:
            unnamed.append(name)
    if unnamed and (named or kind == "columns"):
        raise InputError(f"partition.columns.{unnamed[0]}: is missing; name the columns of party {unnamed[0]!r}")
    if unnamed:
        file = tables.holdings[unnamed[0]].train
        free = [column for column in file.columns if column not in (file.id, label)]
        rng = seeding.generator(job.seed, "partition")
        groups = partition.random_groups(len(free), len(unnamed), job.partition.parts, rng)
        held |= {name: tuple(free[at] for at in group.tolist()) for name, group in zip(unnamed, groups, strict=True)}
    _check(tables, held, label)
    return {name: held[name] for name in parties if name in held}


def _check(tables: Tables[Any], held: Mapping[str, tuple[str, ...]], label: str) -> None:
    for name, columns in held.items():
        if not columns:
            raise InputError(
                f"party {name!r} is left with no columns of {tables.holdings[name].train.path}; give it some"
            )
    files = {id(tables.holdings[name].train): tables.holdings[name].train for name in held}
    for file in files.values():
        claims = {name: columns for name, columns in held.items() if tables.holdings[name].train is file}
        reserved = {label: "label"} | ({file.id: "id"} if file.id else {})
        partition.check_claims(claims, file.columns, reserved, str(file.path))
