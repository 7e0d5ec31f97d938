"""The figure of an experiment, drawn as the paper draws it: our values filled, the paper's hollow."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from veracausa.experiments.experiment import FigureSpec
from veracausa.experiments.table import NOT_WORKING, SHARES, PanelTable, Value, column_name, parted
from veracausa.report.figures import PAGE, Ink, bare, plain, svg_text

PRINT = Ink("#22262b", "#d9dde2", ("#2563a8", "#c2571a", "#2f7d5b", "#7b4fa3", "#a8842c", "#5b6670"))
MARKERS = "osD^vPX*<>"
WIDTH = 6.2
"""Of a picture, in inches."""
TITLE = 46
"""Letters in a line of a title: beside long labels of rows little room is left."""
WHOLE: dict[Any, Any] = {"savefig.bbox": "tight", "savefig.pad_inches": 0.06}
"""The file is as large as what was drawn: names of defenses are long."""


@dataclass(frozen=True)
class Drawing:
    """One picture of a page: what it is called, how large, and how to draw it."""

    title: str
    size: tuple[float, float]
    draw: Callable[[Axes, Ink], None]

    def svg(self) -> str:
        """As an inline SVG element that follows the page's colours."""
        canvas = Canvas(figsize=self.size, layout="constrained")
        self.draw(canvas.add_subplot(), PAGE)
        with mpl.rc_context(WHOLE):
            return svg_text(canvas, self.title)


def write_figure(drawings: Sequence[Drawing]) -> tuple[bytes, bytes]:
    """All drawings below each other as one SVG file and one PNG file."""
    width = max(drawing.size[0] for drawing in drawings)
    heights = [drawing.size[1] for drawing in drawings]
    canvas = Canvas(figsize=(width, sum(heights)), layout="constrained", facecolor="white")
    grid = canvas.add_gridspec(len(drawings), 1, height_ratios=heights)
    for place, drawing in enumerate(drawings):
        drawing.draw(canvas.add_subplot(grid[place]), PRINT)
    svg, png = io.BytesIO(), io.BytesIO()
    with mpl.rc_context({**WHOLE, "svg.hashsalt": "veracausa"}):
        canvas.savefig(svg, format="svg", metadata={"Date": None})
        canvas.savefig(png, format="png", dpi=150)
    return svg.getvalue(), png.getvalue()


def drawings_of(figures: Sequence[FigureSpec], tables: Sequence[PanelTable]) -> list[Drawing]:
    """The charts of all panels; pictures, graphs and times are no numbers of a table."""
    drawings = [_drawing(figure, table) for figure in figures for table in tables]
    return [drawing for drawing in drawings if drawing is not None]


def _drawing(figure: FigureSpec, table: PanelTable) -> Drawing | None:
    title = f"{figure.title or column_name(figure.y)}, {table.label}"
    if figure.kind == "scatter" and (marks := _points(figure, table)):
        size = (WIDTH, 3.5 + _legend_height([mark.label for mark in marks]))
        return Drawing(title, size, lambda axes, ink: _scatter(axes, ink, title, figure, marks))
    if figure.kind == "bars" and (marks := _bars(figure, table)):
        size = (WIDTH, 0.9 + 0.34 * len(marks))
        return Drawing(title, size, lambda axes, ink: _draw_bars(axes, ink, title, figure, marks))
    if figure.kind in ("lines", "curves"):
        across = table.across or "epoch"
        if curves := _lines(figure, table) if figure.kind == "lines" else _curves(figure, table):
            size = (WIDTH, 3.3 + _legend_height(list(curves)))
            return Drawing(title, size, lambda axes, ink: _draw_lines(axes, ink, title, figure, curves, across))
    return None


@dataclass(frozen=True)
class _Mark:
    label: str
    x: float
    y: float
    spread: float | None = None
    paper: tuple[float, float] | None = None


def _points(figure: FigureSpec, table: PanelTable) -> list[_Mark]:
    marks = []
    for line in table.lines:
        x, y = line.values.get(figure.x), line.values.get(figure.y)
        if x is not None and y is not None and x.mean is not None and y.mean is not None:
            paper = (x.published[0], y.published[0]) if x.published and y.published else None
            marks.append(_Mark(_marked(line.marked_label, x, y), x.mean, y.mean, None, paper))
    return marks


def _bars(figure: FigureSpec, table: PanelTable) -> list[_Mark]:
    marks = []
    for line in table.lines:
        value = line.values.get(figure.y)
        if value is not None and (value.mean is not None or value.published):
            paper = (value.published[0], 0.0) if value.published else None
            mean = value.mean if value.mean is not None else 0.0
            marks.append(_Mark(_marked(line.marked_label, value), mean, 0.0, value.spread, paper))
    for guess, errors in table.trivial.items():
        if figure.y in errors and guess in ("grey", "class mean"):
            marks.append(_Mark(f"no payload: {guess}", errors[figure.y], 0.0))
    return marks


def _marked(label: str, *values: Value) -> str:
    """The label with the mark of a number that says nothing, because its attack fails undefended, too."""
    return f"{label} {NOT_WORKING}" if any(value.works is False for value in values) else label


@dataclass(frozen=True)
class _Point:
    x: float
    y: float
    spread: float | None = None


def _lines(figure: FigureSpec, table: PanelTable) -> dict[str, list[_Point]]:
    """A line a row; where a cell is not finished it is broken, so that nothing is drawn that was not measured."""
    curves: dict[str, list[_Point]] = {}
    for line in table.lines:
        value = line.values.get(figure.y)
        if value is not None and line.at is not None:
            y = math.nan if value.mean is None else value.mean
            curves.setdefault(line.marked_label, []).append(_Point(line.at, y, value.spread))
    return {label: points for label, points in curves.items() if any(math.isfinite(point.y) for point in points)}


def _curves(figure: FigureSpec, table: PanelTable) -> dict[str, list[_Point]]:
    labels = {line.row: line.label for line in table.lines}
    scores = {labels[row]: of[figure.y] for row, of in table.curves.items() if figure.y in of}
    return {label: [_Point(*point) for point in points] for label, points in scores.items()}


def _scatter(axes: Axes, ink: Ink, title: str, figure: FigureSpec, marks: Sequence[_Mark]) -> None:
    _frame(axes, ink, title)
    for number, mark in enumerate(marks):
        colour, shape = ink.series[number % len(ink.series)], MARKERS[number // len(ink.series) % len(MARKERS)]
        if mark.paper:
            axes.plot([mark.x, mark.paper[0]], [mark.y, mark.paper[1]], color=colour, linewidth=0.7, linestyle=":")
            axes.plot(*mark.paper, shape, markersize=7, markerfacecolor="none", color=colour)
        axes.plot(mark.x, mark.y, shape, markersize=7, color=colour, label=plain(mark.label))
    _threshold(axes, ink, figure.threshold)
    _axis(axes.xaxis, figure.x)
    _axis(axes.yaxis, figure.y)
    axes.grid(color=ink.rule, linewidth=0.8)
    axes.margins(0.12)
    _name(axes, ink, column_name(figure.x), column_name(figure.y))
    _legend(axes, ink, len(marks), 0.17)


def _draw_bars(axes: Axes, ink: Ink, title: str, figure: FigureSpec, marks: Sequence[_Mark]) -> None:
    _frame(axes, ink, title)
    axes.spines["bottom"].set_visible(False)
    places = range(len(marks))
    paper = any(mark.paper for mark in marks)
    height, shift = (0.34, 0.18) if paper else (0.6, 0.0)
    ours = [place - shift for place in places]
    axes.barh(ours, [mark.x for mark in marks], height=height, color=ink.series[0], label="here")
    for place, mark in zip(ours, marks, strict=True):
        if mark.spread is not None:
            axes.errorbar([mark.x], [place], xerr=[mark.spread], fmt="none", ecolor=ink.text, elinewidth=1)
    if paper:
        printed = [(place + shift, mark.paper[0]) for place, mark in enumerate(marks) if mark.paper]
        at, widths = zip(*printed, strict=True)
        axes.barh(at, widths, height=height, facecolor="none", edgecolor=ink.series[1], label="paper")
        _legend(axes, ink, 2, 0.5 / max(1, len(marks)))
    axes.set_yticks(list(places), [plain(mark.label) for mark in marks])
    axes.invert_yaxis()
    axes.grid(axis="x", color=ink.rule, linewidth=0.8)
    _axis(axes.xaxis, figure.y)
    axes.set_xlim(left=0, right=None if any(mark.x for mark in marks) else 1)
    _threshold(axes, ink, figure.threshold, upright=True)


def _draw_lines(
    axes: Axes,
    ink: Ink,
    title: str,
    figure: FigureSpec,
    curves: Mapping[str, Sequence[_Point]],
    across: str,
) -> None:
    _frame(axes, ink, title)
    for number, (label, points) in enumerate(curves.items()):
        colour = ink.series[number % len(ink.series)]
        axes.plot(
            [point.x for point in points],
            [point.y for point in points],
            color=colour,
            linestyle=("-", (0, (4, 2)), (0, (1, 1.5)))[number // len(ink.series) % 3],
            marker=MARKERS[number % len(MARKERS)] if len(points) <= 15 else None,
            markersize=3.6,
            linewidth=1.6,
            label=plain(label),
        )
        for point in points:
            if point.spread:
                axes.errorbar([point.x], [point.y], yerr=[point.spread], fmt="none", ecolor=colour, elinewidth=1)
    _threshold(axes, ink, figure.threshold)
    axes.grid(axis="y", color=ink.rule, linewidth=0.8)
    places = sorted({point.x for points in curves.values() for point in points})
    if len(places) <= 12:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    _axis(axes.yaxis, figure.y)
    _name(axes, ink, across, column_name(figure.y))
    _legend(axes, ink, len(curves), 0.2)


def bars_of_times(title: str, seconds: Mapping[str, float]) -> Drawing:
    """Milliseconds on a scale of powers of ten: what a defense adds spans many of them."""
    floor = min((value for value in seconds.values() if value > 0), default=1e-3) / 2

    def draw(axes: Axes, ink: Ink) -> None:
        _frame(axes, ink, title)
        places = list(range(len(seconds)))
        axes.set_xscale("log")
        widths = [1e3 * max(value - floor, 0.0) for value in seconds.values()]
        axes.barh(places, widths, left=1e3 * floor, height=0.6, color=ink.series[0])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_yticks(places, [plain(name) for name in seconds])
        axes.invert_yaxis()
        axes.grid(axis="x", color=ink.rule, linewidth=0.8)
        for place, value in zip(places, seconds.values(), strict=True):
            axes.annotate(
                f"{milliseconds(value)} ms" if value > 0 else "nothing that shows",
                (1e3 * max(value, floor), place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=ink.text,
            )
        axes.margins(x=0.02)
        _name(axes, ink, "milliseconds, on a scale of powers of ten", "")

    return Drawing(title, (6.8, 1.0 + 0.3 * len(seconds)), draw)


def milliseconds(seconds: float) -> str:
    """Three digits, thousands apart."""
    value = 1e3 * seconds
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _frame(axes: Axes, ink: Ink, title: str) -> None:
    bare(axes, ink)
    title_of(axes, ink, title)


def title_of(axes: Axes, ink: Ink, title: str) -> None:
    """Write the title as every drawing has it."""
    # What is wider than the picture squeezes the axes when the file is written, as a legend does.
    lines = textwrap.fill(plain(title), TITLE)
    axes.set_title(lines, loc="left", fontsize=10, color=ink.text, fontweight="bold")


def _name(axes: Axes, ink: Ink, across: str, up: str) -> None:
    axes.set_xlabel(plain(across), fontsize=9, color=ink.text)
    axes.set_ylabel(plain(up), fontsize=9, color=ink.text)


def _axis(axis: Any, column: str) -> None:
    axis.set_major_locator(MaxNLocator(nbins=6))
    if parted(column)[1].startswith(SHARES):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def _threshold(axes: Axes, ink: Ink, at: float | None, upright: bool = False) -> None:
    if at is not None:
        (axes.axvline if upright else axes.axhline)(at, color=ink.text, linewidth=1, linestyle=(0, (1, 2)))


def _legend_columns(labels: Sequence[str]) -> int:
    """As many columns as are no wider than the picture: a legend that is wider squeezes the axes."""
    longest = max((len(plain(label)) for label in labels), default=0)
    return max(1, min(3, int(WIDTH / (0.4 + 0.06 * longest))))


def _legend_height(labels: Sequence[str]) -> float:
    return 0.19 * -(-len(labels) // _legend_columns(labels))


def _legend(axes: Axes, ink: Ink, entries: int, below: float) -> None:
    if entries > 1:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -below),
            ncols=_legend_columns(axes.get_legend_handles_labels()[1]),
            frameon=False,
            fontsize=8,
            labelcolor=ink.text,
            handlelength=1.6,
            columnspacing=1.2,
        )
