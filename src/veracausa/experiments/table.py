"""What the cells of an experiment add up to: our numbers beside the paper's, as tables for people and for machines."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veracausa.atomic import safe
from veracausa.attacks import attack_title

SECONDS = "seconds"
TRAINING_SECONDS = "training_seconds"
DIAGNOSTICS = {
    "drift": "drift",
    "causal_error": "Ψ",
    "correlation_diagonal": "agreement",
    "correlation_off_diagonal": "off-diagonal",
    "chroma_sensitivity": "colour",
    "luminance_sensitivity": "lightness",
    "mask_variance": "masker variance",
    "generator_loss": "generator's loss",
}
"""What a defense says of itself after the last epoch: the mean of the passive parties."""
SHARES = ("accuracy", "leakage", "success", "identified")
"""What a score begins with that is shown in percent."""
DIGITS = {"psnr": 2, "mse": 4, "loss": 3}
DIGITS |= dict.fromkeys(
    ("shd", "shd_reversal_2", "empty_graph_shd", "edges", "true_edges", "undirected", "uncompelled", "megabytes"), 1
)
DIGITS["messages"] = 0
AUDIT_SCORES = {
    "unsplit": "UnSplit",
    "ica": "ICA",
    "norm_aware": "norm-aware",
    "norm_averaging": "norm-aware, looks averaged",
    "known_rows": "known rows",
    "averaging": "known rows, averaged",
    "stacking": "known rows, all epochs",
    "candidate_differencing": "candidate differencing",
    "party_and_validator": "party and validator",
    "best_own": "best own attribute",
    "random": "random guess",
    "together_unsplit": "all but one: UnSplit",
    "together_ica": "all but one: ICA",
    "together_norm_aware": "all but one: norm-aware",
    "together_best_own": "all but one: best own attribute",
    "r2_own": "R² by own columns",
    "r2_features": "R² by own columns and features",
}
"""Scores of an audited discovery: mean |correlation| over all attributes, attackers and victims, and R²."""
TRAFFIC = {"messages": "messages a fit", "megabytes": "MB a fit"}
"""What all members of a discovery between parties sent together."""
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
    "success_class": "right class seen",
    "success_class_no_payload": "right class, no payload",
    "success_class_originals": "right class, originals",
    "success_ssim_0.5": "success, SSIM ≥ 0.5",
    "identified_top_1": "identified",
    "end_leakage": "leakage, last model",
    "r2_brightness": "R² of brightness",
    "r2_contrast": "R² of contrast",
    "r2_hue": "R² of hue",
    "shd": "SHD",
    "shd_reversal_2": "SHD, reversal 2",
    "empty_graph_shd": "SHD of the empty graph",
    "f1": "F1",
    "skeleton_f1": "skeleton F1",
    "partial_f1": "F1, undirected half",
    "undirected": "undirected edges",
    "uncompelled": "directions nobody can know",
    "intra_party_f1": "F1 inside a party",
    "inter_party_f1": "F1 between parties",
    SECONDS: "processor seconds a fit",
    TRAINING_SECONDS: "seconds of training",
    **DIAGNOSTICS,
    **TRAFFIC,
    **AUDIT_SCORES,
}
NOT_WORKING = "†"
LIMITED = "‡"
EARLIER = "§"
RECORDED = (
    *("panel", "row", "label", "at", "column", "mean", "over_seeds", "over_images", "seeds"),
    *("published", "published_spread", "works", "substitute"),
)


@dataclass(frozen=True)
class Value:
    """One number of a table."""

    mean: float | None
    over: tuple[float | None, ...] = ()
    """Its spreads, as they are shown: over seeds, or over graphs and over seeds on one graph."""
    over_images: float | None = None
    seeds: int = 0
    published: tuple[float, float | None] | None = None
    works: bool | None = None
    """Whether the attack behind it beats a blind guess where nothing is defended; None: it is no attack's number."""
    why_not: str = ""
    """Why there is no number."""

    @property
    def spread(self) -> float | None:
        """The one that a figure draws."""
        return self.over[0] if self.over else None


@dataclass(frozen=True)
class Fits:
    """How many fits of a method a line is of."""

    finished: int
    wanted: int
    limited: int
    """So many were stopped by the time limit."""
    earlier: bool = False
    """Whether they are of an earlier run, whose table was there."""


@dataclass(frozen=True)
class Line:
    """One row of a panel, at one value of the axis."""

    row: str
    label: str
    at: float | None
    values: Mapping[str, Value]
    fits: Fits | None = None
    """Of a method of causal discovery."""
    why_not: str = ""
    """Why some of its cells have no result."""

    @property
    def marked_label(self) -> str:
        return f"{self.label} {LIMITED}" if self.fits is not None and self.fits.limited else self.label


@dataclass
class PanelTable:
    """One panel as gathered."""

    name: str
    label: str
    substitute: str
    lines: list[Line] = field(default_factory=list)
    remark: str = ""
    """What is said of its data, beside the substitute."""
    across: str = ""
    """What the axis is, where there is one."""
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    """A guess without the payload -> column -> its value."""
    notes: list[str] = field(default_factory=list)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    """Row -> score -> (epoch, mean over seeds)."""


@dataclass(frozen=True)
class TextTable:
    """A table as it is shown."""

    label: str
    head: Sequence[str]
    body: Sequence[Sequence[str]]
    note: str = ""
    guesses: int = 0
    """So many rows at the end are no method's."""


def parted(column: str) -> tuple[str, str]:
    """The attack of a column and its score; no attack for what a training gives."""
    source, point, score = column.partition(".")
    return (source, score) if point else ("", column)


def column_name(column: str) -> str:
    """`urvfl.mse` as `URVFL MSE`."""
    source, score = parted(column)
    shown = NAMES.get(score, score.replace("_", " "))
    return f"{attack_title(source)} {shown}" if source else shown


def number_text(column: str, number: float) -> str:
    """A number as a reader wants it: shares in percent."""
    _, score = parted(column)
    if score in (SECONDS, TRAINING_SECONDS):
        return f"{number:.3g}" if number < 100 else f"{number:.0f}"
    if score.startswith(SHARES) or score.endswith("leakage"):
        return f"{100 * number:.1f} %"
    return f"{number:.{DIGITS.get(score.removeprefix('affine_'), 3)}f}"


def with_spread(column: str, number: float, *spreads: float | None) -> str:
    """`71.8 ± 0.4 %`, or `9.6 ± 1.2 / 0.5` with two spreads."""
    value = number_text(column, number)
    if column == SECONDS or all(spread is None for spread in spreads):
        return value
    widths = ["–" if spread is None else number_text(column, spread) for spread in spreads]
    return f"{value.removesuffix(' %')} ± {' / '.join(widths)}"


def value_text(column: str, value: Value) -> str:
    """Our number with its spreads, marked where its attack does not work undefended."""
    if value.mean is None:
        return "–"
    text = with_spread(column, value.mean, *value.over)
    return f"{text} {NOT_WORKING}" if value.works is False else text


def compared(table: PanelTable, columns: Sequence[str]) -> list[str]:
    """The columns of which the paper prints something that may be compared."""
    return [column for column in columns if any(line.values[column].published for line in table.lines)]


def table_text(table: PanelTable, columns: Sequence[str]) -> TextTable:
    """The table as texts, the paper's numbers beside ours; last the guesses that need no payload."""
    beside = compared(table, columns)
    counted = any(line.fits is not None for line in table.lines)
    head = ["", *([table.across] if table.across else [])]
    for column in columns:
        head += [column_name(column), *(["paper"] if column in beside else [])]
    body = []
    for line in table.lines:
        earlier = [EARLIER] if line.fits is not None and line.fits.earlier else []
        texts = [
            " ".join([line.marked_label, *earlier]),
            *(["" if line.at is None else f"{line.at:g}"] if table.across else []),
        ]
        for column in columns:
            value = line.values[column]
            texts += [value_text(column, value), *([_published_text(column, line)] if column in beside else [])]
        if (fits := line.fits) is not None:
            whole = fits.finished == fits.wanted
            texts.append(f"{fits.finished}" if whole else f"{fits.finished} of {fits.wanted}")
        body.append(texts)
    for guess, errors in table.trivial.items():
        texts = [f"no payload: {guess}", *([""] if table.across else [])]
        for column in columns:
            known = number_text(column, errors[column]) if column in errors else ""
            texts += [known, *([""] if column in beside else [])]
        body.append(texts)
    guesses = 1 if counted else len(table.trivial)  # the empty graph, or guesses without a payload
    note = " ".join(filter(None, (table.substitute, table.remark)))
    return TextTable(table.label, [*head, *(["fits"] if counted else [])], body, note, guesses)


def _published_text(column: str, line: Line) -> str:
    printed = line.values[column].published
    if printed is None:
        return ""
    if line.fits is not None:  # with as many digits as it is printed with
        return " ± ".join(f"{part:g}" for part in printed if part is not None)
    return with_spread(column, *printed)


def records(tables: Sequence[PanelTable]) -> list[dict[str, Any]]:
    """One record a number, for machines."""
    found: list[dict[str, Any]] = []
    for table in tables:
        for line in table.lines:
            for column, value in line.values.items():
                published, spread = value.published or (None, None)
                record: dict[str, Any] = {"panel": table.name, "row": line.row, "label": line.label, "at": line.at}
                record |= {"column": column, "mean": value.mean}
                if line.fits is None:
                    record |= {"over_seeds": value.spread, "over_images": value.over_images, "seeds": value.seeds}
                else:
                    record |= dict(zip(("over_graphs", "over_seeds"), value.over or (None, None), strict=True))
                    record |= {"fits": line.fits.finished, "limited": line.fits.limited}
                record |= {"published": published, "published_spread": spread}
                record |= {"works": value.works} if line.fits is None else {}
                found.append({**record, "substitute": table.substitute})
    return found


def as_csv(found: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(found[0]) if found else RECORDED, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: safe(value) for name, value in row.items()} for row in found)
    return text.getvalue().encode()


def as_parquet(found: Sequence[Mapping[str, Any]]) -> bytes:
    import polars as pl

    file = io.BytesIO()
    pl.DataFrame(list(found), infer_schema_length=None).write_parquet(file)
    return file.getvalue()


def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    rows = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in rows]
