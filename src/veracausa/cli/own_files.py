"""Files that `veracausa init` is given: what they are, who holds them, and what a job says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veracausa.errors import InputError

SEPARATORS = ",;\t|"
DATA_SUFFIXES = (".csv", ".tsv", ".gz", ".parquet", ".pq", ".npy", ".npz")


@dataclass(frozen=True)
class OwnFiles:
    """The data of a job to be written: one file or folder for all parties, or a file a party."""

    data: str
    """The name of the data set: `csv`, `parquet` or `images`."""
    path: str | None
    files: dict[str, str]
    """Party -> its file; the active party's first."""
    label: str = ""
    id: str | None = None
    separators: tuple[tuple[str, str], ...] = ()
    """Party -> what stands between the cells of its file, where it is no comma; `` for one file of all."""
    active_has_features: bool = True
    said: str = ""
    """What was chosen without being asked for."""

    def sections(self) -> str:
        """A section for each party with a file of its own."""
        between = dict(self.separators)
        parts = []
        for party, file in self.files.items():
            lines = [f"[party.{_key(party)}.data]", f"path = {_text(file)}"]
            lines += [f"separator = {_text(between[party])}"] if party in between else []
            parts.append("\n".join(lines))
        return "\n\n".join(parts)


def own_files(given: Sequence[str], label: str | None, id: str | None) -> OwnFiles:
    """What `init PATH [PARTY=]FILE…` was given, looked into: names of columns only."""
    from veracausa.registry import did_you_mean

    held: dict[str, str] = {}
    alone: list[str] = []
    for text in given:
        party, found, file = text.partition("=")
        if not found or Path(text).exists():
            alone.append(text)
        elif not party or not file:
            raise InputError(f"{text}: write it as PARTY=FILE")
        elif party in held:
            raise InputError(f"{text}: {party!r} has a file already; give one file a party")
        else:
            held[party] = file
    if held and (alone or len(held) < 2):
        raise InputError("give one file for all parties, or PARTY=FILE of two parties or more")
    if len(alone) > 1:
        raise InputError(f"{alone[1]}: say whose it is, as PARTY={alone[1]}")
    if alone and _holds_pictures(Path(alone[0])):
        if label is not None or id is not None:
            raise InputError(f"{alone[0]}: holds pictures, whose classes are in it; leave --label and --id out")
        return OwnFiles("images", alone[0], {})
    files = held or {"": alone[0]}
    columns: dict[str, list[str]] = {}
    separators = []
    for party, file in files.items():
        columns[party], separator = _columns(Path(file))
        separators += [(party, separator)] if separator != "," else []
    everyone = list(dict.fromkeys(name for names in columns.values() for name in names))
    if label is None:
        raise InputError(f"--label: is missing; name the column to predict (there are: {', '.join(everyone)})")
    holders = [party for party, names in columns.items() if label in names]
    if not holders:
        raise InputError(f"--label {label}: no file has this column{did_you_mean(label, everyone)}")
    if len(holders) > 1:
        raise InputError(f"--label {label}: is in the files of {' and '.join(holders)}; leave it in one")
    said = ""
    if id is None and held:
        common = [name for name in columns[holders[0]] if all(name in names for names in columns.values())]
        if len(common) != 1:
            which = f" (common to all: {', '.join(common)})" if common else ", and no column is common to all files"
            raise InputError(f"--id: is missing; name the column that says whose row it is{which}")
        id, said = common[0], f"Rows are matched by the column {common[0]}, which is in every file."
    for party, names in columns.items():
        if id is not None and id not in names:
            raise InputError(f"--id {id}: {files[party]} has no such column{did_you_mean(id, names)}")
    suffixes = {Path(file).suffix.lower() for file in files.values()}
    return OwnFiles(
        data="parquet" if suffixes <= {".parquet", ".pq"} else "csv",
        path=None if held else alone[0],
        files={} if not held else {party: held[party] for party in sorted(held, key=lambda one: one != holders[0])},
        label=label,
        id=id,
        separators=tuple(separators),
        active_has_features=bool(set(columns[holders[0]]) - {label, id}),
        said=said,
    )


def _columns(path: Path) -> tuple[list[str], str]:
    """The names of a table's columns, and what stands between its cells."""
    from veracausa.data.array_files import is_array_file
    from veracausa.data.table_files import check_file, header_of, is_parquet, read_table

    check_file(path)
    if is_parquet(path) or is_array_file(path):
        return read_table(path).columns, ","
    found = {separator: header_of(path, separator) for separator in SEPARATORS}
    separator = max(found, key=lambda one: len(found[one]))
    return found[separator], separator


def _holds_pictures(path: Path) -> bool:
    if path.is_dir():
        from veracausa.data.picture_files import class_folders

        class_folders(path / "train" if (path / "train").is_dir() else path)
        return True
    if path.suffix.lower() != ".npz":
        return False
    from veracausa.data.array_files import read_arrays

    return any(array.ndim > 2 for array in read_arrays(path).values())


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _text(name)


def _text(value: str) -> str:
    """A text of TOML: JSON writes it in the same way."""
    return json.dumps(value, ensure_ascii=False)
