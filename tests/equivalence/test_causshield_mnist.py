"""CausShield on MNIST: it moves what is sent, and the federation learns nearly as well as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import veracausa
from veracausa.data.files import data_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (data_folder() / "MNIST/raw/train-images-idx3-ubyte.gz").is_file(),
        reason="needs MNIST under VERACAUSA_DATA (MNIST/raw/*.gz)",
    ),
]

JOB: dict[str, Any] = {
    "data": {"name": "mnist", "train": 6000},
    "model": {"name": "convnet", "cut": 6},
    # A high rate: after four epochs the undefended model must have learnt, or staying close to it would say nothing.
    "training": {"epochs": 4, "batch_size": 256, "evaluate_every": 4, "optimizer": {"name": "adam", "lr": 5e-3}},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}
SHIELD = {"name": "causshield", "iterations": 5}  # no normalisation layers here: each iteration moves further
LOST = 0.015
SEEDS = (0, 1, 2)
"""One seed decides nothing: over four seeds CausShield lost 1.1, −0.8, −0.7 and 0.2 points, by chance of the training.
The mean of three has a third of the room left as its standard error, with all 10,000 test rows."""
DRIFT = 0.2
"""Half of the least that was measured after any epoch (0.43): where G ≈ f, it is near 0."""


def test_accuracy_stays_and_the_payload_moves(tmp_path, monkeypatch):
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path / "cache"))
    lost = []
    for seed in SEEDS:
        job = {**JOB, "seed": seed}
        plain = veracausa.train(job, tmp_path / f"plain-{seed}").summary["accuracy"]
        assert plain > 0.9
        run = veracausa.train({**job, "defense": SHIELD}, tmp_path / f"shielded-{seed}")
        lost.append(plain - run.summary["accuracy"])
        moved = drifts(run.path)
        assert set(moved) == {(party, epoch) for party in ("passive_1", "passive_2") for epoch in (1, 2, 3, 4)}
        assert min(moved.values()) > DRIFT, moved
    assert sum(lost) / len(lost) <= LOST, f"points of accuracy lost, seed by seed: {lost}"


def drifts(folder: Path) -> dict[tuple[str, int], float]:
    """Of each party after each epoch."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        (line["party"], line["epoch"]): line["diagnostics"]["drift"] for line in lines if line["event"] == "defense"
    }
