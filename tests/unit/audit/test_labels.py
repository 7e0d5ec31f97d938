"""What an audit says of the labels: measured from what a party knew before, and named after its strongest attack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veracausa.audit.labels import label_entries, label_verdict, learnt
from veracausa.runs.folder import Run


def score(accuracy: float, **more: Any) -> dict[str, Any]:
    return {"accuracy": accuracy, "prior": 0.5, "known_labels": 10, "up_to_permutation": False, "party": "bank", **more}


def test_what_a_party_told_from_its_own_rows_is_not_counted() -> None:
    assert learnt(score(0.9)) == pytest.approx(0.4)
    assert learnt(score(0.9, rows_alone=0.85)) == pytest.approx(0.05)
    entries = {"model_completion": score(0.9, rows_alone=0.85), "gradient_direction": score(0.8)}
    told = "In the other direction bank tells 80 % of the labels by gradient_direction, given 10 of them; always naming"
    assert label_verdict(entries).startswith(told)
    del entries["gradient_direction"]
    assert label_verdict(entries).endswith("its own rows alone give 85 %.")


def test_no_more_than_before_is_said_without_a_promise() -> None:
    said = label_verdict({"model_completion": score(0.85, rows_alone=0.85), "gradient_norm": {"unavailable": "why"}})
    assert "no passive party tells the labels better" in said
    assert "not ruled out" in said
    assert not label_verdict({"gradient_norm": {"unavailable": "why"}})
    assert "best names" in label_verdict({"gradient_direction": score(0.9, up_to_permutation=True, known_labels=0)})


def test_the_party_that_learns_most_stands_first_beside_its_twin(tmp_path: Path) -> None:
    runs = []
    for name, least in (("run", 0.6), ("twin", 0.7)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
        kept = {
            "bank": {"direction": score(least)},
            "shop": {"direction": score(least + 0.2), "norm": {"unavailable": "no"}},
        }
        (tmp_path / name / "label_attacks.json").write_text(json.dumps(kept))
        runs.append(Run(tmp_path / name))
    entries = label_entries(*runs)
    assert entries["direction"]["party"] == "shop"
    assert set(entries["direction"]["parties"]) == {"bank", "shop"}
    assert entries["direction"]["undefended"]["accuracy"] == pytest.approx(0.9)
    assert entries["norm"] == {"unavailable": "no"}
