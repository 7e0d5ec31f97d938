"""The page of a sweep: the figure of accuracy against leakage, the setting to take, and every trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veracausa.experiments.frontier.pareto import FrontierPoint
from veracausa.experiments.frontier.recommend import SCORES
from veracausa.experiments.frontier.record import EXPLAINED, Frontier, cells_of, defense_name, matched_title, titles
from veracausa.experiments.frontier.sweep import UNDEFENDED
from veracausa.report.figures import PAGE, bare, plain, svg_text
from veracausa.report.page import format_seconds, render
from veracausa.report.page import write_page as write_whole_page

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")


def write_page(frontier: Frontier, out: Path) -> Path:
    """Write `frontier.html`, one self-contained page."""
    at, what = matched_title(frontier.wish)
    job = frontier.sweep.job
    runs: dict[tuple[str, str], list[str]] = {}
    for tried, trial in zip(frontier.sweep.tried, frontier.sweep.trials, strict=True):
        runs.setdefault((trial.defense, trial.setting), []).append(f"trials/{tried.run.name}/report.html")
    page = render(
        "frontier.html.j2",
        what=f"{job.model.name} on {job.data.name}, cut {', '.join(map(str, frontier.sweep.cuts))}",
        recommendation=frontier.recommendation,
        score=SCORES[frontier.sweep.score],
        snippet=frontier.snippet,
        warnings=frontier.warnings,
        figure=Markup(figure_svg(frontier)),
        titles=titles(frontier)[:-1],
        rows=[
            (cells_of(point, frontier), runs[(point.defense, point.setting)], point == frontier.recommendation.point)
            for point in frontier.points
        ],
        matched=[(defense_name(name), found.written()) for name, found in frontier.matched.items()],
        matched_at=at,
        matched_what=what,
        passed=frontier.passed,
        tried=frontier.tried_equally,
        explained=EXPLAINED,
        took=format_seconds(frontier.sweep.seconds),
    )
    return write_whole_page(out / "frontier.html", page)


def figure_svg(frontier: Frontier) -> str:
    """Every point by its defense, the front as a line, the undefended job and what needs no payload marked."""
    figure = Figure(figsize=(7.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    bare(axes, PAGE)
    by_defense: dict[str, list[FrontierPoint]] = {}
    for point in frontier.points:
        by_defense.setdefault(point.defense, []).append(point)
    front = frontier.front
    axes.plot(
        [point.leakage for point in front],
        [point.accuracy for point in front],
        color=PAGE.text,
        linewidth=1.1,
        linestyle=(0, (4, 2)),
        label="front",
        zorder=1,
    )
    defended = [name for name in by_defense if name != UNDEFENDED]
    for number, name in enumerate(defended):
        _draw(axes, by_defense[name], name, PAGE.series[number % len(PAGE.series)], MARKERS[number % len(MARKERS)])
    _draw(axes, by_defense.get(UNDEFENDED, []), "undefended", PAGE.text, "*", 12)
    blind = frontier.sweep.blind
    axes.plot([0], [blind], "x", color=PAGE.text, markersize=7, label="nothing sent: a blind guess")
    if (chosen := frontier.recommendation.point) is not None:
        axes.plot(
            [chosen.leakage],
            [chosen.accuracy],
            "o",
            markersize=17,
            markerfacecolor="none",
            markeredgecolor=PAGE.text,
            label="recommended",
        )
    _scale(axes, [point.accuracy for point in frontier.points] + [blind], frontier)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8.5, labelcolor=PAGE.text)
    return svg_text(figure, "Accuracy against leakage")


def _draw(axes: Axes, points: list[FrontierPoint], label: str, colour: str, marker: str, size: float = 7) -> None:
    if not points:
        return
    axes.errorbar(
        [point.leakage for point in points],
        [point.accuracy for point in points],
        xerr=[point.leakage_spread for point in points] if any(point.leakage_spread for point in points) else None,
        yerr=[point.accuracy_spread for point in points] if any(point.accuracy_spread for point in points) else None,
        fmt=marker,
        markersize=size,
        color=colour,
        elinewidth=1,
        label=plain(label),
    )


def _scale(axes: Axes, accuracies: list[float], frontier: Frontier) -> None:
    widest = max((point.leakage + point.leakage_spread for point in frontier.points), default=1.0)
    axes.set_xlim(-0.04, min(1.04, max(0.2, 1.08 * widest)))
    low, high = min(accuracies), max(accuracies)
    margin = max(0.02, 0.06 * (high - low))
    axes.set_ylim(low - margin, high + margin)
    wish = frontier.wish
    style: Any = {"color": PAGE.text, "linewidth": 0.9, "linestyle": (0, (6, 2, 1, 2)), "label": "wanted"}
    if wish.accuracy is not None:
        axes.axhline(wish.accuracy, **style)
    elif wish.leakage is not None:
        axes.axvline(wish.leakage, **style)
    axes.axvline(0, color=PAGE.text, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.grid(color=PAGE.rule, linewidth=0.6)
    axes.set_xlabel("leakage of the strongest attack (0 %: no more than a blind guess)", fontsize=9, color=PAGE.text)
    score = frontier.sweep.score
    axes.set_ylabel(f"test {SCORES[score]}", fontsize=9, color=PAGE.text)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
        if axis is axes.xaxis or score != "auc":
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
