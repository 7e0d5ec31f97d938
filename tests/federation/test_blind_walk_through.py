"""Three organisations train blind and predict, each in a process of its own; their ledgers show what crossed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.runs.store import read_tree
from veracausa.wire.ledger import read_ledger

ROOT = Path(__file__).parents[2]
MEMBERS = ("clinic", "lab", "pharmacy")
JOB = """\
name = "risk"
data = { name = "csv", label = "ill", id = "patient" }
parties = { active = "clinic", passive = ["lab", "pharmacy"] }
partition = { active_has_features = true }
training = { protocol = "blind" }
blind = { encryption = "ENCRYPTION" }
"""
CROSSES = {
    *("hello", "ready", "width", "toss", "toss shown", "key", "agreed", "head", "head_kept", "ask", "answer"),
    "mask_seed",
    *("moment_hello", "moment_turn", "moment_taken", "moment_query", "moment_answer", "moment_share"),
}

pytestmark = [
    pytest.mark.federation,
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason='pip install "veracausa[federation]"'),
]


def tables(folder: Path, rows: int = 4000) -> None:
    """Three tables of the same people, not all of them, in different orders; the last 60 are new to the clinic."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 6))
    ill = x[:, 0] + np.sin(2 * x[:, 2]) + x[:, 4] + 0.3 * rng.normal(size=rows) > 0
    whole = pl.DataFrame(x, schema=[f"c{i}" for i in range(6)]).with_columns(
        pl.format("P-{}", pl.int_range(rows)).alias("patient"),
        pl.Series("ill", ["yes" if one else "no" for one in ill]),
    )
    clinic = whole.select("patient", "c0", "c1", "ill")
    clinic.head(rows - 60).write_csv(folder / "clinic.csv")
    clinic.tail(60).drop("ill").write_csv(folder / "new-clinic.csv")
    whole.select("patient", "c2", "c3").sample(rows - 20, seed=1, shuffle=True).write_csv(folder / "lab.csv")
    whole.select("patient", "c4", "c5").sample(rows - 30, seed=2, shuffle=True).write_csv(folder / "pharmacy.csv")


def call(line: str, where: Path) -> str:
    with contextlib.chdir(where):
        result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.output


def start(line: str, where: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "veracausa.cli.main", *shlex.split(line)],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def together(lines: dict[str, str], where: Path) -> dict[str, str]:
    started = {member: start(line, where) for member, line in lines.items()}
    said = {}
    for member, process in started.items():
        said[member], _ = process.communicate(timeout=240)
        assert process.returncode == 0, f"{lines[member]}\n{said[member]}"
    return said


@pytest.fixture(params=["none", "bfv"])
def trained(request, tmp_path):
    """The folder of a federation that has trained blind, while its coordinator relays."""
    if request.param == "bfv":
        pytest.importorskip("seal")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    tables(tmp_path)
    (tmp_path / "job.toml").write_text(JOB.replace("ENCRYPTION", request.param), encoding="utf-8")
    call(f"federation init job.toml --name r --server coordinator@localhost:{port} --as coordinator --out c", tmp_path)
    for member in MEMBERS:
        call(
            f"federation join c/invitation.zip --party {member} --data {member}.csv --id patient --out {member}",
            tmp_path,
        )
        call(f"federation approve c {member}/{member}.request.zip --yes", tmp_path)
        call(f"federation join {member} --signed c/{member}.signed.zip", tmp_path)
    serving = start("federation serve c", tmp_path)
    try:
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        said = together({member: f"federation run {member} --yes" for member in MEMBERS}, tmp_path)
        yield tmp_path, said
    finally:
        os.killpg(serving.pid, signal.SIGINT)
        serving.wait(timeout=30)


def test_three_members_train_and_predict(trained):
    folder, said = trained
    accuracy = re.findall(r"test accuracy (\d+\.\d) %", said["clinic"])
    assert float(accuracy[-1]) > 85
    summary = json.loads((folder / "clinic/run/summary.json").read_text())
    assert summary["blind_training"]["numbers"] == 1
    assert summary["test"]["auc"] > 0.93
    for member in MEMBERS:
        sent = list(read_ledger(folder / member / "run/parties" / member / "ledger.jsonl"))
        assert {line["kind"] for line in sent} <= CROSSES
    # The plain head is the clinic's alone, and no party has another's columns.
    assert "head" in read_tree(folder / "clinic/run/parties/clinic/model.safetensors")
    for member in ("lab", "pharmacy"):
        assert "head" not in read_tree(folder / member / "run/parties" / member / "model.safetensors")
        assert len(list((folder / member / "run/parties").iterdir())) == 1
    lines = {
        "clinic": "federation predict clinic --data new-clinic.csv --out first.csv",
        "lab": "federation predict lab --data lab.csv",
        "pharmacy": "federation predict pharmacy --data pharmacy.csv",
    }
    together(lines, folder)
    together({**lines, "clinic": lines["clinic"].replace("first", "second")}, folder)
    first = (folder / "first.csv").read_bytes()
    assert first == (folder / "second.csv").read_bytes()
    assert 40 < pl.read_csv(folder / "first.csv").height <= 60
    # A second session brought no head, and the key of the first one is the clinic's alone.
    for member, kinds in (("clinic", {"ask"}), ("lab", {"hello", "head_kept", "mask_seed", "answer"})):
        sent = {line["kind"] for line in read_ledger(folder / member / "run/parties" / member / "inference.jsonl")}
        assert kinds <= sent
        assert not {"head", "key", "toss"} & sent
    (key,) = folder.glob("*/run/parties/*/head.key")
    assert key == folder / "clinic/run/parties/clinic/head.key"
    assert key.stat().st_mode & 0o777 == 0o600
    call("federation export lab --out lab.part.zip", folder)
    call("federation import lab.part.zip --out lab-elsewhere", folder)
    kept, moved = (
        read_tree(folder / where / "run/parties/lab/model.safetensors")["keys"] for where in ("lab", "lab-elsewhere")
    )
    assert kept == moved  # it answers there as here
    call("federation export clinic --out clinic.part.zip", folder)
    call("federation import clinic.part.zip --out clinic-elsewhere", folder)
    assert (folder / "clinic-elsewhere/run/parties/clinic/head.key").read_bytes() == key.read_bytes()
