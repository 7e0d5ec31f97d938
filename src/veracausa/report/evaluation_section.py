"""What a page shows behind the scores: ROC, calibration, the confusion matrix, how common each class is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from veracausa.report.figures import Chart, Curve, chart_svg
from veracausa.runs.record import RunRecord, mapping, number

MOST_CELLS = 12
"""A confusion matrix of more classes is left out for the classes' own shares."""
FEWEST = 10
"""Rows that a point of the calibration needs."""
TICKS = (0, 25, 50, 75, 100)
_DIAGONAL = [(0.0, 0.0), (100.0, 1.0)]


def evaluation_section(run: RunRecord) -> dict[str, Any] | None:
    """What the template shows; None where the record has none of it, such as a run of an earlier version."""
    told = run.evaluated
    matrix = _matrix(told.get("confusion"))
    balance = {split: counts for split, counts in mapping(told.get("balance")).items() if _counts(counts)}
    count = len(matrix) or max((len(counts) for counts in balance.values()), default=0)
    names = _class_names(run, count)
    charts = [chart for chart in (_roc(told, names), _calibration(told, count), _followed(told)) if chart]
    if not (charts or matrix or balance):
        return None
    return {
        "split": str(told.get("split", "test")),
        "charts": [Markup(chart_svg(chart)) for chart in charts],
        "names": names,
        "matrix": _shaded(matrix) if 0 < len(matrix) <= MOST_CELLS else [],
        "classes": list(_classes(names, matrix, balance)),
        "splits": list(balance),
        "binary": count == 2,
        "fewest": FEWEST,
        "followed": _followed(told) is not None,
    }


def _class_names(run: RunRecord, count: int) -> list[str]:
    known = run.summary.get("class_names")
    if isinstance(known, list) and len(known) == count:
        return [str(name) for name in known]
    return [f"class {number}" for number in range(count)]


def _roc(told: Mapping[str, Any], names: Sequence[str]) -> Chart | None:
    curves = []
    for at, (label, points) in enumerate(mapping(told.get("roc")).items()):
        drawn = _points(points)
        if len(drawn) > 1:
            name = names[int(label)] if label.isdecimal() and int(label) < len(names) else label
            curves.append(Curve(name, drawn, series=at))
    if not curves:
        return None
    curves.append(Curve("chance", _DIAGONAL, series=5, dashed=True))
    return Chart("ROC curve", curves, percent=True, across="false alarms, %", ticks=TICKS, whole=True)


def _calibration(told: Mapping[str, Any], count: int) -> Chart | None:
    bins = told.get("calibration")
    # Three rows of which all are right say nothing of a chance: such a bin would be the figure's largest error.
    large = [mapping(b) for b in bins or () if (number(mapping(b).get("rows")) or 0) >= FEWEST]
    pairs = [(number(b.get("said")), number(b.get("right"))) for b in large]
    drawn = [(100 * said, right) for said, right in pairs if said is not None and right is not None]
    if not drawn:
        return None
    curves = [
        Curve("what was so", drawn, series=0),
        Curve("perfectly calibrated", _DIAGONAL, series=5, dashed=True),
    ]
    across = "chance the model gives, %" if count == 2 else "chance the model gives its class, %"
    return Chart("Calibration", curves, percent=True, across=across, ticks=TICKS, whole=True)


def _followed(told: Mapping[str, Any]) -> Chart | None:
    pairs = [(number(mapping(g).get("predicted")), number(mapping(g).get("true"))) for g in told.get("followed") or ()]
    drawn = [(said, true) for said, true in pairs if said is not None and true is not None]
    if len(drawn) < 2:
        return None
    ends = [(drawn[0][0], drawn[0][0]), (drawn[-1][0], drawn[-1][0])]
    curves = [Curve("true, on average", drawn, series=0), Curve("as predicted", ends, series=5, dashed=True)]
    return Chart("True values by prediction", curves, across="predicted")


def _points(points: Any) -> list[tuple[float, float]]:
    found = []
    for pair in points if isinstance(points, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            false, true = number(pair[0]), number(pair[1])
            if false is not None and true is not None:
                found.append((100 * false, true))
    return found


def _counts(counts: Any) -> bool:
    return isinstance(counts, list) and bool(counts) and all(isinstance(count, int) for count in counts)


def _matrix(rows: Any) -> list[list[int]]:
    square = isinstance(rows, list) and all(_counts(row) and len(row) == len(rows) for row in rows)
    return rows if square else []


def _shaded(matrix: Sequence[Sequence[int]]) -> list[list[dict[str, Any]]]:
    """Every count with its share of its row, which says how dark its cell is."""
    return [[{"count": count, "share": count / max(1, sum(row))} for count in row] for row in matrix]


def _classes(
    names: Sequence[str], matrix: Sequence[Sequence[int]], balance: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """Of every class: how many rows of each split are of it, and how many of its rows and of its guesses are right."""
    for label, name in enumerate(names):
        shares = [_percent(counts[label], sum(counts)) if label < len(counts) else "" for counts in balance.values()]
        found, right = "", ""
        if matrix:
            found = _percent(matrix[label][label], sum(matrix[label]))
            right = _percent(matrix[label][label], sum(row[label] for row in matrix))
        yield {"name": name, "shares": shares, "found": found, "right": right}


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
