"""Two organisations and a validator find a graph in sums, each in a process of its own; one of them is killed."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
from fabric import make_fabric
from faults import Federation, found

from veracausa.discovery.discover import DiscoveryRun, run_job
from veracausa.discovery.job import DiscoveryJob
from veracausa.runs.store import deserialize_state
from veracausa.training.blind.book import releases_in
from veracausa.wire.ledger import read_ledger

pytestmark = [
    pytest.mark.federation,
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason='pip install "veracausa[federation]"'),
]
MEMBERS = ("validator", "clinic", "lab")
CROSSES = {
    *("sums_hello", "sums_layout", "sums_beat", "sums_found", "toss", "toss shown", "key", "agreed"),
    *("moment_hello", "moment_turn", "moment_taken", "moment_query", "moment_answer", "moment_share"),
}
"""No kind has a place for a row but the query, which is encrypted."""


def tables(work: Path, rows: int = 3000) -> None:
    """Two tables of mostly the same people in different orders: numbers, categories, gaps, and dates."""
    rng = np.random.default_rng(0)
    age = rng.normal(size=rows)
    dose = np.tanh(2 * age) + 0.4 * rng.normal(size=rows)
    ward = np.array(["north", "south", "west"])[np.digitize(dose + 0.5 * rng.normal(size=rows), [-0.5, 0.5])]
    crp = dose**2 + 0.4 * rng.normal(size=rows)
    ldl = [None if at % 13 == 0 else float(x) for at, x in enumerate(crp - age + 0.4 * rng.normal(size=rows))]
    seen = [f"2021-03-{at % 28 + 1:02d}" for at in range(rows)]
    ids = [f"p{at}" for at in range(rows)]
    people = pl.DataFrame({"id": ids, "age": age, "dose": dose, "ward": ward, "seen": seen})
    people.sample(rows - 40, seed=1, shuffle=True).write_csv(work / "clinic.csv")
    tests = pl.DataFrame({"id": ids, "crp": crp, "ldl": ldl})
    tests.sample(rows - 60, seed=2, shuffle=True).write_csv(work / "lab.csv")


def job_of(encryption: str | None) -> str:
    job: dict[str, Any] = {"kind": "discovery", "name": "causes", "seed": 3, "data": {"on": "id"}}
    job["parties"] = {"clinic": [], "lab": []}
    if encryption is not None:
        job |= {"settings": {"encryption": encryption}, "simulation": encryption == "none"}
    return tomli_w.dumps(job)


class Walk:
    """A federation whose validator serves, from its founding to the graph."""

    def __init__(self, work: Path, encryption: str | None) -> None:
        self.work = work
        work.mkdir(exist_ok=True)
        tables(work)
        (work / "job.toml").write_text(job_of(encryption))
        self.fabric = make_fabric(MEMBERS[0], MEMBERS[1:])
        self.federation = Federation(work, self.fabric, MEMBERS)
        found(work, work / "job.toml", self.fabric, "tcp", patience=60.0, members=MEMBERS)
        for member in MEMBERS[1:]:
            own = {"data": {"path": str(work / f"{member}.csv")}}
            (work / member / "party.toml").write_text(tomli_w.dumps(own))

    def kept(self, member: str, name: str) -> Path:
        return self.work / member / "run" / "parties" / member / name

    def run(self, disturb: Any = None) -> Walk:
        try:
            for member in MEMBERS:
                self.federation.start(member)
            deadline = time.monotonic() + 300
            if disturb is not None:
                disturb(self)
            while not self.federation.done():
                logs = {member: self.federation.log(member)[-3000:] for member in MEMBERS}
                assert time.monotonic() < deadline, logs
                assert not self.federation.failed(), logs
                time.sleep(0.2)
        finally:
            self.federation.end()
            self.fabric.close()
        return self

    def edges(self, member: str) -> bytes:
        return (self.work / member / "run" / "edges.csv").read_bytes()

    def opened(self) -> bytes:
        state = deserialize_state(self.kept("validator", "sums-0.safetensors").read_bytes())
        return bytes(state["moments"]["integers"].numpy().tobytes())


def in_one_place(work: Path) -> DiscoveryRun:
    files = {member: str(work / f"{member}.csv") for member in MEMBERS[1:]}
    job = DiscoveryJob(
        name="causes",
        seed=3,
        method="moments",
        data={"files": files, "on": "id"},
        settings={"encryption": "none"},
    )
    return run_job(job, work / "embedded")


def killed_in_the_sums(walk: Walk) -> None:
    """The lab dies once it has begun its release, and comes back."""
    deadline = time.monotonic() + 240
    while not walk.kept("lab", "sums-0.safetensors").is_file():
        assert time.monotonic() < deadline, walk.federation.log("lab")
        assert not walk.federation.failed(), walk.federation.log("lab")
        time.sleep(0.02)
    walk.federation.kill("lab", away=1.0)


def test_encrypted_simulated_killed_and_in_one_place(tmp_path: Path) -> None:
    twin = Walk(tmp_path / "twin", "none").run()
    whole = in_one_place(twin.work)
    assert whole.summary["edges"] > 2
    pytest.importorskip("seal")
    hidden = Walk(tmp_path / "hidden", None).run()  # the default: moments, under bfv
    disturbed = Walk(tmp_path / "disturbed", "bfv").run(killed_in_the_sums)
    for walk in (twin, hidden, disturbed):
        assert walk.opened() == twin.opened()
        for member in MEMBERS:
            assert walk.edges(member) == (whole.path / "edges.csv").read_bytes()
            status = json.loads((walk.work / member / "federation-status.json").read_text())
            assert status["attempt"] == 1 or walk is disturbed
    for member in MEMBERS:
        sent = list(read_ledger(hidden.kept(member, "ledger.jsonl")))
        assert {line["kind"] for line in sent} <= CROSSES
        assert [path.name for path in (hidden.work / member / "run/parties").iterdir()] == [member] or (
            member == "validator"
        )
    for member in MEMBERS[1:]:
        terms = " ".join(hidden.federation.log(member).split())
        assert "opened to the validator; no noise" in terms
        assert "COLUMNS LEAVE UNENCRYPTED" in " ".join(twin.federation.log(member).split())
        # One release, also where a party was killed in it.
        assert len(releases_in(hidden.work / member / "releases")) == 1
        assert len(releases_in(disturbed.work / member / "releases")) == 1
        assert not (twin.work / member / "releases").exists()
    summary = json.loads((hidden.work / "clinic/run/summary.json").read_text())
    assert any("seen: left out, it holds dates" in note for note in summary["notes"])
    assert summary["method"] == "moments"
