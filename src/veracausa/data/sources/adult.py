"""Adult (census income), in the UCI archive's format: no header, `, ` between fields, `?` for a missing value."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from veracausa.data.files import Remote, find, subset_note
from veracausa.data.ids import TableFile
from veracausa.data.sources import datasets
from veracausa.data.tables import Holding, OwnTable, TableOptions, Tables, own_table
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from veracausa.config import Job

_SOURCE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
_MD5 = {"adult.data": "5d7c39d7b8804f071cdd1f2a7c460872", "adult.test": "35238206dfdf7f1fe215bbb874adecdc"}
_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)


class AdultOptions(TableOptions):
    label: str = "income"

    def read(self, path: Path, id: str | None = None, own: OwnTable | None = None) -> pl.DataFrame:
        """New rows come in the archive's format, or as any table with these column names."""
        if path.suffix in _MD5_SUFFIXES:
            return read_adult(path)
        return super().read(path, id, own)


_MD5_SUFFIXES = tuple(Path(name).suffix for name in _MD5)


@datasets.register("adult", AdultOptions)
def adult(options: AdultOptions, job: Job) -> Tables[TableFile]:
    """32,561 and 16,281 people; whether one earns more than 50,000 dollars a year."""
    files = []
    for name in _MD5:
        path = find(f"tabular/{name}", Remote(f"{_SOURCE}/{name}", _MD5[name]))
        files.append(TableFile(path, read_adult(path)))
    holdings = {}
    for party in (job.parties.active, *job.parties.passive):
        own = own_table(job, party)
        if any(value is not None for name, value in own if name != "columns"):
            raise InputError(
                f"party.{party}.data: of adult, a party can name its columns only; remove the other settings"
            )
        holdings[party] = Holding(files[0], files[1], own.columns)
    return Tables(holdings, notes=subset_note("adult", files[0].path.parent, files[0].frame.height))


def read_adult(path: Path) -> pl.DataFrame:
    """The rows of one of the archive's files, typed and named."""
    import polars as pl

    records: list[list[str]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); replace it by an intact copy") from None
    for number, line in enumerate(lines, start=1):
        # The test file starts with a remark, and both end in an empty line.
        if not line.strip() or line.startswith("|"):
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_COLUMNS):
            raise InputError(
                f"{path}: line {number} has {len(fields)} of {len(_COLUMNS)} fields; replace the file by an intact copy"
            )
        fields[-1] = fields[-1].removesuffix(".")
        records.append(fields)
    if not records:
        raise InputError(f"{path}: holds no rows; replace it by an intact copy")
    frame = pl.DataFrame(records, schema=dict.fromkeys(_COLUMNS, pl.String), orient="row")
    frame = frame.with_columns(pl.all().replace("?", None))
    numbers = frame.with_columns(pl.col(_NUMBERS).cast(pl.Float64, strict=False))
    for name in _NUMBERS:
        lost = (numbers[name].is_null() & frame[name].is_not_null()).arg_true()
        if len(lost):
            at = int(lost[0])
            raise InputError(
                f"{path}: column {name!r}, row {at + 1}: {frame[name][at]!r} is no number; replace the file"
            )
    return numbers
