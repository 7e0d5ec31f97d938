"""The page of an audit of a discovery: who learns what, the table, a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from veracausa.attacks import column_attacks
from veracausa.audit.discovery_record import explained, figures, rows
from veracausa.audit.sums_scores import ALONE
from veracausa.audit.sums_verdict import sums_verdict
from veracausa.report.figures import PAGE, bare, plain, svg_text
from veracausa.report.page import NextStep, PageOpening, render, write_page


def write_audit_page(out: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html`, and return its path."""
    environment = json.loads((out / "environment.json").read_text(encoding="utf-8"))
    page = render(
        "discovery_audit.html.j2",
        summary=summary,
        opening=_opening(summary),
        rows=rows(summary),
        figures=figures(summary),
        drawing=Markup(drawing(summary)),
        explained=explained(summary),
        environment=environment,
        config=(out / "config.toml").read_text(encoding="utf-8"),
        name=out.name,
    )
    return write_page(out / "report.html", page)


def _opening(summary: Mapping[str, Any]) -> PageOpening:
    """The verdict in plain words where there are such, and the figures behind it."""
    step = NextStep(
        "Run the discovery again with noise on what is opened: it tells less, and the graph gets worse. RUN is the "
        "discovery's folder.",
        "veracausa discover RUN/config.toml --set epsilon=4 --out NOISY",
    )
    headline = str(summary["headline"])
    verdict = sums_verdict(summary["cases"]) if summary.get("opened") == "sums" else ""
    return PageOpening(verdict or headline, [headline] if verdict else [], [step])


def drawing(summary: Mapping[str, Any]) -> str:
    """A line of dots a case: what the attacks reach, and where somebody stands who opened nothing."""
    cases, on_sums = summary["cases"], summary.get("opened") == "sums"
    places = {name: column_attacks.get(name).drawn for name in column_attacks.names()}
    drawn = sorted((name for name, place in places.items() if place), key=lambda name: places[name])
    found = [_by_name(case) for case in cases]
    names = [name for name in drawn if any(each.get(name) for each in found)][: len(PAGE.series)]
    figure = Figure(figsize=(7.4, 1.3 + 0.46 * len(cases)), layout="constrained")
    axes = figure.add_subplot()
    bare(axes, PAGE)
    for number, case in enumerate(cases):
        axes.axhline(number, color=PAGE.rule, linewidth=0.8, zorder=0)
        level = case["blind"][ALONE if on_sums else "best own attribute"].get("mean", 0.0)
        axes.plot([level, level], [number - 0.3, number + 0.3], color=PAGE.text, linewidth=1.6)
    for at, name in enumerate(names):
        points = [(max(0.0, each[name]["mean"]), row) for row, each in enumerate(found) if each.get(name)]
        shift = 0.09 * (at - (len(names) - 1) / 2)
        axes.plot(
            [x for x, _ in points],
            [row + shift for _, row in points],
            linestyle="",
            marker="o",
            markersize=5.5,
            color=PAGE.series[at],
            label=plain(name),
        )
    axes.set_yticks(range(len(cases)), [plain(case["name"]) for case in cases])
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    words = "mean |correlation| with the others' columns; upright line: best own attribute"
    if on_sums:
        words = "mean R² of a partner's rows; upright line: own columns and rows of other people"
    axes.set_xlabel(words, fontsize=9)
    axes.xaxis.label.set_color(PAGE.text)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8.5, labelcolor=PAGE.text)
    return svg_text(figure, "What attacks reach in every case")


def _by_name(case: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a case by attack; of several situations the one in which most was read."""
    found: dict[str, Any] = {}
    for label, entry in case["attacks"].items():
        if entry and "mean" in entry:
            name = entry.get("attack", label)
            if name not in found or entry["mean"] > found[name]["mean"]:
                found[name] = entry
    return found
