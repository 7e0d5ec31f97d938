"""Rows given in Python: which job they make with the settings beside them, and where their run keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.config import Job, job_tree, load_job
from veracausa.data.array_files import ROW
from veracausa.data.frames import column_names, is_array, is_rows, label_series, table_of
from veracausa.data.kept_rows import FOLDER, is_kept, kept_name, write_rows
from veracausa.data.tables import TableFileOptions
from veracausa.errors import InputError
from veracausa.registry import did_you_mean
from veracausa.runs.folder import Run

if TYPE_CHECKING:
    import polars as pl

SHARED = "all"
"""Whose rows they are where one frame holds the columns of all parties."""
LABEL = "label"
"""The column of labels that were given as values."""
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class GivenRows:
    """The rows of each party, or of all in one table, and what the caller said of them."""

    tables: Mapping[str, pl.DataFrame]
    """Party -> its rows; or those of all, under `SHARED`."""
    shared: bool
    label: str | None
    id: str | Mapping[str, str] | None
    columns: Mapping[str, tuple[str, ...]]
    files: Mapping[str, str]
    """Whose rows -> the name of the file that keeps them."""

    @classmethod
    def if_any(
        cls, data: Any, label: Any, id: str | Mapping[str, str] | None, columns: Columns | None
    ) -> GivenRows | None:
        """The rows where there are any; what is said of rows and comes without them is refused."""
        if data is not None:
            return cls.of(data, label, id, columns)
        for name, said in (("label", label), ("id", id), ("columns", columns)):
            if said is not None:
                raise InputError(f"{name}: says something of data=, which is not given; write it into the job instead")
        return None

    @classmethod
    def of(cls, data: Any, label: Any, id: str | Mapping[str, str] | None, columns: Columns | None) -> GivenRows:
        """What `train(job, data=..., label=..., id=..., columns=...)` was given, checked."""
        shared = is_rows(data)
        if not shared and not (isinstance(data, Mapping) and data):
            raise InputError("data: give party -> its frame, or one frame with columns= that says whose each column is")
        given = {SHARED: data} if shared else {str(party): rows for party, rows in data.items()}
        if not shared and len(given) < 2:
            raise InputError(f"data: {next(iter(given))!r} alone is no federation; give the frames of two parties")
        arrays = [party for party, rows in given.items() if is_array(rows)]
        where = {party: "data" if shared else f"data[{party!r}]" for party in given}
        ids = {party: id if id is None or isinstance(id, str) else id.get(party) for party in given}
        tables = {party: table_of(rows, where[party], ids[party]) for party, rows in given.items()}
        if arrays and id is not None:
            raise InputError("id: an array has no names of columns; leave id out, or give a frame")
        if arrays and len(arrays) == len(given):
            sizes = {party: frame.height for party, frame in tables.items()}
            if len(set(sizes.values())) > 1:
                said = ", ".join(f"{party} {rows}" for party, rows in sizes.items())
                raise InputError(f"data: arrays are matched row by row, and their rows differ ({said}); give as many")
            id = ROW
        name = label
        if label is not None and not isinstance(label, str):
            first = next(iter(tables))
            _check_index(label, given[first], where[first])
            name, tables[first] = _with_label(tables[first], label, where[first])
        whose = {str(party): _named(wanted, tables, bool(arrays)) for party, wanted in (columns or {}).items()}
        for party in whose:
            if not shared and party not in tables:
                raise InputError(f"columns[{party!r}]: no such party{did_you_mean(party, tables)}")
        files = {party: kept_name(party, frame) for party, frame in tables.items()}
        return cls(tables, shared, name, id, whose, files)

    def job(
        self, job: str | Path | dict[str, Any] | Job, overrides: Sequence[str] = (), allow_model: str | None = None
    ) -> Job:
        """The job with these rows, checked; where they will be kept is put in by `placed`."""
        if isinstance(job, Job):
            allow_model = allow_model or job.model.allowed
        return load_job(self._tree(job_tree(job)[0]), overrides, allow_model)

    def _tree(self, tree: dict[str, Any]) -> dict[str, Any]:
        data = _section(tree, "data")
        if data.setdefault("name", "parquet") not in ("parquet", "csv"):
            raise InputError(
                f"data.name = {data['name']!r} in the job names a data set, and data= gives rows; keep one"
            )
        if _section(tree, "training").get("protocol", "split") == "split":
            tree.setdefault("model", {"name": "mlp", "cut": 2})  # what `veracausa init` writes for tables
        data["name"] = "parquet"  # of these types, and the way in which they are kept
        _refuse_files(data, "data")
        if self.label is not None:
            data["label"] = self.label
        if not isinstance(data.get("label"), str):
            raise InputError("label: is missing; name the column to predict, or give its values")
        if isinstance(self.id, str):
            data["id"] = self.id
        parties = self._parties(tree, data["label"])
        own = _section(tree, "party")
        for party in own:
            _refuse_files(_section(_section(own, party), "data"), f"party.{party}.data")
        for party in self.tables if not self.shared else ():
            section = _section(_section(own, party), "data")
            section["path"] = f"{FOLDER}/{self.files[party]}"
            if isinstance(self.id, Mapping) and party in self.id:
                section["id"] = str(self.id[party])
            if not section.get("id") and not data.get("id"):
                raise InputError("id: is missing; name the column that says whose row it is, such as id='customer'")
            if party in self.columns:
                section["columns"] = [column for column in self.columns[party] if column != data["label"]]
        if self.shared:
            data["path"] = f"{FOLDER}/{self.files[SHARED]}"
            if isinstance(self.id, Mapping):
                raise InputError("id: one frame has one id column; name it as text")
        self._say_who_has_what(tree, data, parties)
        return tree

    def _parties(self, tree: dict[str, Any], label: str) -> dict[str, Any]:
        """Who takes part: as the job says, or else whom rows or columns were given for, the label's holder active."""
        names = [*self.columns] if self.shared else [*self.tables]
        if "parties" not in tree and names:
            held = self.columns if self.shared else {name: frame.columns for name, frame in self.tables.items()}
            holders = [name for name in names if label in held[name]]
            if len(holders) > 1:
                raise InputError(f"label: {label!r} is with {' and '.join(holders)}; leave it with one party")
            if not holders and label not in (known := [c for frame in self.tables.values() for c in frame.columns]):
                raise InputError(f"label: no frame has a column {label!r}{did_you_mean(label, known)}")
            active = holders[0] if holders else names[0]
            tree["parties"] = {"active": active, "passive": [name for name in names if name != active]}
            if not tree["parties"]["passive"]:
                raise InputError(f"columns: name those of two parties; {active!r} alone is no federation")
        parties = _section(tree, "parties")
        known = [str(parties.get("active", "active")), *map(str, parties.get("passive", ("passive_1", "passive_2")))]
        if not self.shared:
            for name in names:
                if name not in known:
                    raise InputError(f"data[{name!r}]: the job has no such party{did_you_mean(name, known)}")
            for name in known:
                if name not in names:
                    raise InputError(f"data: has no rows of {name!r}, which the job names; give them too")
        return parties

    def _say_who_has_what(self, tree: dict[str, Any], data: Mapping[str, Any], parties: Mapping[str, Any]) -> None:
        active, partition = str(parties.get("active", "active")), _section(tree, "partition")
        if self.shared and self.columns:
            dealt = {name: [c for c in own if c != data["label"]] for name, own in self.columns.items()}
            partition["columns"] = {name: own for name, own in dealt.items() if own or name != active}
            has = bool(dealt.get(active))
        elif self.shared:
            return
        else:
            id = _section(_section(_section(tree, "party"), active), "data").get("id") or data.get("id")
            has = any(c not in (id, data["label"]) for c in self.columns.get(active, self.tables[active].columns))
        partition.setdefault("active_has_features", has)

    def placed(self, job: Job, run: Path) -> Job:
        """The job with its rows in the folder of this run."""
        place = run.absolute()
        if not isinstance(job.data, TableFileOptions) or job.data.stream:
            raise InputError("data.name, data.stream: rows given in Python are tables in memory; leave both out")
        if self.shared:
            path = str(place / FOLDER / self.files[SHARED])
            return job.model_copy(update={"data": job.data.model_copy(update={"path": path})})
        party = dict(job.party)
        for name in self.tables:
            data = {**party[name].data, "path": str(place / FOLDER / self.files[name])}
            party[name] = party[name].model_copy(update={"data": data})
        return job.model_copy(update={"party": party})

    def by_path(self, run: Path) -> dict[Path, tuple[str, pl.DataFrame]]:
        """Where each table will be kept -> what messages call it, and its rows."""
        return {
            run.absolute() / FOLDER / self.files[party]: ("data" if self.shared else f"data[{party!r}]", frame)
            for party, frame in self.tables.items()
        }

    def are_others(self, run: Run) -> bool:
        """Whether a run was started with other rows than these."""
        named = {str(own.data.get("path")) for own in run.job.party.values()} | {str(getattr(run.job.data, "path", ""))}
        return not {path.name for path in self.by_path(run.path)} <= {Path(path).name for path in named}

    def keep(self, run: Path) -> None:
        """Write the rows into the run's folder; those that are there stay."""
        for path, (_, frame) in self.by_path(run).items():
            if not path.is_file():
                write_rows(path, frame)


def _check_index(label: Any, rows: Any, where: str) -> None:
    """Refuse labels of pandas whose index says that they are of other rows, or in another order, than the frame's."""
    own: Any = getattr(label, "index", None)
    theirs: Any = getattr(rows, "index", None)
    if not hasattr(own, "equals") or not hasattr(theirs, "equals") or own.equals(theirs):
        return
    plain = [list(index) == list(range(len(index))) for index in (own, theirs)]
    if not any(plain) or set(own) == set(theirs):
        raise InputError(
            f"label: its index differs from that of {where}, and labels are taken in the order of the rows; "
            "give label.reindex(frame.index), or label.to_numpy() if the order is right"
        )


def _with_label(frame: pl.DataFrame, values: Any, where: str) -> tuple[str, pl.DataFrame]:
    name = str(getattr(values, "name", None) or LABEL)
    if name in frame.columns:
        raise InputError(f"label: {where} has a column {name!r} already; name it, as label={name!r}")
    series = label_series(values, name, "label")
    if len(series) != frame.height:
        raise InputError(f"label: {len(series)} values for {frame.height} rows of {where}; give one a row")
    return name, frame.with_columns(series)


def _named(wanted: Any, tables: Mapping[str, pl.DataFrame], array: bool) -> tuple[str, ...]:
    if isinstance(wanted, str):
        raise InputError(f"columns: {wanted!r} is a text; give a list of names")
    return tuple(column_names([f"x{one}" if array and not isinstance(one, str) else one for one in wanted], "columns"))


def _section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.setdefault(name, {})
    if not isinstance(found, dict):
        raise InputError(f"job: {name} is a value; it has settings of its own")
    return found


def _refuse_files(section: dict[str, Any], where: str) -> None:
    """Files beside frames are two answers to one question; the rows that an earlier run kept are replaced."""
    if is_kept(section.get("path")):
        del section["path"]
    for name in ("path", "test_path"):
        if section.get(name) is not None:
            raise InputError(f"{where}.{name}: names a file, and data= gives rows; keep one of the two")
