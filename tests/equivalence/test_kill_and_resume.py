"""kill -9 at random moments, then --resume: the final weights are those of a run that nobody disturbed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veracausa.runs.store import deserialize_state, flatten

JOB = """
name = "kill"
seed = 3
[data]
name = "digits"
train = 600
validation = 0.1
[model]
name = "convnet"
cut = 6
[training]
epochs = 16
batch_size = 32
local_steps = 2
optimizer = {{ name = "adam", lr = 0.002 }}
schedule = {{ name = "cosine" }}
[risk]
every = 4
samples = 4
[checkpoints]
every_steps = 5
[runtime]
device = "cpu"
cpu_threads = 1
timeout = 20
link = "{link}"
"""


def start(job: Path, out: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "veracausa.cli.main", "train", str(job), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def weights(run: Path) -> dict[str, str]:
    """A hash of all weights of every party's last checkpoint and saved model."""
    hashes = {}
    for folder in sorted((run / "parties").iterdir()):
        last = max((folder / "checkpoints").glob("step-*.safetensors"))
        for path in (last, folder / "model.safetensors"):
            tensors, _ = flatten(deserialize_state(path.read_bytes()))
            digest = hashlib.sha256()
            for name, tensor in sorted(tensors.items()):
                digest.update(name.encode() + tensor.numpy().tobytes())
            hashes[f"{folder.name}/{path.name.split('-')[0]}"] = digest.hexdigest()
    return hashes


def phase(run: Path) -> str:
    """Where a run was when it was killed, in words."""
    steps = [
        max((int(p.name.split("-")[1]) for p in (party / "checkpoints").glob("step-*")), default=0)
        for party in sorted((run / "parties").iterdir())
    ]
    writing = [p.parent.parent.name for p in run.glob("parties/*/checkpoints/.*.tmp")]
    saved = sum((party / "model.safetensors").exists() for party in (run / "parties").iterdir())
    words = f"checkpoints at {steps}"
    if writing:
        words += f", {' and '.join(writing)} writing one"
    elif len(set(steps)) > 1:
        words += ", some parties had saved and some not"
    return words + (f", {saved} models saved" if saved else "")


def wait_until_training(run: Path, process: subprocess.Popen, known_step: int) -> None:
    """Until the run has gone past what it had before: kills must hit training, not the import of torch."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if json.loads((run / "status.json").read_text())["state"] == "running" and progress(run) > known_step:
                return
        except (FileNotFoundError, ValueError):
            pass
        time.sleep(0.01)


def progress(run: Path) -> int:
    return max((int(p.name.split("-")[1]) for p in run.glob("parties/*/checkpoints/step-*")), default=0)


def children(pid: int) -> dict[str, int]:
    """The party processes of a run, oldest first."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == pid and b"spawn_main" in command:
                found[entry.name] = int(entry.name)
    return dict(sorted(found.items(), key=lambda item: item[1]))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The hashes of a run in threads that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    job = folder / "job.toml"
    job.write_text(JOB.format(link="threads"))
    process = start(job, folder / "run")
    assert process.wait(120) == 0, process.stderr.read()
    return weights(folder / "run")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the parties' processes through /proc")
# By default two kills across organisations are tested (tests/federation/test_faults.py): these are `make test-slow`.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "kills"),
    [
        ("threads", 8),
        ("processes", 4),
    ],
)
def test_killed_runs_end_with_the_same_weights(link, kills, undisturbed, tmp_path, record_property):
    chance = random.Random(f"{link}-{os.environ.get('VERACAUSA_KILL_SEED', 1)}")
    job, run = tmp_path / "job.toml", tmp_path / "run"
    job.write_text(JOB.format(link=link))
    hits, more = [], []
    while len(hits) < kills:
        known = progress(run) if run.exists() else 0
        process = start(job, run, *more)
        wait_until_training(run, process, known)
        time.sleep(chance.uniform(0, 0.6))
        victim = "the whole run"
        parties = children(process.pid)
        if link == "processes" and len(hits) % 2 and len(parties) == 3:
            victim, pid = "one party", chance.choice(list(parties.values()))
        else:
            pid = process.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if process.wait(60) == 0:  # it was over before the kill: that run must be right too, and another one is killed
            assert weights(run) == undisturbed
            run, more = tmp_path / f"run-{len(hits)}", []
            continue
        if victim == "one party":
            message = process.stderr.read()
            assert process.returncode == 1
            assert "lost party" in message
        hits.append(f"killed {victim}: {phase(run)}")
        more = ["--resume"] if (run / "config.toml").exists() else []
    record_property("phases", hits)
    print("\n".join(hits))
    process = start(job, run, "--resume")
    assert process.wait(120) == 0, process.stderr.read()
    assert weights(run) == undisturbed
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["event"] == "epoch"]
    assert [record["epoch"] for record in epochs] == list(range(1, 17))
    for party in ("passive_1", "passive_2"):
        measured = [r["epoch"] for r in records if r["party"] == party and r["event"] == "defense"]
        assert measured == list(range(4, 17, 4))
    assert json.loads((run / "summary.json").read_text())["rounds"] == epochs[-1]["step"]
