"""Both engines across sites, in separate processes: the same bits as with all parties in one place."""

from __future__ import annotations

import importlib.util
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


def run_embedded(work: Path, job: Path) -> None:
    lines = (
        "import sys; from pathlib import Path",
        "from veracausa.discovery.job import read_job; from veracausa.discovery.discover import run_job",
        "run_job(read_job(Path(sys.argv[1])), sys.argv[2])",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines), str(job), str(work / "embedded")], check=True)
