"""How the values of a table's columns are spread over the training rows, for the party's own page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.data.vertical import Part

BINS = 12
COMMONEST = 5
"""So many categories are named, the others are added up."""


def distributions(rows: Part, preprocessing: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Column -> its spread, as plain JSON. Empty where the rows are no table, or come from a stream.

    A number has `low`, `high` and the counts of equal `bins` between them. A category has the `common` ones with their
    counts, and the count of `others`. Missing values count nowhere.
    """
    if preprocessing is None or rows.features is None or rows.features.dim() != 2:
        return {}
    features = rows.features.numpy()
    found: dict[str, dict[str, Any]] = {}
    at = 0
    for column in preprocessing["columns"]:
        if column["kind"] == "constant":
            continue
        numeric = column["kind"] == "numeric"
        width = (1 if numeric else len(column["values"]) + bool(column.get("other"))) + bool(column["missing"])
        own = features[:, at : at + width]
        at += width
        found[str(column["name"])] = _of_numbers(own, column) if numeric else _of_words(own, column)
    return found


def _of_numbers(own: Array, column: Mapping[str, Any]) -> dict[str, Any]:
    known = own[:, 0][own[:, 1] < 0.5] if column["missing"] else own[:, 0]
    values = known.astype(np.float64) * column["std"] + column["mean"]
    if not len(values):
        return {}
    counts, edges = np.histogram(values, bins=BINS)
    # Standardised in single precision: beside the whole range, more digits than these are noise.
    digits = 5 - math.ceil(math.log10(max(float(edges[-1] - edges[0]), 1e-30)))
    low, high = (round(float(edge), digits) + 0.0 for edge in (edges[0], edges[-1]))
    return {"bins": counts.tolist(), "low": low, "high": high}


def _of_words(own: Array, column: Mapping[str, Any]) -> dict[str, Any]:
    words = [str(value) for value in column["values"]]
    counts = (own > 0.5).sum(0).tolist()
    by_count = sorted(zip(words, counts[: len(words)], strict=True), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(count for _, count in by_count[COMMONEST:])
    rest += counts[len(words)] if column.get("other") else 0
    return {"common": [list(pair) for pair in by_count[:COMMONEST]], "others": int(rest)}
