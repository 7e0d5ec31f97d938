"""Both engines across sites, in separate processes: the same bits as with all parties in one place."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fabric import make_fabric
from faults import Federation, command, found, weights

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(
        importlib.util.find_spec("nvflare") is None, reason='needs nvflare: pip install "veracausa[federation]"'
    ),
]
SPLIT = """
name = "split"
[data]
name = "digits"
train = 300
[model]
name = "convnet"
cut = 6
[parties]
active = "bank"
passive = ["hospital", "lab"]
[defense]
name = "{defense}"
[training]
epochs = 2
batch_size = 32
[runtime]
device = "cpu"
cpu_threads = 1
"""
DISCOVERY = """
kind = "discovery"
method = "vfedcd"
simulation = {simulation}
name = "causes"
data = {{ name = "synthetic", attributes = 6, edges = 7, rows = 200 }}
parties = {{ hospital = ["x0", "x1", "x2"], lab = ["x3", "x4", "x5"] }}
settings = {{ epochs = 20, refit_epochs = 10, encryption = "{encryption}" }}
"""


def run_everywhere(work: Path, job: Path, scheme: str, members: tuple[str, ...]) -> None:
    """Found, join and run, each member in a process of its own."""
    fabric = make_fabric(members[0], members[1:])
    federation = Federation(work, fabric, members)
    try:
        found(work, job, fabric, scheme, patience=60.0, members=members)
        for member in members:
            federation.start(member)
        deadline = time.monotonic() + 300
        while not federation.done():
            assert time.monotonic() < deadline
            assert not federation.failed(), {member: federation.log(member) for member in members}
            time.sleep(0.2)
    finally:
        federation.end()
        fabric.close()


@pytest.mark.parametrize(("defense", "scheme"), [("causshield", "tcp"), ("noisy_bottleneck", "grpc")])
def test_split_training(tmp_path: Path, defense: str, scheme: str) -> None:
    job, members = tmp_path / "job.toml", ("bank", "hospital", "lab")
    job.write_text(SPLIT.format(defense=defense))
    command("train", str(job), "--out", str(tmp_path / "embedded"))
    run_everywhere(tmp_path, job, scheme, members)
    for member in members:
        assert weights(tmp_path / member / "run", member) == weights(tmp_path / "embedded", member)


@pytest.mark.parametrize(("encryption", "scheme"), [("none", "tcp"), ("none", "grpc"), ("bfv", "tcp")])
def test_discovery(tmp_path: Path, encryption: str, scheme: str) -> None:
    if encryption == "bfv":
        pytest.importorskip("seal")
    job, members = tmp_path / "job.toml", ("validator", "hospital", "lab")
    job.write_text(DISCOVERY.format(encryption=encryption, simulation=str(encryption == "none").lower()))
    run_everywhere(tmp_path, job, scheme, members)
    edges = {member: (tmp_path / member / "run" / "edges.csv").read_bytes() for member in members}
    assert len(set(edges.values())) == 1
    if encryption == "none":  # encrypted runs draw secret weights
        run_embedded(tmp_path, job)
        assert (tmp_path / "embedded" / "edges.csv").read_bytes() == edges["validator"]
        assert edges["validator"].count(b"\n") > 1


STRONG = """
kind = "discovery"
method = "vfedcd"
name = "shares"
data = { name = "synthetic", attributes = 4, edges = 4, rows = 200 }
parties = { hospital = ["x0", "x1"], lab = ["x2", "x3"] }
settings = { epochs = 40, refit_epochs = 10, batch = 40, width = 4, candidates = 4, strong = true }
"""


def test_a_strong_discovery_goes_on_after_a_kill(tmp_path: Path) -> None:
    """With keys and shares that are new: the killed member's were in its memory alone."""
    job, members = tmp_path / "job.toml", ("validator", "hospital", "lab")
    job.write_text(STRONG)
    fabric = make_fabric(members[0], members[1:])
    federation = Federation(tmp_path, fabric, members, options=())
    killed = False
    try:
        found(tmp_path, job, fabric, "tcp", patience=10.0, members=members)
        for member in members:
            federation.start(member)
        deadline = time.monotonic() + 400
        while not federation.done():
            assert time.monotonic() < deadline, {member: federation.log(member) for member in members}
            assert not federation.failed(), {member: federation.log(member) for member in members}
            if not killed and min(federation.held().values()) >= 10:
                federation.kill("lab", 1.0)
                killed = True
            time.sleep(0.2)
    finally:
        federation.end()
        fabric.close()
    assert killed
    edges = {member: (tmp_path / member / "run" / "edges.csv").read_bytes() for member in members}
    assert len(set(edges.values())) == 1
    lines = (tmp_path / "validator" / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 51))
    plans = [tmp_path / member / "run" / "parties" / member / "plan.json" for member in members]
    assert {json.loads(plan.read_text())["lives"] for plan in plans} == {2}


def run_embedded(work: Path, job: Path) -> None:
    lines = (
        "import sys; from pathlib import Path",
        "from veracausa.discovery.job import read_job; from veracausa.discovery.discover import run_job",
        "run_job(read_job(Path(sys.argv[1])), sys.argv[2])",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines), str(job), str(work / "embedded")], check=True)
