"""How often the test of residuals rejects the true graph: its level where noise is added, its power where it is not.

    python experiments/discovery/residuals.py --graphs 1000 20 --rows 1000 --out results/discovery/residuals

Graphs of the suite from 1000 on; the true graph is given, so that a rejection is about the noise alone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from veracausa.data.causal import load_causal
from veracausa.discovery.residual_tests import LEVEL, residual_tests
from veracausa.runs.machine import describe_machine

ADDED = (
    "paper",
    "gp_additive",
    "gp_joint",
    "linear",
    "sines",
    "quadratics",
    "quadratics_bounded",
    "multiple_index",
    "mlp",
)
NOT_ADDED = ("multiplied", "heteroscedastic", "counts")
OTHER_NOISE = (("linear", "exponential"), ("gp_additive", "laplace"), ("sines", "uniform"))


def row(generator: str, noise: str, first: int, count: int, rows: int) -> dict[str, object]:
    """One generator over so many graphs of eight columns and twelve edges."""
    columns, below, graphs = 0, 0, 0
    start = time.process_time()
    for seed in range(first, first + count):
        given = {} if noise == "gaussian" else {"noise": noise}
        data = load_causal("suite", generator=generator, attributes=8, edges=12, rows=rows, seed=seed, **given)
        assert data.truth is not None
        found = [one for one in residual_tests(data.values, data.names, data.truth, seed) if one.p_value is not None]
        columns += len(found)
        below += sum(one.p_value < LEVEL for one in found if one.p_value is not None)
        graphs += any(one.rejected for one in found)
    spent = time.process_time() - start
    return {"generator": generator, "noise": noise, "rows": rows, "graphs": count, "columns": columns,
            "columns below the level": below, "graphs with a warning": graphs,
            "seconds a column": round(spent / columns, 3)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, nargs=2, default=(1000, 20), metavar=("FIRST", "COUNT"))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    cases = [*((name, "gaussian") for name in (*ADDED, *NOT_ADDED)), *OTHER_NOISE]
    found = []
    for generator, noise in cases:
        found.append(row(generator, noise, *given.graphs, given.rows))
        print(json.dumps(found[-1]), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    record = {"level": LEVEL, "rows": found, "numpy": np.__version__, "machine": describe_machine()}
    (given.out / f"rows-{given.rows}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
