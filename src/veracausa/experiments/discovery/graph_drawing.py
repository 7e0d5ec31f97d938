"""A found graph, drawn: columns on a circle, an edge as wide as the share of fits that found it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from veracausa.experiments.figures import Drawing
from veracausa.report.figures import Ink, plain

OFTEN = 0.5
"""An edge is drawn if more of the fits than this found it: so never both directions."""


def often_found(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """The edges and the share of fits that found each, for those in more than half of them."""
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        for cause, effect in run["edges"]:
            counts[cause, effect] = counts.get((cause, effect), 0) + 1
    return {edge: count / len(runs) for edge, count in counts.items() if count > OFTEN * len(runs)}


def graph_drawing(title: str, names: Sequence[str], edges: Mapping[tuple[str, str], float], centre: str) -> Drawing:
    """The graph with the column that matters in the middle; edges at it are coloured."""
    around = [name for name in names if name != centre]
    turns = 2 * np.pi * np.arange(len(around)) / max(1, len(around)) + np.pi / 2
    places = {name: (float(np.cos(turn)), float(np.sin(turn))) for name, turn in zip(around, turns, strict=True)}
    places[centre] = (0.0, 0.0)

    def draw(axes: Axes, ink: Ink) -> None:
        axes.set_axis_off()
        axes.set_title(plain(title), loc="left", fontsize=10, color=ink.text, fontweight="bold")
        for name, place in places.items():
            framed = {"boxstyle": "round,pad=0.3", "facecolor": "none", "edgecolor": "none"}
            weight = "bold" if name == centre else "normal"
            axes.text(
                *place, plain(name), ha="center", va="center", fontsize=8, color=ink.text, weight=weight, bbox=framed
            )
        for (cause, effect), share in edges.items():
            matters = centre in (cause, effect)
            arrow = {
                "arrowstyle": "-|>",
                "color": ink.series[0] if matters else ink.rule,
                "linewidth": 0.4 + 1.6 * share,
                "shrinkA": 20,
                "shrinkB": 20,
                "connectionstyle": f"arc3,rad={0.06 if matters else 0.25}",  # around the middle
                "zorder": 2 if matters else 1,
            }
            axes.annotate("", places[effect], places[cause], arrowprops=arrow)
        axes.set_xlim(-1.35, 1.35)
        axes.set_ylim(-1.15, 1.15)

    return Drawing(title, (6.2, 5.0), draw)
