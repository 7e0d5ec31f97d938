"""kill -9 in every phase of a blind training, then --resume: the same bits as a run that nobody disturbed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from veracausa.runs.store import deserialize_state, flatten, read_tree
from veracausa.training.blind.party import PHASES
from veracausa.wire.ledger import read_ledger

JOB = """
name = "kill"
seed = 5
data = {{ name = "csv", path = "{path}", id = "id", label = "label", validation = 0.1 }}
parties = {{ passive = ["p1", "p2"] }}
partition = {{ active_has_features = true }}
training = {{ protocol = "blind" }}
blind = {{ encryption = "{encryption}", epsilon = 6.0, labels = "private", allow_small_n = true }}
features = {{ name = "splines", functions = 5 }}
runtime = {{ device = "cpu", cpu_threads = 1, timeout = 30, link = "{link}" }}
"""


def table(folder: Path, rows: int = 1200) -> Path:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 6))
    label = x[:, 0] + x[:, 2] + x[:, 4] + 0.3 * rng.normal(size=rows) > 0
    path = folder / "table.csv"
    lines = ["id," + ",".join(f"c{i}" for i in range(6)) + ",label"]
    lines += [f"P{at}," + ",".join(f"{v:.4f}" for v in x[at]) + f",{int(label[at])}" for at in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def start(job: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "veracausa.cli.main", "train", str(job), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def bits(run: Path) -> dict[str, str]:
    """Hashes of every party's saved model and last checkpoint, but for how long phases took.

    Nor are BFV's ciphertexts and keys in them, which come from the system. What is opened with them is in `scores`.
    """
    found = {}
    for folder in sorted((run / "parties").iterdir()):
        last = max((folder / "checkpoints").glob("step-*.safetensors"))
        for path in (last, folder / "model.safetensors"):
            tensors, _ = flatten(deserialize_state(path.read_bytes()))
            digest = hashlib.sha256()
            for name, tensor in sorted(tensors.items()):
                if "/kept_head/" in name:
                    continue
                digest.update(name.encode() + tensor.numpy().tobytes())
            found[f"{folder.name}/{path.name.split('-')[0]}"] = digest.hexdigest()
    summary = json.loads((run / "summary.json").read_text())
    found["scores"] = json.dumps([summary["test"], summary["validation"], summary["blind_training"]["fingerprint"]])
    return found


def reached(run: Path) -> int:
    """How many phases the party that is furthest has finished; between two of them, half a phase more for sums."""
    return max((int(p.name.split("-")[1]) for p in run.glob("parties/*/checkpoints/step-*")), default=0)


def summing(run: Path) -> bool:
    return any(run.glob("parties/*/sums.safetensors")) and reached(run) < 3


@pytest.fixture(scope="module", params=["none", "bfv"])
def undisturbed(request, tmp_path_factory):
    """The encryption, the table's folder, and the bits of a run in threads that nobody killed."""
    if request.param == "bfv":
        pytest.importorskip("seal")
    folder = tmp_path_factory.mktemp("undisturbed")
    path, job = table(folder), folder / "job.toml"
    job.write_text(JOB.format(path=path, encryption=request.param, link="threads"))
    process = start(job, folder / "run")
    assert process.wait(240) == 0, process.stderr.read()
    return request.param, path, bits(folder / "run")


@pytest.mark.slow
def test_killed_in_every_phase(undisturbed, tmp_path):
    encryption, path, expected = undisturbed
    job, run = tmp_path / "job.toml", tmp_path / "run"
    job.write_text(JOB.format(path=path, encryption=encryption, link="processes"))
    hits: list[str] = []
    # As soon as a phase is reached, and a little into it; sums twice, because they keep what is done within them.
    for phase in range(len(PHASES) + 1):
        for wait in (0.0, 0.15):
            seen = 0
            process = start(job, run, *(["--resume"] if (run / "config.toml").exists() else []))
            deadline = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < deadline:
                seen = reached(run) if run.exists() else 0
                if seen >= phase and (phase != 2 or not wait or summing(run)):
                    break
                time.sleep(0.002)
            time.sleep(wait)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait(60)
                hits.append(f"after {PHASES[phase - 1] if phase else 'nothing'}, {seen} phases kept")
            time.sleep(0.5)  # the parties' processes end when they hear that their starter is gone
    print("\n".join(hits))
    assert len(hits) >= 9, hits
    process = start(job, run, "--resume")
    assert process.wait(240) == 0, process.stderr.read()
    assert bits(run) == expected
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["event"] for record in records] == ["epoch", "evaluation"], "each is written once"


@pytest.mark.slow
def test_no_key_is_used_in_two_starts(undisturbed, tmp_path):
    """What was sent before a kill must not meet what is sent after it under one mask: every start has new keys."""
    encryption, path, _ = undisturbed
    job, run = tmp_path / "job.toml", tmp_path / "run"
    job.write_text(JOB.format(path=path, encryption=encryption, link="threads"))

    def known() -> list[str]:
        return [key for kept in run.glob("parties/p1/sums.safetensors") for key in read_tree(kept)["keys"]]

    for attempt in range(3):
        before = len(known())
        process = start(job, run, *(["--resume"] if attempt else []))
        # With BFV only once this party has new keys: what an earlier start left shows nothing of this one.
        while process.poll() is None and not (
            attempt < 2 and summing(run) and (encryption == "none" or len(known()) > before)
        ):
            time.sleep(0.002)
        process.kill()
        process.wait(60)
    keys = known()
    assert len(keys) == len(set(keys))
    if encryption == "bfv":
        assert len(keys) > 3  # of three parties in more than one start
    releases = {
        line["release"] for line in read_ledger(run / "parties/p1/ledger.jsonl") if line["kind"] == "moment_share"
    }
    assert len(releases) <= 1
