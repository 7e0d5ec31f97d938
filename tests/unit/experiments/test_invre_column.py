"""A table's InvRE is one in all directions, or a reason why there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from veracausa.experiments.cells import training_result
from veracausa.experiments.experiment import load_experiment
from veracausa.experiments.plan import points
from veracausa.experiments.table import gather


def result(tmp_path: Path, risk: dict) -> dict:
    (tmp_path / "environment.json").write_text("{}")
    summary = {"test": {"accuracy": 0.9}, "parties": {"a": {"risk": risk}, "active": {}}}
    return training_result(SimpleNamespace(summary=summary, metrics=[], path=tmp_path))


@pytest.mark.parametrize(
    ("risk", "value"),
    [
        ({"invre": 0.9, "exact": 1.0}, 0.9),
        ({"invre": 0.01, "exact": 0.0, "k_capped": 1.0}, None),
        ({"invre": None, "unavailable": "it rounds."}, None),
    ],
)
def test_only_invre_in_all_directions_is_taken(risk, value, tmp_path):
    found = result(tmp_path, risk)
    assert found["scores"].get("invre", {}).get("mean") == value
    assert found["unavailable"] == ({"invre": "InvRE: it rounds"} if "unavailable" in risk else {})


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ({"scores": {"invre": {"mean": 0.01}}}, "a tenth of a row's directions"),
        ({"scores": {}, "unavailable": {"invre": "InvRE: it rounds"}}, "it rounds"),
    ],
)
def test_a_table_says_why_there_is_no_invre(kept, reason):
    experiment = load_experiment("causshield/fig1a", "smoke")
    cells = SimpleNamespace(result=lambda cell: kept if cell.reading is None else None)
    tables = gather(experiment, list(points(experiment, experiment.show)), cells, {})
    value = tables[0].lines[0].values["invre"]
    assert value.mean is None
    assert reason in value.why_not
