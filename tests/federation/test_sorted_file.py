"""A federation of processes, and a leader whose file is sorted by the label: what a partner's own folder then says."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tomli_w
from fabric import make_fabric
from faults import Federation, found

from veracausa.runs.store import deserialize_state

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(
        importlib.util.find_spec("nvflare") is None, reason='needs nvflare: pip install "veracausa[federation]"'
    ),
]
SPLIT = """
data = {{ name = "csv", label = "ill", id = "id", match = "{match}" }}
model = {{ name = "mlp" }}
parties = {{ active = "clinic", passive = ["lab"] }}
training = {{ epochs = 1, batch_size = 64 }}
runtime = {{ device = "cpu", cpu_threads = 1 }}
"""
DISCOVERY = """
kind = "discovery"
data = { on = "id" }
parties = { clinic = ["ill"], lab = ["a", "b"] }
"""
ROWS = 400


def tables(work: Path) -> dict[str, str]:
    """A clinic's table, sorted by the label, and a lab's; who is ill. Most people are in both."""
    rng = np.random.default_rng(7)
    ill = {f"p{n}": n % 2 == 0 for n in range(ROWS)}
    clinic = sorted((id for id in ill if rng.random() < 0.95), key=lambda id: ill[id])
    lab = [f"p{n}" for n in rng.permutation(ROWS) if rng.random() < 0.95]
    pl.DataFrame({"id": clinic, "ill": [int(ill[id]) for id in clinic]}).write_csv(work / "clinic.csv")
    numbers = {name: rng.normal(size=len(lab)) + [ill[id] for id in lab] for name in ("a", "b")}
    pl.DataFrame({"id": lab, **numbers}).write_csv(work / "lab.csv")
    return {id: "ill" if sick else "well" for id, sick in ill.items()}


def run_everywhere(work: Path, job: Path, members: tuple[str, ...], options: Sequence[str]) -> None:
    fabric = make_fabric(members[0], members[1:])
    federation = Federation(work, fabric, members, options)
    try:
        found(work, job, fabric, "tcp", patience=60.0, members=members)
        for member in members:
            if (work / f"{member}.csv").is_file():
                own = {"data": {"path": str(work / f"{member}.csv"), "id": "id"}}
                (work / member / "party.toml").write_text(tomli_w.dumps(own))
            federation.start(member)
        deadline = time.monotonic() + 300
        while not federation.done():
            assert time.monotonic() < deadline
            assert not federation.failed(), {member: federation.log(member) for member in members}
            time.sleep(0.2)
    finally:
        federation.end()
        fabric.close()


def auc(work: Path, truth: dict[str, str]) -> tuple[float, float]:
    """How well a row's place in the lab's own alignment predicts the label; and what chance would be away from 0.5."""
    ids = pl.read_csv(work / "lab.csv")["id"].to_list()
    file = work / "lab" / "run" / "parties" / "lab" / "alignment.safetensors"
    rows = deserialize_state(file.read_bytes())["state"]["rows"]
    rows = rows["train"] if isinstance(rows, dict) else rows
    sick = np.array([truth[ids[row]] == "ill" for row in rows.tolist() if row >= 0])
    ones, zeros = int(sick.sum()), int((~sick).sum())
    ranks = np.arange(1, len(sick) + 1)[sick].sum()
    return (ranks - ones * (ones + 1) / 2) / (ones * zeros), math.sqrt((ones + zeros + 1) / (12 * ones * zeros))


@pytest.mark.parametrize("kind", ["all", "active", "discovery"])
def test_a_row_s_place_says_nothing_of_its_label(tmp_path: Path, kind: str) -> None:
    job, truth = tmp_path / "job.toml", tables(tmp_path)
    job.write_text(DISCOVERY if kind == "discovery" else SPLIT.format(match=kind))
    members = ("validator", "clinic", "lab") if kind == "discovery" else ("clinic", "lab")
    run_everywhere(tmp_path, job, members, options=())
    value, deviation = auc(tmp_path, truth)
    assert abs(value - 0.5) < 5 * deviation, value
    log = (tmp_path / "clinic.log").read_text()
    assert "every partner learns" not in log


def test_with_the_job_s_seed_the_leader_is_told_that_it_tells_the_order(tmp_path: Path) -> None:
    job, truth = tmp_path / "job.toml", tables(tmp_path)
    job.write_text(SPLIT.format(match="all"))
    run_everywhere(tmp_path, job, ("clinic", "lab"), options=("--job-seed",))
    assert auc(tmp_path, truth)[0] == 1.0
    assert "every partner learns" in " ".join((tmp_path / "clinic.log").read_text().split())
    assert "every partner learns" not in (tmp_path / "lab.log").read_text()
