"""Figures of an audit: accuracy against leakage, and leakage over the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veracausa.report.figures import PAGE, Chart, Curve, bare, chart_svg, plain, svg_text
from veracausa.runs.record import RunRecord, mapping, number


@dataclass(frozen=True)
class AuditPoint:
    """One run: what it leaks, how accurate it is."""

    label: str
    leakage: float
    accuracy: float


def point_of(run: RunRecord, label: str) -> AuditPoint | None:
    """The run as a point; None where it has no accuracy or nobody attacked it."""
    accuracy = run.scores.get("accuracy")
    return None if accuracy is None or run.leakage is None else AuditPoint(label, run.leakage, accuracy)


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
