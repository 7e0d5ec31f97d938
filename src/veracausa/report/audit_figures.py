"""What a report shows of an audit: curves, reconstructed pictures, and rows of tables that were read."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veracausa.audit.baseline import FOLDER, baseline_folder
from veracausa.audit.snapshots import columns_read, snapshots, worst
from veracausa.report.figures import PAGE, Chart, Curve, bare, chart_svg, plain, svg_text
from veracausa.runs.record import RunRecord, mapping, number


@dataclass(frozen=True)
class AuditPoint:
    """One run: what it leaks, how accurate it is."""

    label: str
    leakage: float
    accuracy: float


def point_of(run: RunRecord, label: str) -> AuditPoint | None:
    """The run as a point; None where it has no accuracy or nobody attacked its training rows."""
    accuracy, read = run.scores.get("accuracy"), run.read_of("training")
    return None if accuracy is None or read is None else AuditPoint(label, read, accuracy)


def frontier_svg(points: Sequence[AuditPoint]) -> str:
    """Accuracy over leakage, one dot a run: better is further up and further left."""
    figure = Figure(figsize=(4.6, 3.1), layout="constrained")
    axes = figure.add_subplot()
    bare(axes, PAGE)
    axes.set_title("Accuracy and leakage", loc="left", fontsize=10, color=PAGE.text, fontweight="bold")
    for i, point in enumerate(points):
        axes.plot([point.leakage], [point.accuracy], "o", markersize=7, color=PAGE.series[i % len(PAGE.series)])
    axes.set_xlim(-0.04, 1.04)
    low, high = min(point.accuracy for point in points), max(point.accuracy for point in points)
    margin = max(0.03, 0.35 * (high - low))
    # A name goes to the side where there is room; names of close points are moved apart, and have their dot's colour.
    line = 0.085 * (high - low + 2 * margin)
    free = {True: low - margin, False: low - margin}
    for i, point in sorted(enumerate(points), key=lambda item: item[1].accuracy):
        right = point.leakage < 0.6
        at = max(point.accuracy, free[right])
        free[right] = at + line
        axes.annotate(
            plain(point.label),
            (point.leakage, at),
            (8 if right else -8, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=8.5,
            color=PAGE.series[i % len(PAGE.series)],
            annotation_clip=False,
        )
    axes.set_ylim(low - margin, max(high + margin, *free.values()))
    axes.grid(color=PAGE.rule, linewidth=0.8)
    axes.set_xlabel("leakage of the strongest attack", fontsize=9, color=PAGE.text)
    axes.set_ylabel("test accuracy", fontsize=9, color=PAGE.text)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g} %"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    return svg_text(figure, "Accuracy and leakage")


def moments_svg(entries: Mapping[str, Any], undefended: Mapping[str, Any]) -> dict[str, str]:
    """By attack, what it reads of each party over the training; dashed where nothing is defended."""
    charts = {}
    for name, entry in entries.items():
        curves = []
        for dashed, source in ((False, entry), (True, undefended.get(name))):
            for i, (party, own) in enumerate(mapping(mapping(source).get("parties")).items()):
                points = [
                    (100 * moment, leaked)
                    for told in mapping(own).get("moments", ())
                    if (moment := number(mapping(told).get("moment"))) is not None
                    and (leaked := number(mapping(told).get("train"))) is not None
                ]
                if len(points) > 1:
                    label = f"{party}, undefended" if dashed else party
                    curves.append(Curve(label, points, series=i, dashed=dashed))
        if curves:
            title = f"Leakage over the training ({name})"
            ticks = (0, 25, 50, 75, 100)
            chart = Chart(title, curves, percent=True, across="% of the training done", ticks=ticks, whole=True)
            charts[name] = chart_svg(chart)
    return charts


MOST_COLUMNS = 8
"""Columns of rows that a page shows."""


@dataclass(frozen=True)
class TableRead:
    """One party's table as the strongest attack read it."""

    party: str
    where: str
    """At which snapshot, and of which rows, in words."""
    of: str
    """Which rows they are: training rows, or predicted ones."""
    columns: list[tuple[str, float | None]]
    """Leakage by column, most first; None where there is nothing to learn."""
    names: list[str]
    """The columns of the rows, most leakage first; not more than a page has room for."""
    rows: list[dict[str, Any]]
    """`position`, `original` and `read`, from the row read best to the one read worst."""
    left_out: int
    """Columns that leak less than those shown."""


def tables_read(run: Path, entry: Mapping[str, Any]) -> list[TableRead]:
    """Of every party whose rows are a table; empty for pictures."""
    found = []
    for party, columns in columns_read(entry).items():
        kept = _rows(run / "attacks" / str(mapping(entry.get("settings")).get("name", "")) / f"rows-{party}.json")
        trained = snapshots({party: mapping(entry.get("parties"))[party]})
        of = "training" if trained else "predicted"
        where = f"on {of} rows"
        if trained:
            most = worst(trained)
            where = f"{'from the sums' if 'situation' in most.scores else most.at}, {where}"
        names = list(kept.get("columns", ()))
        rank = {name: number for number, (name, _) in enumerate(columns)}
        order = sorted(range(len(names)), key=lambda at: rank.get(names[at], len(rank)))[:MOST_COLUMNS]
        rows = [
            {**row, **{what: [row[what][at] for at in order] for what in ("original", "read")}}
            for row in map(mapping, kept.get("rows", ()))
            if len(row.get("original", ())) == len(row.get("read", ())) == len(names)
        ]
        found.append(TableRead(party, where, of, columns, [names[at] for at in order], rows, len(names) - len(order)))
    return found


def _rows(path: Path) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


WORST, OTHERS = 8, 4
_HEIGHT, _MOST_HEIGHT = 64, 112


@dataclass(frozen=True)
class Wall:
    """One party's rows, the best read first: a picture a kind of guess, all in the same order."""

    party: str
    rows: tuple[tuple[str, str], ...]
    """What it is, and an inline PNG."""
    worst: int
    shown: int
    by: str
    """The attack whose errors order them."""


def wall(run: Path, party: str, attacks: Sequence[str], strongest: str, defended: bool) -> Wall | None:
    """The party's wall; None where no attack kept pictures of it.

    First the rows that the strongest attack reads best, then some from there to the worst read.
    """
    import numpy as np

    kept = {name: found for name in attacks if (found := kept_pictures(run / "attacks" / name, party)) is not None}
    if not kept:
        return None
    beside = baseline_folder(run) or run / FOLDER
    baseline = {
        name: found for name in attacks if (found := kept_pictures(beside / "attacks" / name, party)) is not None
    }
    by = strongest if strongest in kept else next(iter(kept))
    common = set.intersection(*({int(p) for p in found["positions"]} for found in (*kept.values(), *baseline.values())))
    chosen = [i for i, position in enumerate(kept[by]["positions"]) if int(position) in common]
    if not chosen:
        return None
    chosen.sort(key=lambda i: float(kept[by]["mse"][i]))
    worst = min(WORST, len(chosen))
    rest = chosen[worst:]
    spread = np.linspace(0, len(rest) - 1, min(OTHERS, len(rest))).round().astype(int).tolist()
    shown = [*chosen[:worst], *(rest[i] for i in spread)]
    positions = [int(kept[by]["positions"][i]) for i in shown]
    rows = [("original", picture_strip(_at(kept[by], "truth", positions), worst))]
    for name in kept:
        if name in baseline:
            rows.append((f"{name}, undefended", picture_strip(_at(baseline[name], "guess", positions), worst)))
        label = f"{name}, defended" if defended else name
        rows.append((label, picture_strip(_at(kept[name], "guess", positions), worst)))
    rows.append(("blind guess", picture_strip(_at(kept[by], "blind", positions), worst)))
    return Wall(party, tuple(rows), worst, len(positions), by)


def kept_pictures(folder: Path, party: str) -> Mapping[str, Any] | None:
    path = folder / f"pictures-{party}.safetensors"
    if not path.is_file():
        return None
    import safetensors
    from safetensors.numpy import load_file

    try:
        found: Mapping[str, Any] = load_file(path)
    except (safetensors.SafetensorError, OSError):
        return None  # a file torn by a crash: the report says what is there
    if {"positions", "truth", "guess", "blind", "mse"} - set(found) or found["truth"].shape[1] not in (1, 3):
        return None
    return found


def _at(found: Mapping[str, Any], name: str, positions: Sequence[int]) -> Any:
    places = {int(position): i for i, position in enumerate(found["positions"])}
    return found[name][[places[position] for position in positions]]


def picture_strip(pictures: Any, worst: int) -> str:
    """Pictures side by side, a wider gap after the worst cases, as an inline PNG."""
    import numpy as np
    from PIL import Image

    count, channels, height, width = pictures.shape
    scale = max(1, round(_HEIGHT / height))
    gap = max(2, 6 * width * scale // 100)
    tall, wide = height * scale, width * scale
    if tall > _MOST_HEIGHT:
        wide, tall = max(1, wide * _MOST_HEIGHT // tall), _MOST_HEIGHT
    between = 4 * gap if count > worst else 0
    sheet = np.zeros((tall, count * (wide + gap) - gap + between, 4), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        colours = picture.transpose(1, 2, 0)
        colours = colours if channels == 3 else np.repeat(colours, 3, axis=2)
        how = Image.Resampling.NEAREST if scale > 1 or tall == height else Image.Resampling.LANCZOS
        left = i * (wide + gap) + (between if i >= worst else 0)
        sheet[:, left : left + wide, :3] = np.asarray(Image.fromarray(colours).resize((wide, tall), how))
        sheet[:, left : left + wide, 3] = 255
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
