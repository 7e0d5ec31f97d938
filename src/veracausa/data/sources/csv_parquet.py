"""CSV and Parquet files: one for all parties, or one a party."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from veracausa.data.sources import datasets
from veracausa.data.table_files import MISSING
from veracausa.data.tables import OwnTable, TableFileOptions, Tables, open_tables

if TYPE_CHECKING:
    from veracausa.config import Job


class CsvOptions(TableFileOptions):
    separator: str = Field(",", min_length=1, max_length=1)
    missing: tuple[str, ...] = MISSING
    """What stands in a cell without a value."""

    decimal: Literal[".", ","] = "."
    """What stands before the fraction of a number."""
    thousands: Literal["", ",", ".", "'", " "] = ""
    """What stands between the thousands of a number; mostly nothing."""
    encoding: str = "utf-8"

    def writing(self, id: str | None, own: OwnTable) -> dict[str, Any]:
        said = {name: value for name, value in own if value is not None}
        job = {name: getattr(self, name) for name in ("separator", "missing", "decimal", "thousands", "encoding")}
        return super().writing(id, OwnTable.model_validate(job | said))


@datasets.register("parquet", TableFileOptions)
@datasets.register("csv", CsvOptions)
def table_files(options: TableFileOptions, job: Job) -> Tables[Any]:
    """The tables that the job and its parties name; each file is CSV or Parquet by its suffix."""
    return open_tables(options, job)
