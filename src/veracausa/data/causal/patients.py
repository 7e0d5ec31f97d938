"""A small made-up table of patients, to try a discovery on: six columns whose causes are known.

Nobody was measured: every number is drawn, by the formulas below. Two relations are straight lines, the others are
curved, and causes explain 80 to 95 % of the variance of what they cause.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from veracausa.arrays import Array
from veracausa.atomic import atomic_write
from veracausa.data.causal import CausalData, CausalOptions, causal_data, edges_between
from veracausa.errors import InputError
from veracausa.seeding import derive

ROWS = 320
COLUMNS = {"age": 1, "bmi": 1, "dose": 1, "crp": 2, "hba1c": 2, "ldl": 1}
"""Columns, and to how many decimals they are written: years, kg/m², mg, mg/l, %, mg/dl."""
EDGES = (
    ("age", "bmi"),
    ("age", "hba1c"),
    ("bmi", "dose"),
    ("bmi", "hba1c"),
    ("bmi", "crp"),
    ("dose", "ldl"),
    ("hba1c", "ldl"),
)
TABLE, TRUTH = "patients.csv", "patients_edges.csv"


class PatientsOptions(CausalOptions):
    rows: int = Field(ROWS, ge=2)


@causal_data.register("patients", PatientsOptions)
def patients(options: PatientsOptions) -> CausalData:
    """Rows drawn anew by the seed; seed 0 is the table that `veracausa discover --example` writes."""
    rng = np.random.default_rng(derive(options.seed, "patients"))
    values, names = draw(options.rows, rng), tuple(COLUMNS)
    note = f"patients: {options.rows} made-up rows, seed {options.seed}; nobody was measured"
    return CausalData(values, names, edges_between(EDGES, names, "patients"), (note,))


def draw(rows: int, rng: np.random.Generator) -> Array:
    """(rows, 6)."""

    def noise(deviation: float) -> Array:
        return rng.normal(0, deviation, rows)

    age = np.clip(rng.normal(52, 14, rows), 20, 88)
    a = (age - 52) / 14
    bmi = 25.5 + 3.2 * np.cos(1.6 * (a - 0.2)) + noise(0.9)
    b = (bmi - 26.5) / 2.4
    dose = 40 + 22 * np.tanh(1.6 * b) + noise(6)
    crp = 4 + 2.2 * np.logaddexp(0, 3 * b) / 3 + noise(0.45)
    hba1c = 5.8 + 0.55 * b + 0.5 * np.sin(1.8 * (a + 0.3)) + noise(0.22)
    h = (hba1c - 5.8) / 0.75
    ldl = 120 + 20 * h - 20 * np.cos(1.6 * (dose - 40) / 20) + noise(8)
    columns = (age, bmi, dose, crp, hba1c, ldl)
    rounded = [column.round(places) for column, places in zip(columns, COLUMNS.values(), strict=True)]
    return np.stack(rounded, axis=1)


def write_example(folder: Path) -> tuple[Path, Path]:
    """The table and its true edges as files; what is there already is not written over, unless it is the same."""
    data = patients(PatientsOptions(name="patients"))
    places = tuple(COLUMNS.values())
    cells = ([f"{value:.{at}f}" for value, at in zip(row, places, strict=True)] for row in data.values)
    texts = {
        TABLE: "\n".join([",".join(COLUMNS), *(",".join(row) for row in cells)]) + "\n",
        TRUTH: "\n".join(["source,target", *(",".join(edge) for edge in EDGES)]) + "\n",
    }
    for name, text in texts.items():
        path = folder / name
        if path.exists() and path.read_bytes() != text.encode():
            raise InputError(f"{path}: is already there and another file; rename it, or write the example elsewhere")
    for name, text in texts.items():
        atomic_write(folder / name, text.encode())
    return folder / TABLE, folder / TRUTH
