"""Rows that were read are shown in their columns' own values."""

from __future__ import annotations

import torch

from veracausa.audit.evaluation import column_groups, column_titles
from veracausa.audit.measure import example_rows, measure, values_of

FITTED = {
    "columns": [
        {"name": "age", "kind": "numeric", "mean": 40.0, "std": 10.0, "missing": True},
        {"name": "job", "kind": "categorical", "values": ["cook", "nurse"], "other": True, "missing": True},
        {"name": "income", "kind": "numeric", "mean": 1000.0, "std": 200.0, "missing": False},
    ]
}


def test_numbers_become_the_values_they_stand_for() -> None:
    assert values_of(FITTED, [0.5, 0, 0, 1, 0, 0, -1.0]) == ["45", "nurse", "800"]
    assert values_of(FITTED, [-3.9999999, 0, 0, 1, 0, 0, -5.0])[0] == "0"
    assert values_of(FITTED, [0.0, 0.9, 0.1, 0.2, 0.1, 0.8, 0.25]) == ["missing", "missing", "1050"]
    assert values_of(FITTED, [0.0, 0, 0, 0, 0, 0, 0])[1] == "not seen in training"


def test_examples_go_from_the_best_read_to_the_worst() -> None:
    truth = torch.randn(30, 7, generator=torch.Generator().manual_seed(0))
    found = example_rows(FITTED, torch.arange(100, 130), truth, truth, torch.arange(30).flip(0).float())
    assert found is not None
    assert found["columns"] == ["age", "job", "income"]
    assert [row["position"] for row in found["rows"]][:1] == [129]
    assert [row["position"] for row in found["rows"]][-1:] == [100]
    assert len(found["rows"]) == 6
    assert all(row["original"] == row["read"] for row in found["rows"])
    assert example_rows(None, torch.arange(3), truth[:3], truth[:3], torch.zeros(3)) is None


def test_every_column_has_its_leakage_by_name() -> None:
    rng = torch.Generator().manual_seed(1)
    truth = torch.zeros(200, 7)
    truth[:, 0], truth[:, 6] = torch.randn(200, generator=rng), torch.randn(200, generator=rng)
    truth[torch.arange(200), 2 + torch.randint(3, (200,), generator=rng)] = 1
    guess = truth.clone()
    guess[:, 0] = 0
    blind = {"mean image": truth.mean(0).expand_as(truth)}
    found = measure(guess, truth, blind, False, column_groups(FITTED), column_titles(FITTED)).others
    told = {one["column"]: one["leakage"] for one in found["columns"]}
    assert told["income"] == told["job"] == 1
    assert told["age"] < 0.01
    assert told["age: missing"] is None
    assert found["best"]["leakage"] == 1
    assert [one["column"] for one in found["columns"]][2:] == ["age", "age: missing"]
    assert found["advantage"]["rows"] == 200
