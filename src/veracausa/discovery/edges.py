"""The edges of a learned graph as rows of a table, with whose columns they join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("cause", "effect", "strength", "confidence", "cause_party", "effect_party")


def edge_rows(
    adjacency: NDArray[np.bool_],
    strengths: NDArray[np.float64],
    confidence: NDArray[np.float64] | None,
    names: Sequence[str],
    parties: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """The edges, strongest first, each with the values of `COLUMNS`."""
    owner = {column: party for party, columns in parties.items() for column in columns}
    rows = [
        {
            "cause": names[cause],
            "effect": names[effect],
            "strength": float(strengths[cause, effect]),
            "confidence": None if confidence is None else float(confidence[cause, effect]),
            "cause_party": owner.get(names[cause], ""),
            "effect_party": owner.get(names[effect], ""),
        }
        for cause, effect in np.argwhere(adjacency)
    ]
    return sorted(rows, key=lambda row: (-row["strength"], row["cause"], row["effect"]))


def revealed(
    rows: Sequence[Mapping[str, Any]], parties: Sequence[str], reveal: Literal["all", "own"]
) -> dict[str, list[dict[str, Any]]]:
    """What each party is told: every edge, or those that touch its own attributes."""
    return {
        party: [dict(row) for row in rows if reveal == "all" or party in (row["cause_party"], row["effect_party"])]
        for party in parties
    }
