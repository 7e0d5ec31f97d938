"""What a graph from sums says of its edges and its columns, and what speaks against it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.methods.moments.found import Model, SumsFound

ASSUMES: dict[Model, str] = {
    "linear": (
        "an effect is a weighted sum of its causes and normal noise, no cause is missing from the table, and there are "
        "no cycles; graphs that such sums can not tell apart share the edges without a direction"
    ),
    "lingam": (
        "an effect is a weighted sum of its causes and noise that is not normal, no cause is missing from the table, "
        "and there are no cycles; skew and tails of the noise tell directions"
    ),
    "additive": (
        "an effect is a sum of curves of its causes, and noise that does not depend on them; no cause is missing from "
        "the table, and there are no cycles"
    ),
}
"""What must be true for the graph to be right, by the model that was kept."""
BENT = 0.5
"""An effect whose contribution is less straight than this is called bent."""
LITTLE = 0.2
"""Causes that explain less than this share of a column are said to explain little."""
NAMED = 6
FEW = 200
"""Fewer rows than this are said to be few."""


def effects(
    found: SumsFound, names: Sequence[str], scales: Array | None = None, nominal: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Each edge with the size of its effect, strongest first.

    `scales` has each column's deviation in its own unit; None: nobody may know them all. Of a category there is no
    slope.
    """
    made = []
    for cause, effect in np.argwhere(found.adjacency).tolist():
        slope, bend = float(found.slopes[cause, effect]), float(found.bends[cause, effect])
        words = names[cause] in nominal or names[effect] in nominal or not np.isfinite(slope)
        units = None
        if scales is not None and not words and np.isfinite(scales[[cause, effect]]).all() and scales[cause] > 0:
            units = slope * float(scales[effect] / scales[cause])
        made.append(
            {
                "cause": names[cause],
                "effect": names[effect],
                "slope": None if words else slope,
                "slope_in_units": units,
                "share": float(found.strengths[cause, effect] ** 2),
                "straight": None if words else 1 - bend,
                "shape": _shape(slope, bend, words),
            }
        )
    return sorted(made, key=lambda row: -row["share"])


def _shape(slope: float, bend: float, words: bool) -> str:
    if words:
        return "categories"
    if 1 - bend < BENT:
        return "bends"
    return "rises" if slope > 0 else "falls"


def doubts(found: SumsFound, names: Sequence[str]) -> tuple[str, ...]:
    """Sentences on what makes the graph doubtful."""
    said = []
    caused = found.adjacency.any(axis=0)
    little: list[int] = np.flatnonzero(caused & (found.explained < LITTLE)).tolist()
    if little:
        shares = [f"{names[at]} ({max(0.0, found.explained[at]):.0%})" for at in little]
        said.append(
            f"causes explain less than {LITTLE:.0%} of {_listed(shares)}: most of what moves "
            f"{'it' if len(little) == 1 else 'them'} is not in the table, or is no sum of curves"
        )
    if found.model == "additive" and (blind := int(found.scores.get("without_powers", 0))):
        said.append(
            f"squares and cubes of {blind} of {len(names)} columns are not among the sums, because rows are few for "
            "them: skewed noise behind straight lines can not be told from curves, and edges can point the wrong way"
        )
    if found.joined:
        strongest = sorted(found.joined, key=lambda pair: -abs(pair[2]))
        pairs = [f"{names[i]} and {names[j]} ({value:+.2f})" for i, j, value in strongest]
        said.append(
            f"what is left of {_listed(pairs)} is correlated, and no edge explains it: a cause outside the table may "
            "join them"
        )
    return tuple(said)


def few_rows(rows: int) -> tuple[str, ...]:
    return (f"{rows} rows are few: expect edges to be missed",) if rows < FEW else ()


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return ", ".join(parts[:NAMED]) + more
