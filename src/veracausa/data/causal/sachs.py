"""Sachs et al. 2005: eleven proteins of single cells, with the consensus graph of 17 or of 20 edges."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from veracausa.data.causal import CausalData, CausalOptions, causal_data, edges_between, held
from veracausa.data.table_files import read_table
from veracausa.errors import InputError

_FILES = {
    "observational": "observational_853.csv",
    "pooled": "pooled_7466.csv",
    "interventional": "interventional_5846.csv",
}
_NOT_PROTEINS = ("regime", "target")


class SachsOptions(CausalOptions):
    cells: Literal["observational", "pooled", "interventional"] = "observational"
    """853 untouched cells; 7466 of all conditions; 5846 with interventions, in logarithms already."""
    graph: Literal[17, 20] = 17
    log: bool = False
    """Natural logarithms of the first two files' values."""
    rows: int | None = Field(None, ge=2)


@causal_data.register("sachs", SachsOptions)
def sachs(options: SachsOptions) -> CausalData:
    path, graph = held(f"sachs/{_FILES[options.cells]}"), held(f"sachs/consensus_{options.graph}.csv")
    frame = read_table(path)
    names = tuple(name for name in frame.columns if name not in _NOT_PROTEINS)
    values = frame.select(names).to_numpy().astype(np.float64)
    notes = [f"sachs: {options.cells} cells, consensus graph of {options.graph} edges"]
    if options.cells == "interventional":
        notes.append("rows under interventions are taken as if observed; values are natural logarithms")
        if options.log:
            raise InputError("sachs: log = true: the interventional file is in logarithms already; leave it out")
    elif options.log:
        values = np.log(values)
        notes.append("values are natural logarithms")
    truth = edges_between(read_table(graph).select("source", "target").rows(), names, str(graph))
    return CausalData(values, names, truth, tuple(notes)).head(options.rows)
