"""The edges of a graph as a table, with what the method tells of each: how sure its direction is, how large its effect.

A method that does not tell something leaves its cells empty. Reading needs no torch.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.atomic import as_written
from veracausa.discovery.export import EFFECT
from veracausa.discovery.graphs import COLUMNS, edge_rows

EdgeRow = dict[str, Any]

EDGE_FIELDS = (
    *COLUMNS,
    *("directed", "direction_confidence", "margin"),
    *("slope", "slope_in_units", "share", "shape"),
)
"""The columns of `edges.csv`."""
NUMBERS = ("strength", "confidence", "direction_confidence", "margin", "slope", "slope_in_units", "share")
"""Those of them that are numbers, or empty."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an `edges.csv`, numbers as numbers. A file of an earlier version has fewer columns."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: (float(text) if text else None) if name in NUMBERS else as_written(text) for name, text in row.items()}
        for row in rows
    ]


def found_edges(method: Any, names: Sequence[str], parties: Mapping[str, Sequence[str]]) -> list[EdgeRow]:
    """The edges, strongest first, each with the values of `EDGE_FIELDS`; None where the method does not tell."""
    confidence, skeleton = getattr(method, "confidence_", None), getattr(method, "skeleton_confidence_", None)
    undirected = getattr(method, "undirected_", None)
    margins = getattr(getattr(method, "found_", None), "margins", None)
    effects = {(effect["cause"], effect["effect"]): effect for effect in getattr(method, "effects_", ())}
    at = {name: position for position, name in enumerate(names)}
    rows = edge_rows(method.adjacency_matrix_, method.strengths_, confidence, names, parties)
    for row in rows:
        ends = at[row["cause"]], at[row["effect"]]
        open_end = undirected is not None and bool(undirected[ends])
        row["directed"] = "no" if open_end else "yes"
        margin = math.nan if margins is None or open_end else float(margins[ends])
        row["margin"] = None if math.isnan(margin) else margin
        row["direction_confidence"] = None
        if confidence is not None and skeleton is not None:
            row["direction_confidence"] = float(confidence[ends] / skeleton[ends]) if skeleton[ends] > 0 else None
            # An edge without a direction is as sure as that there is one at all.
            row["confidence"] = float(skeleton[ends]) if open_end else row["confidence"]
        effect = effects.get((row["cause"], row["effect"]), {})
        row |= {name: finite(effect.get(name)) for name in EFFECT}
    return rows


def finite(value: Any) -> Any:
    """The value with numbers that JSON and a table can hold; what is not finite is None."""
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
