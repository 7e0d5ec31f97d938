"""Pictures as the paper shows them: originals, and below them what an attack makes of each defense's payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from veracausa.attacks import attack_title
from veracausa.experiments.cells import Cells
from veracausa.experiments.experiment import Experiment
from veracausa.experiments.figures import Drawing
from veracausa.experiments.plan import GridPoint
from veracausa.report.figures import Ink, plain

MOST = 10


def galleries(experiment: Experiment, points: Sequence[GridPoint], cells: Cells) -> list[Drawing]:
    """A gallery for each panel and each attack that kept pictures, of the first seed."""
    found = []
    for panel in dict.fromkeys(point.panel for point in points):
        for attack in experiment.attacks_used:
            kept: dict[str, Mapping[str, Any]] = {}
            for point in points:
                if point.panel == panel and point.seed == 0 and attack in point.readings:
                    label = experiment.defenses[point.row].label
                    if point.at is not None and experiment.axis is not None:
                        label = f"{label}, {experiment.axis.label} {point.at:g}"
                    if (pictures := _load(cells, point, attack)) is not None:
                        kept[label] = pictures
            if kept:
                title = f"{attack_title(attack)}, {experiment.label_of(panel)}"
                found.append(_drawing(title, kept))
    return found


def _load(cells: Cells, point: GridPoint, attack: str) -> Mapping[str, Any] | None:
    path = cells.pictures(point.readings[attack])
    if not path.is_file():
        return None
    from safetensors.numpy import load_file

    found: Mapping[str, Any] = load_file(path)
    return found if found["truth"].shape[1] in (1, 3) else None


def _drawing(title: str, kept: Mapping[str, Mapping[str, Any]]) -> Drawing:
    first = next(iter(kept.values()))
    positions = _chosen(first)
    rows = [("original", _row(first, "truth", positions), "")]
    for label, pictures in kept.items():
        there = {int(position) for position in pictures["positions"]}
        shown = [position for position in positions if position in there]
        if len(shown) == len(positions):  # another seed's victims would be other people
            error = f"MSE {float(_at(pictures, 'mse', positions).mean()):.3f}"
            rows.append((label, _row(pictures, "guess", positions), error))
    rows.append(("no payload: best guess", _row(first, "blind", positions), ""))
    sheet, middles = _sheet([pictures for _, pictures, _ in rows])

    def draw(axes: Axes, ink: Ink) -> None:
        axes.imshow(sheet, interpolation="nearest", aspect="equal")
        axes.set_title(plain(title), loc="left", fontsize=10, color=ink.text, fontweight="bold")
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


def _chosen(pictures: Mapping[str, Any]) -> list[int]:
    """One picture of every class, as far as there are; the first ones where classes are not known."""
    positions = [int(position) for position in pictures["positions"]]
    if "labels" not in pictures:
        return positions[:MOST]
    by_class: dict[int, int] = {}
    for position, label in zip(positions, pictures["labels"], strict=True):
        by_class.setdefault(int(label), position)
    return [by_class[label] for label in sorted(by_class)][:MOST]


def _at(pictures: Mapping[str, Any], name: str, positions: Sequence[int]) -> Any:
    places = {int(position): place for place, position in enumerate(pictures["positions"])}
    return pictures[name][[places[position] for position in positions]]


def _row(pictures: Mapping[str, Any], name: str, positions: Sequence[int]) -> Any:
    import numpy as np

    found = _at(pictures, name, positions).transpose(0, 2, 3, 1)
    return found if found.shape[-1] == 3 else np.repeat(found, 3, axis=-1)


def _sheet(rows: Sequence[Any]) -> tuple[Any, list[float]]:
    """All rows as one picture with see-through gaps, and the middle of each row."""
    import numpy as np

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
