"""Data that were given in Python, as columns to discover a graph in: pandas and polars frames, and arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.data.causal.coding import IN_PYTHON, Reading, attributes, coded_columns
from veracausa.data.frames import column_names, series_of
from veracausa.errors import InputError


def as_causal(X: Any, named: Collection[str] = ()) -> CausalData:
    """Values, names and nominal columns of causal data, a frame or an array; an array's columns are x0, x1, ...

    Words of a frame become categories. Names, dates and row numbers are left out, and the notes say so; if they are
    `named` they are refused. Data that were read before keep their notes to themselves.
    """
    columns = getattr(X, "columns", None)
    if isinstance(X, CausalData):
        data = replace(X, values=np.ascontiguousarray(X.values), notes=())
    elif columns is not None:
        data = _of_frame(X, columns, named)
    elif isinstance(X, Mapping):
        raise InputError("X: a mapping is no table; give one frame of all columns, and which party holds which")
    else:
        data = _of_array(X)
    if len(data.names) < 2:
        left = f" ({'; '.join(data.notes)})" if data.notes else ""
        few = "1 column is" if len(data.names) else "0 columns are"
        raise InputError(f"X: {few} too few for a graph{left}; give at least 2")
    return data


def _of_array(X: Any) -> CausalData:
    try:
        values = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("X: an array of numbers is needed; give words in a pandas or polars frame") from None
    if values.ndim != 2:
        raise InputError(f"X: shape {values.shape} is no table; give rows and columns")
    return CausalData(values, tuple(f"x{at}" for at in range(values.shape[1])))


def _of_frame(X: Any, columns: Any, named: Collection[str]) -> CausalData:
    import polars as pl

    names = column_names(columns, "X")
    ordinal: dict[str, tuple[str, ...]] = {}
    frame = pl.DataFrame([series_of(X[name], str(name), ordinal, "X") for name in columns])
    reading = Reading(ordinal=ordinal, remedies=IN_PYTHON)
    notes: list[str] = []
    found = attributes(frame.select([name for name in names if name not in named]), "X", reading, notes)
    kept = tuple(name for name in names if name in found or name in named)
    values, nominal = coded_columns(frame, kept, "X", reading, notes)
    return CausalData(values, kept, None, tuple(notes), nominal)
