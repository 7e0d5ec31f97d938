"""Rows of a table as an attack read them, beside the originals, in the columns' own values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

SHOWN = 6
_WIDEST = 40
"""Characters of a value: free text must not fill a page."""


def example_rows(
    preprocessing: Mapping[str, Any] | None, positions: Tensor, truth: Tensor, guess: Tensor, errors: Tensor
) -> dict[str, Any] | None:
    """A few training victims, from the one read best to the one read worst: columns, originals, what was read.

    `errors` has one a row. None where nobody knows what the numbers of a row stand for.
    """
    if not preprocessing or not len(truth):
        return None
    order = errors.argsort().tolist()
    count = min(SHOWN, len(order))
    chosen = [order[round(place * (len(order) - 1) / max(1, count - 1))] for place in range(count)]
    rows = []
    for row in dict.fromkeys(chosen):
        original, read = (values_of(preprocessing, numbers[row].tolist()) for numbers in (truth, guess))
        rows.append({"position": int(positions[row]), "original": original, "read": read})
    return {"columns": [column["name"] for column in preprocessing["columns"]], "rows": rows}


def values_of(preprocessing: Mapping[str, Any], numbers: list[float]) -> list[str]:
    """One row's numbers as its columns' values: a number in its own unit, the likeliest category, or `missing`."""
    values, at = [], 0
    for column in preprocessing["columns"]:
        if column["kind"] == "numeric":
            spread = float(column.get("std", 1))
            own = float(column.get("mean", 0)) + spread * numbers[at]
            own = 0.0 if abs(own) < 1e-5 * spread else own  # a zero that was standardised comes back as 6e-08
            gone = bool(column["missing"]) and numbers[at + 1] > 0.5
            values.append("missing" if gone else f"{own:.4g}")
            at += 1 + bool(column["missing"])
            continue
        names = [*map(str, column["values"]), *(["other"] if column.get("other") else [])]
        names += ["missing"] if column["missing"] else []
        likely = max(range(len(names)), key=lambda place: numbers[at + place]) if names else None
        # A value never seen in training is all zeros.
        unseen = likely is None or not any(numbers[at : at + len(names)])
        values.append("not seen in training" if unseen or likely is None else names[likely][:_WIDEST])
        at += len(names)
    return values
