"""What a sweep leaves in its folder: `frontier.csv`, `.parquet`, `.md` and `.html`, and the same for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veracausa.atomic import atomic_write
from veracausa.experiments.advice import SCORES, Constraint, Frontier, Recommendation, score_text
from veracausa.experiments.frontier import FrontierPoint
from veracausa.experiments.table import as_csv, as_parquet, markdown_table
from veracausa.experiments.trial import ATTACK_SCORES, TASK_SCORES, UNDEFENDED
from veracausa.report.figures import PAGE, bare, plain, svg_text
from veracausa.report.page import NextStep, PageOpening, format_seconds, render
from veracausa.report.page import write_page as write_whole_page

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
EXPLAINED = (
    "Leakage is the most that the strongest of the attacks tried reads of training rows, of any party attacked, at any "
    "snapshot of the training attacked: 0 % is no more than a guess without the payload, 100 % a perfect copy. A low "
    "figure says that these attacks failed, not that others must."
)


def frontier_rows(frontier: Frontier) -> list[dict[str, Any]]:
    """A row a trial, as the CSV and Parquet files hold it."""
    several = len(frontier.sweep.cuts) > 1
    front = {(point.defense, point.setting) for point in frontier.front}
    rows = []
    for tried in frontier.sweep.tried:
        trial = tried.trial(several)
        rows.append(
            {
                "defense": trial.defense,
                "setting": trial.setting,
                "cut": tried.setting.cut,
                "seed": trial.seed,
                "accuracy": tried.accuracy,
                **{name: tried.task.get(name) for name in TASK_SCORES if name != "accuracy"},
                "leakage": trial.leakage[trial.strongest],
                "strongest": trial.strongest,
                "coverage": tried.coverage,
                "party": tried.party,
                "when": tried.at,
                "leakage_last_model": tried.end_leakage,
                **{f"leakage_{name}": trial.leakage.get(name) for name in ("inverse", "averaging")},
                **{name: tried.scores.get(name) for name in ATTACK_SCORES},
                "front": (trial.defense, trial.setting) in front,
                "seconds": tried.seconds,
                "run": f"trials/{tried.run.name}",
            }
        )
    return rows


def write_frontier(frontier: Frontier, out: Path) -> Path:
    """Write tables and page into the folder, and return the page's path."""
    rows = frontier_rows(frontier)
    atomic_write(out / "frontier.csv", as_csv(rows))
    atomic_write(out / "frontier.parquet", as_parquet(rows))
    atomic_write(out / "frontier.md", markdown(frontier).encode())
    return write_page(frontier, out)


def as_json(frontier: Frontier) -> dict[str, Any]:
    """What a program may want to know."""
    chosen = frontier.recommendation.point
    return {
        "trials": frontier_rows(frontier),
        "score": frontier.sweep.score,
        "wish": {frontier.sweep.score: frontier.constraint.accuracy, "leakage": frontier.constraint.leakage},
        "matched": {
            name: {"value": found.value, "bound": found.bound, "spread": found.spread}
            for name, found in frontier.matched.items()
        },
        "recommendation": {
            "sentence": f"{frontier.recommendation.sentence} {frontier.recommendation.why}",
            "defense": None if chosen is None else frontier.setting_of(chosen).options.model_dump(mode="json"),
            "cut": None if chosen is None else frontier.setting_of(chosen).cut,
            "toml": frontier.snippet,
        },
        "passed": {", ".join(which): why for why, which in frontier.skipped.items()},
        "warnings": frontier.warnings,
        "complete": frontier.sweep.complete,
        "seconds": frontier.sweep.seconds,
    }


def cells_of(point: FrontierPoint, frontier: Frontier) -> list[str]:
    """A point under `TITLES`."""
    name = defense_name(point.defense)
    accuracy = _score(point, frontier.sweep.score)
    leaked = _percent(point.leakage, point.leakage_spread)
    return [name, point.setting, accuracy, leaked, point.attack, "front" if point in frontier.front else ""]


def titles(frontier: Frontier) -> tuple[str, ...]:
    """Of the table of points."""
    return ("defense", "setting", SCORES[frontier.sweep.score], "leakage", "strongest attack", "note")


def matched_title(constraint: Constraint) -> tuple[str, str]:
    """What the comparison holds equal, and what it compares."""
    if constraint.accuracy is not None:
        return f"at {SCORES[constraint.score]} {score_text(constraint.accuracy, constraint.score)}", "leakage, %"
    return f"at leakage {100 * (constraint.leakage or 0):.1f} %", f"{SCORES[constraint.score]}, in hundredths"


def markdown(frontier: Frontier) -> str:
    """The whole result as a page of Markdown."""
    at, what = matched_title(frontier.constraint)
    advice = frontier.recommendation
    lines = ["# Accuracy against leakage", "", f"{advice.sentence} {advice.why}", ""]
    if frontier.snippet:
        lines += ["```toml", frontier.snippet.rstrip(), "```", ""]
    lines += [f"- {warning}" for warning in frontier.warnings]
    lines += ["", *markdown_table(titles(frontier), [cells_of(point, frontier) for point in frontier.points])]
    lines += ["", f"Every defense {at}, straight between measured points of its own front, never beyond them:", ""]
    matched = [[defense_name(name), found.describe()] for name, found in frontier.matched.items()]
    lines += markdown_table(("defense", what), matched)
    if frontier.skipped:
        lines += ["", "Not tried:", ""]
        lines += [f"- {', '.join(which)}: {why}" for why, which in frontier.skipped.items()]
    lines += ["", f"{frontier.tried_equally.capitalize()}. {EXPLAINED}", ""]
    return "\n".join(lines)


def defense_name(defense: str) -> str:
    """As a table shows it."""
    return "undefended" if defense == UNDEFENDED else defense


def _score(point: FrontierPoint, score: str) -> str:
    if score != "auc":
        return _percent(point.accuracy, point.accuracy_spread)
    return f"{point.accuracy:.3f} ± {point.accuracy_spread:.3f}" if point.accuracy_spread else f"{point.accuracy:.3f}"


def _percent(value: float, spread: float) -> str:
    return f"{100 * value:.1f} ± {100 * spread:.1f} %" if spread else f"{100 * value:.1f} %"


def write_page(frontier: Frontier, out: Path) -> Path:
    """Write `frontier.html`, one self-contained page."""
    at, what = matched_title(frontier.constraint)
    job, advice = frontier.sweep.job, frontier.recommendation
    runs: dict[tuple[str, str], list[str]] = {}
    for tried, trial in zip(frontier.sweep.tried, frontier.sweep.trials, strict=True):
        runs.setdefault((trial.defense, trial.setting), []).append(f"trials/{tried.run.name}/report.html")
    page = render(
        "frontier.html.j2",
        what=f"{job.model.name} on {job.data.name}, cut {', '.join(map(str, frontier.sweep.cuts))}",
        opening=_opening(advice),
        score=SCORES[frontier.sweep.score],
        snippet=frontier.snippet,
        warnings=frontier.warnings,
        figure=Markup(figure_svg(frontier)),
        titles=titles(frontier)[:-1],
        rows=[
            (cells_of(point, frontier), runs[(point.defense, point.setting)], point == frontier.recommendation.point)
            for point in frontier.points
        ],
        matched=[(defense_name(name), found.describe()) for name, found in frontier.matched.items()],
        matched_at=at,
        matched_what=what,
        skipped=frontier.skipped,
        tried=frontier.tried_equally,
        explained=EXPLAINED,
        took=format_seconds(frontier.sweep.seconds),
    )
    return write_whole_page(out / "frontier.html", page)


def _opening(advice: Recommendation) -> PageOpening:
    """What to take, and what to do with it."""
    if advice.point is not None:
        steps = [
            NextStep("Put the lines below into your job, and audit it at full strength.", "veracausa audit job.toml")
        ]
    else:
        steps = [NextStep("Give it more time, or ask for less.", "veracausa frontier job.toml --resume --budget 2h …")]
    return PageOpening(advice.sentence, [advice.why] if advice.why else [], steps)


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
    constraint = frontier.constraint
    style: Any = {"color": PAGE.text, "linewidth": 0.9, "linestyle": (0, (6, 2, 1, 2)), "label": "wanted"}
    if constraint.accuracy is not None:
        axes.axhline(constraint.accuracy, **style)
    elif constraint.leakage is not None:
        axes.axvline(constraint.leakage, **style)
    axes.axvline(0, color=PAGE.text, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.grid(color=PAGE.rule, linewidth=0.6)
    axes.set_xlabel("leakage of the strongest attack (0 %: no more than a blind guess)", fontsize=9, color=PAGE.text)
    score = frontier.sweep.score
    axes.set_ylabel(f"test {SCORES[score]}", fontsize=9, color=PAGE.text)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
        if axis is axes.xaxis or score != "auc":
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
