"""Figures of a run: training curves and bytes by kind, as SVG that follows the page's colours and as PNG files."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veracausa.atomic import atomic_write
from veracausa.report.page import SCORES, SHARES, format_bytes
from veracausa.runs.record import number as number
from veracausa.runs.record import numbers

SPLITS = ("train", "validation", "test")
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """One line of a chart; curves with the same `series` share a colour."""

    label: str
    points: Points
    series: int
    dashed: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare the curves with, such as a baseline."""

    label: str
    value: float


@dataclass(frozen=True)
class Chart:
    """What one chart shows."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[Level] = ()
    percent: bool = False
    across: str = "epoch"
    ticks: Sequence[float] = ()
    """Where the axis below is marked; empty: where it is round."""
    whole: bool = False
    """Whether the scale runs from 0 to 1, whatever the curves do."""


@dataclass(frozen=True)
class Ink:
    """The colours of a figure."""

    text: str
    rule: str
    series: tuple[str, ...]


_PRINT = Ink("#22262b", "#d9dde2", ("#2563a8", "#c2571a", "#2f7d5b", "#7b4fa3", "#a8842c", "#5b6670"))
# Colours that occur nowhere else: each is replaced by a colour of the page, so that a figure follows light and dark.
PAGE = Ink("#010203", "#020304", tuple(f"#0a0b{i:02x}" for i in range(6)))
_PAGE_COLOURS = {PAGE.text: "currentColor", PAGE.rule: "var(--rule)"} | {
    colour: f"var(--s{i + 1})" for i, colour in enumerate(PAGE.series)
}


def training_charts(epochs: Sequence[Mapping[str, Any]], baselines: Mapping[str, Any]) -> list[Chart]:
    """Loss, and the score that matters, over the epoch records of a run; no chart without points."""
    charts = [Chart("Loss", curves)] if (curves := curves_of(epochs, "loss")) else []
    for scores in (("accuracy", "auc"), ("rmse",)):
        drawn = [name for name in scores if curves_of(epochs, name)]
        if not drawn:
            continue
        curves = curves_of(epochs, drawn[0], named=len(drawn) > 1)
        # Of a second score the last split is enough, test where there is one: four lines are too many to read.
        curves += [curves_of(epochs, name, named=True)[-1] for name in drawn[1:]]
        levels = [
            Level(name.replace("_", " "), value)
            for name, result in baselines.items()
            if (value := numbers(result).get(drawn[0])) is not None
        ]
        title = " and ".join(SCORES[name] for name in drawn)
        charts.append(Chart(title[0].upper() + title[1:], curves, levels, percent=drawn[0] in SHARES))
    return charts


def curves_of(epochs: Sequence[Mapping[str, Any]], score: str, named: bool = False) -> list[Curve]:
    """One curve a split that has this score."""
    curves = []
    for i, split in enumerate(SPLITS):
        values = [(float(record["epoch"]), numbers(record.get(split)).get(score)) for record in epochs]
        if points := [(epoch, value) for epoch, value in values if value is not None]:
            label = f"{split} {SCORES[score]}" if named else split
            curves.append(Curve(label, points, series=i, dashed=score == "auc"))
    return curves


def chart_svg(chart: Chart, small: bool = False) -> str:
    """The chart as an inline SVG element in the page's colours; small, one of many that share a legend elsewhere."""
    figure = Figure(figsize=(3.2, 1.9) if small else (4.6, 3.1), layout="constrained")
    _draw_chart(figure.add_subplot(), chart, PAGE, legend=not small)
    return svg_text(figure, chart.title)


def bars_svg(counts: Sequence[Any]) -> str:
    """Counts as a row of bars, as high as a line of text; drawn by hand, because a page has one for every column."""
    heights = [max(0.0, number(count) or 0.0) for count in counts]
    most = max(heights, default=0.0) or 1.0
    tall = [max(1.0, 30 * height / most) if height else 0.0 for height in heights]  # a rare value is seen, too
    bars = "".join(
        f'<rect x="{10 * at}" y="{30 - height:.1f}" width="9" height="{height:.1f}"></rect>'
        for at, height in enumerate(tall)
    )
    told = ", ".join(f"{height:.0f}" for height in heights)
    return (
        f'<svg class="distribution" viewBox="0 0 {10 * len(heights)} 30" preserveAspectRatio="none" role="img" '
        f'aria-label="rows in {len(heights)} equal steps: {told}">{bars}</svg>'
    )


def charts_png(charts: Sequence[Chart], path: Path) -> None:
    """Write the charts side by side as one PNG file."""
    figure = Figure(figsize=(4.6 * len(charts), 3.0), layout="constrained")
    for i, chart in enumerate(charts):
        _draw_chart(figure.add_subplot(1, len(charts), i + 1), chart, _PRINT)
    _png(figure, path)


def bytes_svg(sent: Mapping[str, Mapping[str, int]]) -> str:
    """Bytes sent, one bar a party and one colour a kind of message, as an inline SVG element."""
    figure = _bytes_figure(sent, PAGE)
    return svg_text(figure, "Bytes sent by each party, by kind of message")


def bytes_png(sent: Mapping[str, Mapping[str, int]], path: Path) -> None:
    """Write the same bars as a PNG file."""
    _png(_bytes_figure(sent, _PRINT), path)


def _draw_chart(axes: Axes, chart: Chart, ink: Ink, legend: bool = True) -> None:
    bare(axes, ink)
    axes.set_title(chart.title, loc="left", fontsize=10, color=ink.text, fontweight="bold")
    for curve in chart.curves:
        axes.plot(
            [x for x, _ in curve.points],
            [y for _, y in curve.points],
            color=ink.series[curve.series % len(ink.series)],
            linestyle=(0, (4, 2)) if curve.dashed else "-",
            linewidth=1.8,
            # A single epoch is a point, which a line alone would not show.
            marker="o" if len(curve.points) <= 15 else None,
            markersize=3.2,
            label=plain(curve.label),
        )
    _draw_levels(axes, chart.levels, ink)
    axes.grid(axis="y", color=ink.rule, linewidth=0.8)
    axes.set_xlabel(chart.across, fontsize=9, color=ink.text)
    if chart.whole:
        axes.set_ylim(-0.03, 1.03)
    epochs = [x for curve in chart.curves for x, _ in curve.points]
    if chart.ticks:
        axes.set_xticks(chart.ticks)
    elif max(epochs) - min(epochs) < 2:
        # Around one or two epochs the locator falls back to fractions of one.
        axes.set_xticks(sorted(set(epochs)))
        axes.set_xlim(min(epochs) - 0.5, max(epochs) + 0.5)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6 if legend else 4))
    if chart.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    if legend and len(chart.curves) > 1:
        columns = 3 if len(chart.curves) <= 6 else 2
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            ncols=columns,
            frameon=False,
            fontsize=8.5,
            labelcolor=ink.text,
            handlelength=1.6,
            columnspacing=1.2,
        )


def _draw_levels(axes: Axes, levels: Sequence[Level], ink: Ink) -> None:
    for level in levels:
        axes.axhline(level.value, color=ink.text, linewidth=1, linestyle=(0, (1, 2)))
    # Named beside the line: two dotted lines in a legend cannot be told apart. Names of close lines are moved apart.
    low, high = axes.get_ylim()
    lowest_free = low
    for level in sorted(levels, key=lambda level: level.value):
        at = max(level.value, lowest_free)
        lowest_free = at + 0.075 * (high - low)
        axes.annotate(
            plain(level.label),
            (1.01, at),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color=ink.text,
            annotation_clip=False,
        )


LEGEND = 68
"""Letters in a line of the legend of bytes, with some room for each key."""


def _bytes_figure(sent: Mapping[str, Mapping[str, int]], ink: Ink) -> Figure:
    totals: dict[str, int] = {}
    for by_kind in sent.values():
        for kind, count in by_kind.items():
            totals[kind] = totals.get(kind, 0) + count
    kinds = sorted(totals, key=lambda kind: -totals[kind])
    across = max(1, min(4, len(kinds), LEGEND // (6 + max(map(len, kinds), default=0))))
    below = max(0, -(-len(kinds) // across) - 2)
    figure = Figure(figsize=(4.6, 0.7 + 0.34 * len(sent) + 0.18 * below), layout="constrained")
    axes = figure.add_subplot()
    bare(axes, ink)
    axes.spines["bottom"].set_visible(False)
    parties = list(sent)
    rows = range(len(parties))
    left = [0] * len(parties)
    for i, kind in enumerate(kinds):
        widths = [sent[party].get(kind, 0) for party in parties]
        axes.barh(rows, widths, left=left, height=0.55, color=ink.series[i % len(ink.series)], label=plain(kind))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for row, total in enumerate(left):
        axes.annotate(
            format_bytes(total),
            (total, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=ink.text,
        )
    axes.set_xlim(0, 1.22 * max(left, default=0) or 1)
    axes.set_yticks(rows, [plain(party) for party in parties])
    axes.invert_yaxis()
    axes.set_xticks([])
    if kinds:
        figure.legend(loc="outside lower center", ncols=across, frameon=False, fontsize=8.5, labelcolor=ink.text)
    return figure


def bare(axes: Axes, ink: Ink) -> None:
    """Leave of the frame only what a reader needs."""
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(ink.rule)
    axes.tick_params(colors=ink.text, labelsize=9, length=0)
    axes.set_axisbelow(True)


def plain(label: str) -> str:
    """The label as it is."""
    # Between dollar signs matplotlib would read a formula.
    return label.replace("$", r"\$")


def svg_text(figure: Figure, title: str) -> str:
    """The figure as an inline SVG element in the page's colours."""
    figure.patch.set_visible(False)
    file = io.StringIO()
    # Text stays text: it is set in the page's font, can be searched, and the page stays small.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", text)
    label = f'<svg role="img" aria-label="{html.escape(title)}"'
    text = re.sub(r'^<svg width="[^"]*" height="[^"]*"', lambda _: label, text, count=1)
    text = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", text, count=1)
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    for colour, page_colour in _PAGE_COLOURS.items():
        text = text.replace(colour, page_colour)
    return text


def _png(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.set_facecolor("white")
    file = io.BytesIO()
    figure.savefig(file, dpi=150, format="png")
    atomic_write(path, file.getvalue())
