"""The walk-through of docs/federation.md, every command as written; only the port is another one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from forking import Forks
from typer.testing import CliRunner

from veracausa.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "federation.md").read_text(encoding="utf-8")
WALK = PAGE[PAGE.index("## The walk-through") : PAGE.index("### On three machines")]
TOGETHER = ("run", "predict")
"""What parties do at the same time."""
SHORT = ("init", "join", "approve", "serve", "run")
"""What `make test` has time for: it also trains shorter, and starts no interpreter for each command."""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason='needs nvflare: pip install "veracausa[federation]"'
)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", WALK, re.MULTILINE | re.DOTALL)


class Copy:
    """A command in a process that has what commands import from its parent."""

    def __init__(self, forks: Forks, line: str, where: Path) -> None:
        self.forks, self.output = forks, where / f"{line.split()[3]}.txt"
        code = "from veracausa.cli.main import program; program()"
        self.pid = forks.start(code, where, self.output, shlex.split(line)[1:])

    def communicate(self, timeout: float) -> tuple[str, None]:
        self.wait(timeout)
        return self.output.read_text(encoding="utf-8"), None

    def wait(self, timeout: float) -> None:
        late = threading.Timer(timeout, os.killpg, (self.pid, signal.SIGKILL))
        late.start()
        self.returncode = self.forks.wait(self.pid)
        late.cancel()


def start(line: str, where: Path) -> subprocess.Popen[str]:
    program, *words = shlex.split(line)
    assert program == "veracausa"
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "veracausa.cli.main", *words],
        cwd=where,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A suite that was started in the background has Ctrl-C switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def call(line: str, where: Path) -> str:
    """The command in this process."""
    with contextlib.chdir(where):
        result = CliRunner().invoke(app, shlex.split(line)[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.output


def finish(line: str, process: subprocess.Popen[str] | Copy) -> str:
    said, _ = process.communicate(timeout=150)
    assert process.returncode == 0, f"{line}\n{said}"
    return said


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop(process: subprocess.Popen[str] | Copy) -> None:
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=30)


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.federation)])
def test_the_walk_through_as_written(whole: bool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with contextlib.chdir(tmp_path):
        runpy.run_path(str(ROOT / "examples" / "federation_tables.py"), run_name="__main__")
    (job,) = blocks("toml job")
    if not whole:
        assert "epochs = 20" in job
        job = job.replace("epochs = 20", "epochs = 12")
    (tmp_path / "benign.toml").write_text(job, encoding="utf-8")
    said: dict[str, str] = {}
    serving: subprocess.Popen[str] | Copy | None = None
    with contextlib.ExitStack() as stack:
        begin: Callable[[str, Path], subprocess.Popen[str] | Copy] = start
        if not whole:
            forks = stack.enter_context(Forks(["torch", "nvflare.fuel.f3.cellnet.cell", "sklearn.metrics"]))
            begin = partial(Copy, forks)
        stack.callback(lambda: serving is not None and stop(serving))
        for block in blocks("sh"):
            if not whole and not any(f"federation {word} " in block for word in SHORT):
                continue
            lines = [line.replace("localhost:8002", f"localhost:{port}") for line in block.strip().splitlines()]
            if "federation serve" in block:
                serving = begin(lines[0], tmp_path)
                deadline = time.monotonic() + 60
                while not listening(port):
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
            elif any(f"federation {word} " in block for word in TOGETHER):
                started = [(line, begin(line, tmp_path)) for line in lines]
                said |= {line: finish(line, process) for line, process in started}
            else:
                said |= {line: finish(line, start(line, tmp_path)) if whole else call(line, tmp_path) for line in lines}
    everything = "".join(said.values())
    for member in ("clinic", "lab", "coordinator"):
        key = (tmp_path / member / "identity" / "key.pem").read_text()
        assert key.splitlines()[1] not in everything
    accuracy = re.findall(r"test accuracy (\d+\.\d) %", said["veracausa federation run clinic --yes"])
    assert float(accuracy[-1]) > 90
    if not whole:
        return
    proof = said["veracausa doctor --wire clinic"]
    assert "fail" not in proof
    assert "another authority's certificate" in " ".join(proof.split())
    assert "done" in said["veracausa federation status clinic"]
    predicted = pl.read_csv(tmp_path / "predictions.csv")
    assert 10 < predicted.height <= 20
    assert (tmp_path / "clinic" / "run" / "report.html").is_file()
