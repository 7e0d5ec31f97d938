"""Drawings that are no charts: galleries of reconstructed pictures, and found graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from veracausa.experiments.figures import Drawing, title_of
from veracausa.report.figures import Ink, plain

Gallery = Mapping[str, Any]
"""Arrays of one attack: `positions`, `truth`, `guess`, `blind`, `mse`, and `labels` where they are known."""
MOST = 10
OFTEN = 0.5
"""An edge is drawn if more of the fits than this found it: so never both directions."""


def gallery_drawing(title: str, kept: Mapping[str, Gallery]) -> Drawing:
    """Originals, below them what an attack made of each row's payloads, and last the best guess without any.

    Rows can be of different parties, each of which the attack read best behind that defense: every party's originals
    stand above its own rows.
    """
    rows: list[tuple[str, Any, str]] = []
    positions = _chosen(next(iter(kept.values())))
    for number, of_party in enumerate(_by_originals(kept)):
        first = next(iter(of_party.values()))
        rows.append(("original, another party" if number else "original", _row(first, "truth", positions), ""))
        for label, pictures in of_party.items():
            error = f"MSE {float(_at(pictures, 'mse', positions).mean()):.3f}"
            rows.append((label, _row(pictures, "guess", positions), error))
        rows.append(("no payload: best guess", _row(first, "blind", positions), ""))
    sheet, middles = _sheet([pictures for _, pictures, _ in rows])

    def draw(axes: Axes, ink: Ink) -> None:
        axes.imshow(sheet, interpolation="nearest", aspect="equal")
        title_of(axes, ink, title)
        axes.set_yticks(middles, [plain(label) for label, _, _ in rows])
        axes.set_xticks([])
        axes.tick_params(colors=ink.text, labelsize=8.5, length=0)
        axes.set_facecolor("none")
        for side in axes.spines.values():
            side.set_visible(False)
        for middle, (_, _, error) in zip(middles, rows, strict=True):
            axes.annotate(
                error,
                (sheet.shape[1], middle),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=ink.text,
                annotation_clip=False,
            )

    width = 4.4
    return Drawing(title, (width + 2.6, 0.5 + width * sheet.shape[0] / sheet.shape[1]), draw)


def _by_originals(kept: Mapping[str, Gallery]) -> list[dict[str, Gallery]]:
    """The rows of each party together; another seed's victims would be other people, and are left out."""
    groups: list[dict[str, Gallery]] = []
    positions = _chosen(next(iter(kept.values())))
    for label, pictures in kept.items():
        if not {*positions} <= {int(position) for position in pictures["positions"]}:
            continue
        truth = _at(pictures, "truth", positions)
        for group in groups:
            if np.array_equal(truth, _at(next(iter(group.values())), "truth", positions)):
                group[label] = pictures
                break
        else:
            groups.append({label: pictures})
    return groups


def _chosen(pictures: Gallery) -> list[int]:
    """One picture of every class, as far as there are; the first ones where classes are not known."""
    positions = [int(position) for position in pictures["positions"]]
    if "labels" not in pictures:
        return positions[:MOST]
    by_class: dict[int, int] = {}
    for position, label in zip(positions, pictures["labels"], strict=True):
        by_class.setdefault(int(label), position)
    return [by_class[label] for label in sorted(by_class)][:MOST]


def _at(pictures: Gallery, name: str, positions: Sequence[int]) -> Any:
    places = {int(position): place for place, position in enumerate(pictures["positions"])}
    return pictures[name][[places[position] for position in positions]]


def _row(pictures: Gallery, name: str, positions: Sequence[int]) -> Any:
    found = _at(pictures, name, positions).transpose(0, 2, 3, 1)
    return found if found.shape[-1] == 3 else np.repeat(found, 3, axis=-1)


def _sheet(rows: Sequence[Any]) -> tuple[Any, list[float]]:
    """All rows as one picture with see-through gaps, and the middle of each row."""
    count, height, width, _ = rows[0].shape
    gap = max(1, height // 10)
    sheet = np.zeros((len(rows) * (height + gap) - gap, count * (width + gap) - gap, 4), dtype=np.uint8)
    middles = []
    for number, pictures in enumerate(rows):
        top = number * (height + gap)
        middles.append(top + height / 2 - 0.5)
        for place, picture in enumerate(pictures):
            left = place * (width + gap)
            sheet[top : top + height, left : left + width, :3] = picture
            sheet[top : top + height, left : left + width, 3] = 255
    return sheet, middles


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
        title_of(axes, ink, title)
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
