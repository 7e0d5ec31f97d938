"""A table of one's own, CSV or Parquet, and the true edges where somebody knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from veracausa.data.causal import CausalData, CausalOptions, causal_data, edges_between
from veracausa.data.causal.coding import CATEGORIES, Reading, attributes, coded_columns, some
from veracausa.data.files import given_path
from veracausa.data.table_files import MISSING, read_table
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl


class CausalFileOptions(CausalOptions):
    """How a file is read, and what its columns are. A list may be written as names with commas between them."""

    id: str | None = None
    """The column that names a row; it is no attribute."""
    separator: str = ","
    columns: tuple[str, ...] | None = None
    """Only these; default: all but the id, and but names and dates."""
    categories: int = Field(CATEGORIES, ge=2)
    """A column of words with more different ones than this is no attribute: it holds names, not categories."""
    categorical: tuple[str, ...] = ()
    """Columns of words, also where the words are numbers, such as codes."""
    ordinal: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Columns whose words are a scale: a list of columns, or a table of each one's words from low to high. Without
    words they are in natural order."""
    missing: tuple[str, ...] = MISSING
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ",", ".", "'", " "] = ""
    encoding: str = "utf-8"

    @field_validator("columns", "categorical", "missing", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return _names(given)

    @field_validator("ordinal", mode="before")
    @classmethod
    def _in_order(cls, given: object) -> object:
        if isinstance(given, Mapping):
            return {name: _names(words) for name, words in given.items()}
        listed = _names(given)
        return dict.fromkeys(listed, ()) if isinstance(listed, list) else listed

    @property
    def reading(self) -> Reading:
        return Reading(self.categories, self.categorical, self.ordinal)

    def read(self, path: Path) -> pl.DataFrame:
        """The rows of a file, with words where the settings say so."""
        return read_table(
            path,
            self.separator,
            self.missing,
            categorical=(*self.categorical, *self.ordinal),
            decimal=self.decimal,
            thousands=self.thousands,
            encoding=self.encoding,
        )


class CausalTableOptions(CausalFileOptions):
    path: str
    truth: str | None = None
    """A CSV with the columns `source` and `target`, one true edge a line."""
    rows: int | None = Field(None, ge=2)


def _names(given: object) -> object:
    """What was written as one name, one number, or names with commas between them, as a list."""
    if isinstance(given, str):
        return [name for part in given.split(",") if (name := part.strip())]
    if isinstance(given, list | tuple):
        return [str(item) if isinstance(item, int | float) else item for item in given]
    return [str(given)] if isinstance(given, int | float) else given


@causal_data.register("table", CausalTableOptions)
def table(options: CausalTableOptions) -> CausalData:
    path = given_path(options.path, "data.path")
    frame = options.read(path)
    check_named(options, frame.columns, str(path))
    notes: list[str] = []
    others = [name for name in frame.columns if name != options.id]
    names = options.columns or attributes(frame.select(others), str(path), options.reading, notes)
    if not names:
        raise InputError(f"{path}: no column can be an attribute ({some(notes)}); add columns of numbers or categories")
    values, nominal = coded_columns(frame, names, str(path), options.reading, notes)
    truth = None
    if options.truth is not None:
        place = given_path(options.truth, "data.truth")
        edges = read_table(place, text=("source", "target"))
        if not {"source", "target"} <= set(edges.columns):
            raise InputError(f"{place}: its columns are {', '.join(edges.columns)}; name them source,target")
        truth = edges_between(edges.select("source", "target").rows(), names, str(place))
    return CausalData(values, names, truth, tuple(notes), nominal).head(options.rows)


def check_named(options: CausalFileOptions, columns: Sequence[str], where: str) -> None:
    """Refuse a setting that names a column which is not there."""
    ids = () if options.id is None else (options.id,)
    for name in (*(options.columns or ()), *ids, *options.categorical, *options.ordinal):
        if name not in columns:
            raise InputError(f"{where}: no column {name!r}{did_you_mean(name, columns)}")
