"""Pima diabetes: eight measurements of 768 women and whether diabetes came; no true graph is known."""

from __future__ import annotations

from typing import Literal

import numpy as np

from veracausa.data.causal import CausalData, CausalOptions, causal_data, held
from veracausa.data.causal.columns import without_missing
from veracausa.data.table_files import read_table

_ZERO_IS_MISSING = ("Glucose", "BloodPressure", "SkinThickness", "Insulin", "BMI")


class PimaOptions(CausalOptions):
    missing: Literal["median", "drop", "keep"] = "median"
    """What becomes of missing values: the column's median, the row is dropped, or nan."""


@causal_data.register("pima", PimaOptions)
def pima(options: PimaOptions) -> CausalData:
    frame = read_table(held("tabular/pima_diabetes.csv"))
    names = tuple(frame.columns)
    values = frame.to_numpy().astype(np.float64)
    notes: tuple[str, ...] = ("pima: Outcome is binary",)
    for at, name in enumerate(names):
        if name in _ZERO_IS_MISSING:
            absent = values[:, at] == 0
            values[absent, at] = np.nan
            notes += (f"{name}: a zero can not be measured, {int(absent.sum())} taken as missing",)
    if options.missing != "keep":
        values, said = without_missing(values, names, options.missing)
        notes += said
    return CausalData(values, names, None, notes)
