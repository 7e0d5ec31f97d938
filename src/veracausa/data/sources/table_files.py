"""CSV and Parquet files: one for all parties, or one a party."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from veracausa.data.sources import datasets
from veracausa.data.table_files import MISSING, read_table
from veracausa.data.tables import TableFileOptions, Tables, open_tables

if TYPE_CHECKING:
    import polars as pl

    from veracausa.config import Job


class CsvOptions(TableFileOptions):
    separator: str = Field(",", min_length=1, max_length=1)
    missing: tuple[str, ...] = MISSING
    """What stands in a cell without a value."""

    def read(self, path: Path, id: str | None = None, separator: str | None = None) -> pl.DataFrame:
        return read_table(path, separator or self.separator, self.missing, (id,) if id else ())


@datasets.register("parquet", TableFileOptions)
@datasets.register("csv", CsvOptions)
def table_files(options: TableFileOptions, job: Job) -> Tables:
    """The tables that the job and its parties name; each file is CSV or Parquet by its suffix."""
    return open_tables(options, job)
