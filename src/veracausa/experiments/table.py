"""What the cells of an experiment add up to: our mean and spread beside the paper's value, as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from veracausa.attacks import attack_title
from veracausa.audit.verdict import WORKS_FROM
from veracausa.experiments.attacked import Attacked
from veracausa.experiments.cells import Cells
from veracausa.experiments.experiment import Experiment
from veracausa.experiments.plan import Cell, GridPoint
from veracausa.metrics.advantage import lower_bound
from veracausa.runs.atomic import safe

SHARES = ("accuracy", "leakage", "success", "identified")
DIGITS = {"psnr": 2, "mse": 4, "loss": 3}
NAMES = {
    "mse": "MSE",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "lpips": "LPIPS",
    "affine_mse": "aligned MSE",
    "luminance_ssim": "luminance SSIM",
    "invre": "InvRE",
    "success_mse_0.1": "success, MSE ≤ 0.1",
    "success_mse_0.025": "success, MSE ≤ 0.025",
    "success_ssim_0.5": "success, SSIM ≥ 0.5",
    "identified_top_1": "identified",
    "end_leakage": "leakage, last model",
    "shd": "SHD",
    "f1": "F1",
    "intra_party_f1": "F1 inside a party",
    "inter_party_f1": "F1 between parties",
}

_CAPPED = "InvRE: measured by an earlier version, in a tenth of a row's directions only, so it is left out"


@dataclass(frozen=True)
class Value:
    """One number of a table."""

    mean: float | None
    over_seeds: float | None = None
    over_images: float | None = None
    seeds: int = 0
    published: tuple[float, float | None] | None = None
    works: bool | None = None
    """Whether the attack behind it beats a blind guess where nothing is defended; None: it is no attack's number."""
    why_not: str = ""
    """Why there is no number."""


@dataclass(frozen=True)
class Line:
    """One row of a panel, at one value of the axis."""

    row: str
    label: str
    at: float | None
    values: Mapping[str, Value]


@dataclass
class PanelTable:
    """One panel as gathered."""

    name: str
    label: str
    substitute: str
    lines: list[Line] = field(default_factory=list)
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    """A guess without the payload -> column -> its value."""
    notes: list[str] = field(default_factory=list)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    """Row -> score -> (epoch, mean over seeds)."""
    attacked: dict[str, list[Attacked]] = field(default_factory=dict)
    """By attack, what was attacked for each of its numbers."""
    across: str = ""
    """What the panel's own axis is, where it has one."""


def gather(
    experiment: Experiment, points: Sequence[GridPoint], cells: Cells, why_not: Mapping[str, str]
) -> list[PanelTable]:
    """All panels with what is finished; `why_not` says of a cell's key why it has no result."""
    tables: dict[str, PanelTable] = {}
    by_place: dict[tuple[str, str, float | None], list[GridPoint]] = {}
    for point in points:
        by_place.setdefault((point.panel, point.row, point.at), []).append(point)
    for (panel, row, at), seeds in by_place.items():
        table = tables.setdefault(panel, PanelTable(panel, experiment.label_of(panel), experiment.substituted(panel)))
        undefended = by_place[panel, "none", at]
        values = {
            column: _value(experiment, panel, row, column, seeds, undefended, cells, why_not)
            for column in experiment.columns
        }
        table.lines.append(Line(row, experiment.defenses[row].label, at, values))
        if row == "none" and not table.trivial:
            table.trivial = _trivial(experiment, seeds[0], cells)
        for point in seeds:
            for attack in experiment.attacks:
                if attack in point.readings and (found := cells.result(point.readings[attack])):
                    table.attacked.setdefault(attack, []).append(Attacked.of(point.readings[attack], found))
        trainings = [found for point in seeds if (found := cells.result(point.training))]
        for found in trainings:
            table.notes += [note for note in found.get("notes", ()) if note not in table.notes]
        if trainings and at is None:
            table.curves[row] = _curves([found.get("curves", []) for found in trainings])
    return list(tables.values())


def works(undefended: Sequence[GridPoint], attack: str, cells: Cells) -> bool | None:
    """Whether the attack beats the blind guess in every seed where nothing is defended; None where nobody tried."""
    found = [cells.result(point.readings[attack]) for point in undefended if attack in point.readings]
    passed = [_passes(result) for result in found if result and "leakage" in result["scores"]]
    return all(passed) if passed else None


def _passes(result: Mapping[str, Any]) -> bool:
    """Whether one seed's attack is better than the blind guess by more than its spread over rows, and by 1 %."""
    scores = result["scores"]
    if scores["leakage"]["mean"] < WORKS_FROM:
        return False
    if told := result.get("advantage"):
        return lower_bound(told["share"], told["error"], told["rows"], told["chances"]) > 0
    # Cells of before have no advantage: their means at least must say the same.
    return "mse" not in scores or "blind_mse" not in scores or scores["mse"]["mean"] < scores["blind_mse"]["mean"]


def _value(
    experiment: Experiment,
    panel: str,
    row: str,
    column: str,
    seeds: Sequence[GridPoint],
    undefended: Sequence[GridPoint],
    cells: Cells,
    why_not: Mapping[str, str],
) -> Value:
    source, score = parted(column)
    chosen: list[Cell] = [point.readings[source] if source else point.training for point in seeds]
    found = [result for cell in chosen if (result := cells.result(cell))]
    scores = [result["scores"][score] for result in found if score in result["scores"]]
    if score == "invre" and any("exact" not in entry for entry in scores):
        return Value(None, published=experiment.published_at(panel, row, column), why_not=_CAPPED)
    means = [entry["mean"] for entry in scores]
    spreads = [entry["spread"] for entry in scores if "spread" in entry]
    published = experiment.published_at(panel, row, column)
    reason = next((why_not[cell.key] for cell in chosen if cell.key in why_not), "")
    reason = reason or next((why for result in found if (why := result.get("unavailable", {}).get(score))), "")
    if not means:
        reason = reason or ("this run has no such score" if found else "not run yet")
        return Value(None, published=published, why_not=reason)
    return Value(
        fmean(means),
        stdev(means) if len(means) > 1 else None,
        fmean(spreads) if spreads else None,
        len(means),
        published,
        works(undefended, source, cells) if source in experiment.attacks else None,
    )


def _trivial(experiment: Experiment, point: GridPoint, cells: Cells) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for column in experiment.columns:
        source, score = parted(column)
        result = cells.result(point.readings[source]) if source in point.readings else None
        if result is None:
            continue
        if score == "mse":
            for guess, error in result.get("trivial", {}).items():
                found.setdefault(guess, {})[column] = error
        elif score.startswith("success_") and f"{score}_grey" in result["scores"]:
            found.setdefault("grey", {})[column] = result["scores"][f"{score}_grey"]["mean"]
    return found


def _curves(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[tuple[float, float]]]:
    curves = {}
    for score in ("accuracy", "loss"):
        by_epoch: dict[float, list[float]] = {}
        for records in seeds:
            for record in records:
                if score in record and record.get("epoch") is not None:
                    by_epoch.setdefault(float(record["epoch"]), []).append(float(record[score]))
        if by_epoch:
            curves[score] = [(epoch, fmean(values)) for epoch, values in sorted(by_epoch.items())]
    return curves


def parted(column: str) -> tuple[str, str]:
    """The attack of a column and its score; no attack for what a training gives."""
    source, point, score = column.partition(".")
    return (source, score) if point else ("", column)


def column_name(column: str) -> str:
    """`urvfl.mse` as `URVFL MSE`."""
    source, score = parted(column)
    shown = NAMES.get(score, score.replace("_", " "))
    return f"{attack_title(source)} {shown}" if source else shown


def shown(column: str, number: float) -> str:
    """A number as a reader wants it: shares in percent."""
    _, score = parted(column)
    if score.startswith(SHARES) or score.endswith("leakage"):
        return f"{100 * number:.1f} %"
    return f"{number:.{DIGITS.get(score.removeprefix('affine_'), 3)}f}"


def with_spread(column: str, number: float, spread: float | None) -> str:
    """`71.8 ± 0.4 %`."""
    if spread is None:
        return shown(column, number)
    value, width = shown(column, number), shown(column, spread)
    return f"{value.removesuffix(' %')} ± {width}"


NOT_WORKING = "†"


def cell_text(column: str, value: Value) -> str:
    """Our number: mean ± spread over seeds, marked where its attack does not work undefended."""
    if value.mean is None:
        return "–"
    text = with_spread(column, value.mean, value.over_seeds)
    return f"{text} {NOT_WORKING}" if value.works is False else text


def published_text(column: str, value: Value) -> str:
    return with_spread(column, *value.published) if value.published else ""


def compared(table: PanelTable, columns: Sequence[str]) -> list[str]:
    """The columns of which the paper prints something that may be compared."""
    return [column for column in columns if any(line.values[column].published for line in table.lines)]


def head(experiment: Experiment, table: PanelTable) -> list[str]:
    """The titles of a table, the paper's beside ours."""
    beside = compared(table, experiment.columns)
    titles = ["", *([experiment.axis.label] if experiment.axis else [])]
    for column in experiment.columns:
        titles += [column_name(column), *(["paper"] if column in beside else [])]
    return titles


def body(experiment: Experiment, table: PanelTable) -> Iterator[list[str]]:
    """The rows of a table as texts: defenses, then guesses that need no payload."""
    beside = compared(table, experiment.columns)
    for line in table.lines:
        texts = [line.label, *([f"{line.at:g}"] if line.at is not None else [])]
        for column in experiment.columns:
            value = line.values[column]
            texts += [cell_text(column, value), *([published_text(column, value)] if column in beside else [])]
        yield texts
    for guess, errors in table.trivial.items():
        texts = [f"no payload: {guess}", *([""] if experiment.axis else [])]
        for column in experiment.columns:
            texts += [shown(column, errors[column]) if column in errors else "", *([""] if column in beside else [])]
        yield texts


RECORDED = (
    *("panel", "row", "label", "at", "column", "mean", "over_seeds", "over_images", "seeds"),
    *("published", "published_spread", "works", "substitute"),
)


def records(experiment: Experiment, tables: Sequence[PanelTable]) -> list[dict[str, Any]]:
    """One record a number, for machines."""
    found: list[dict[str, Any]] = []
    for table in tables:
        for line in table.lines:
            for column, value in line.values.items():
                published, spread = value.published or (None, None)
                numbers = (value.mean, value.over_seeds, value.over_images, value.seeds, published, spread, value.works)
                place = (table.name, line.row, line.label, line.at, column)
                found.append(dict(zip(RECORDED, (*place, *numbers, table.substitute), strict=True)))
    return found


def as_csv(found: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(found[0]) if found else RECORDED, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: safe(value) for name, value in row.items()} for row in found)
    return text.getvalue()


def as_parquet(found: Sequence[Mapping[str, Any]]) -> bytes:
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame(list(found), infer_schema_length=None).write_parquet(file)
    return file.getvalue()
