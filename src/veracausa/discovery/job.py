"""What a discovery was asked for: a small TOML file that can be run again, and the columns that it names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from veracausa.atomic import as_written
from veracausa.data.causal import CausalData, checked, edges_between, load_causal
from veracausa.data.causal.coding import OF_FILES, attributes, coded_columns
from veracausa.data.causal.table import CausalFileOptions, check_named
from veracausa.data.files import given_path
from veracausa.data.ids import TableFile, held_by_all
from veracausa.data.table_files import read_table
from veracausa.discovery import DEFAULT_METHOD
from veracausa.errors import InputError, wrong_value

if TYPE_CHECKING:
    import polars as pl


GIVEN = "given"
"""The name of data that were given in Python: they can not be loaded again."""
Edges = list[tuple[str, str]]


class DiscoveryJob(BaseModel):
    """Data, parties, what is known of the graph, and the method with its settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = Field("discovery", pattern="^discovery$")
    name: str = "discovery"
    seed: int = 0
    method: str = DEFAULT_METHOD
    data: dict[str, Any]
    """`name` and the settings of a data set; or `files`, one a party, `on`, and how the files are read."""
    parties: dict[str, tuple[str, ...]] = {}
    truth: Edges | None = None
    required: Edges = []
    forbidden: Edges = []
    settings: dict[str, Any] = {}
    simulation: bool = False
    """Between organisations: no column is real, so that `encryption = "none"` may send them as they are."""

    def to_toml(self) -> str:
        import tomli_w

        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))


def read_job(path: Path) -> DiscoveryJob:
    """The job of a file; a run's `config.toml` is one."""
    try:
        return DiscoveryJob.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; correct the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InputError(f"{path}: {place}: {wrong_value(problem)}; is this the config of a discovery?") from None


def load_columns(job: DiscoveryJob) -> tuple[CausalData, dict[str, tuple[str, ...]]]:
    """The job's columns with the true graph where it is known, and which party holds which."""
    given = dict(job.data)
    parties = dict(job.parties)
    if "files" in given:
        files = {party: given_path(path, f"--party {party}") for party, path in given.pop("files").items()}
        on = given.pop("on", None)
        options = checked(CausalFileOptions, "--party", given)
        assert isinstance(options, CausalFileOptions)
        data, parties = read_party_files(files, on, options)
    else:
        name = given.pop("name", None)
        if name == GIVEN:
            raise InputError("data: these columns were given in Python; run it again there")
        if name is None:
            raise InputError(
                "data.name: is missing; name a data set, or give every party a file. The columns of a run across "
                "organisations lie at their parties, and not in one place"
            )
        wanted = [column for columns in parties.values() for column in columns]
        if name == "table" and wanted:
            # Nobody's columns need not be numbers.
            given.setdefault("columns", list(dict.fromkeys(wanted)))
        data = load_causal(str(name), **given)
        if name == "table" and wanted:
            header = read_table(
                given_path(given["path"], "data.path"),
                given.get("separator", ","),
                encoding=given.get("encoding", "utf-8"),
            ).columns
            data = replace(data, notes=(*data.notes, *_left_out(header, [*data.names, given.get("id")])))
        elif wanted:
            kept = [at for at, column in enumerate(data.names) if column in wanted]
            data = replace(data.columns(kept), notes=(*data.notes, *_left_out(data.names, wanted)))
    if job.truth is not None:
        truth = edges_between(job.truth, data.names, "truth")
        data = replace(data, truth=truth)
    return data, parties


def _left_out(names: Sequence[str], wanted: Sequence[str | None]) -> tuple[str, ...]:
    """What is to be said of columns that no party holds."""
    others = [name for name in names if name not in wanted]
    if not others:
        return ()
    said = "columns belong to no party and are" if len(others) > 1 else "column belongs to no party and is"
    return (f"{len(others)} {said} left out: {', '.join(others)}",)


def read_edges(path: Path) -> Edges:
    """The edges of a CSV file with the columns source,target, or cause,effect as a run's `edges.csv` has."""
    pairs = (("source", "target"), ("cause", "effect"))
    frame = read_table(path, text=[name for pair in pairs for name in pair])
    for pair in pairs:
        if set(pair) <= set(frame.columns):
            own = as_written if pair[0] == "cause" else str
            for cause, effect in _without_direction(frame).select(*pair).rows():
                raise InputError(
                    f"{path}: {cause} — {effect} has no direction (directed = no); remove its row, or write yes there "
                    "if you know that the first is the cause"
                )
            return [(own(str(cause)), own(str(effect))) for cause, effect in frame.select(*pair).rows()]
    raise InputError(f"{path}: its columns are {', '.join(frame.columns)}; name them source,target")


def _without_direction(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a run's `edges.csv` whose direction was not told."""
    return frame.filter(frame["directed"] == "no") if "directed" in frame.columns else frame.clear()


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is not written."""
    if isinstance(value, Mapping):
        return {name: _without_none(item) for name, item in value.items() if item is not None}
    return value


def read_party_files(
    files: Mapping[str, Path], on: str | None, options: CausalFileOptions | None = None
) -> tuple[CausalData, dict[str, tuple[str, ...]]]:
    """The columns of all files side by side, and which are whose.

    Rows belong together by the column `on`, which every file has; without it they are in the same order already.
    """
    options = options or CausalFileOptions(name="files")
    tables = {party: TableFile(path, options.read(path), on) for party, path in files.items()}
    home: dict[str, Path] = {}
    for table in tables.values():
        for column in table.frame.columns:
            if column != on and column in home:
                raise InputError(
                    f"{table.path}: column {column!r} is also in {home[column]}; leave it in one of them, "
                    "or name it with --on if it says which rows belong together"
                )
            home[column] = table.path
    check_named(options, list(home), " and ".join(str(path) for path in files.values()))
    notes: list[str] = []
    reading = replace(options.reading, remedies=OF_FILES)
    frames = _aligned(list(tables.values()), on, notes)
    parties: dict[str, tuple[str, ...]] = {}
    values: list[np.ndarray] = []
    nominal: list[str] = []
    for (party, table), (frame, rows) in zip(tables.items(), frames, strict=True):
        where = str(table.path)
        others = frame.select([name for name in frame.columns if name not in (on, options.id)])
        if options.columns is None:
            own = attributes(others, where, reading, notes, rows)
        else:
            own = tuple(name for name in options.columns if name in others.columns)
        if not own:
            raise InputError(f"{where}: has no column but ids, names and dates; give it attributes")
        numbers, categories = coded_columns(frame, own, where, reading, notes, rows)
        values.append(numbers)
        nominal += categories
        parties[party] = own
    names = tuple(name for own in parties.values() for name in own)
    return CausalData(np.concatenate(values, axis=1), names, None, tuple(notes), tuple(nominal)), parties


def _aligned(tables: list[TableFile], on: str | None, notes: list[str]) -> list[tuple[pl.DataFrame, list[int] | None]]:
    first, *others = tables
    if on is None:
        for table in others:
            if table.frame.height != first.frame.height:
                raise InputError(
                    f"{table.path}: {table.frame.height} rows, but {first.path} has {first.frame.height}; "
                    "name the column that says which belong together with --on"
                )
        return [(table.frame, None) for table in tables]
    found = [table.find(first.ids) for table in tables]
    common = held_by_all(found)
    rows = int(common.sum())
    if not rows:
        raise InputError(
            f"--on {on}: {' and '.join(str(t.path) for t in tables)} have no id in common; check the column"
        )
    if any(table.frame.height != rows for table in tables):
        heights = ", ".join(f"{table.frame.height} of {table.path.name}" for table in tables)
        notes.append(f"{rows} rows have an id in every file ({heights})")
    kept = [rows_of[common] for rows_of in found]
    return [(table.take(rows_of), rows_of.tolist()) for table, rows_of in zip(tables, kept, strict=True)]
