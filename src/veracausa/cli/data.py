"""`veracausa data`: which data sets are here, where their files are looked for, and how to get them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer


def data(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Data sets; default: all.")] = None,
    fetch: Annotated[bool, typer.Option("--fetch", help="Get what is missing from its official source.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
) -> None:
    """Show which data sets are here and where their files are looked for; get what is missing."""
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.data.files import data_folder
    from veracausa.data.sources import datasets
    from veracausa.errors import VeracausaError

    chosen = names or datasets.names()
    for name in chosen:
        datasets.get(name)
    rows = [_look(name) for name in chosen]
    failure: VeracausaError | None = None
    if fetch:
        for i, row in enumerate(rows):
            if row["state"] == "missing":
                console.news.print(f"fetching {row['name']} …", markup=False)
                try:
                    _load(row["name"])
                    rows[i] = _look(row["name"])
                except VeracausaError as error:
                    console.err.print(f"{row['name']}: {error}", markup=False, soft_wrap=True)
                    failure = error
    if as_json:
        console.print_json_line({"folder": str(data_folder()), "datasets": rows})
    else:
        table = Table("data set", "state", box=None, pad_edge=False)
        table.add_column("where", overflow="fold")
        for row in rows:
            table.add_row(*(escape(row[column]) for column in ("name", "state", "where")))
        console.out.print(
            f"Data folder: {data_folder()} (set VERACAUSA_DATA to change it)\n", markup=False, soft_wrap=True
        )
        console.out.print(table)
        if any(row["state"] == "missing" for row in rows) and not fetch:
            console.out.print("\n`veracausa data NAME --fetch` gets what is missing.", markup=False)
    if failure is not None:
        raise typer.Exit(1)


class _Missing(Exception):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def _look(name: str) -> dict[str, str]:
    """Whether a data set's files are here, and where they are looked for."""
    from veracausa.data.files import data_folder
    from veracausa.data.sources import datasets
    from veracausa.errors import VeracausaError

    if any(info.is_required() for field, info in datasets.options(name).model_fields.items() if field != "name"):
        return {"name": name, "state": "yours", "where": "the files that a job's [data] section names"}
    try:
        # What a source misses in an empty folder is what it looks for; without anything missing it needs no file.
        with tempfile.TemporaryDirectory() as empty, _data_folder(empty), _no_fetching():
            try:
                _load(name)
            except _Missing as missing:
                wanted = missing.path.relative_to(empty)
            else:
                return {"name": name, "state": "bundled", "where": "comes with an installed package"}
        with _no_fetching():
            _load(name)
    except _Missing as missing:
        return {"name": name, "state": "missing", "where": f"looked for {missing.path}"}
    except VeracausaError as error:
        return {"name": name, "state": "unusable", "where": str(error)}
    return {"name": name, "state": "here", "where": str((data_folder() / wanted).parent)}


def _load(name: str) -> None:
    """Open a data set as a job would, for one row of each split."""
    from veracausa.config import load_job
    from veracausa.data.sources import datasets

    options = {"name": name, "train": 1, "test": 1}
    job = load_job({"data": options, "model": {"name": "mlp" if _is_table(name) else "convnet"}})
    datasets.get(name)(job.data, job)


def _is_table(name: str) -> bool:
    from veracausa.data.images import ImageOptions
    from veracausa.data.sources import datasets

    return not issubclass(datasets.options(name), ImageOptions)


@contextmanager
def _data_folder(folder: str) -> Iterator[None]:
    before = os.environ.get("VERACAUSA_DATA")
    os.environ["VERACAUSA_DATA"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["VERACAUSA_DATA"]
        else:
            os.environ["VERACAUSA_DATA"] = before


@contextmanager
def _no_fetching() -> Iterator[None]:
    """Let a missing file be told, not fetched: looking must not download hundreds of megabytes."""
    from veracausa.data import files

    def tell(path: Path, remote: Any) -> NoReturn:
        raise _Missing(path)

    before = files.fetch
    files.fetch = tell
    try:
        yield
    finally:
        files.fetch = before
