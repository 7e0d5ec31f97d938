"""An operator stops a party by Ctrl-C: it says how to go on, its partner says who stopped, and both finish."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from provisioned import free_port

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="needs nvflare"),
]
JOB = {
    "name": "stop",
    "data": {"name": "csv", "label": "y", "id": "id"},
    "model": {"name": "mlp", "hidden": [8, 8], "cut": 2},
    "training": {"epochs": 60, "batch_size": 8},
    "checkpoints": {"every_steps": 5},
    "parties": {"active": "bank", "passive": ["lab"]},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


class Party:
    """A command of this program, in a process of its own."""

    def __init__(self, where: Path, *words: str) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        self.log = where / f"{words[0]}-{time.monotonic_ns()}.log"
        with self.log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "veracausa.cli.main", "federation", *words],
                cwd=where,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A suite that was started in the background has Ctrl-C switched off.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def hear(self, words: str, patience: float = 150.0) -> None:
        deadline = time.monotonic() + patience
        while words not in self.said:
            assert time.monotonic() < deadline, f"never said {words!r}:\n{self.said}"
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)


def test_ctrl_c_is_one_sentence_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(tomli_w.dumps(JOB))
    for name, column in (("bank", "y"), ("lab", "a")):
        rows = "".join(f"p{n},{n % 2 if column == 'y' else n % 7}\n" for n in range(200))
        (tmp_path / f"{name}.csv").write_text(f"id,{column}\n{rows}")
    for words in (
        f"init job.toml --server bank@localhost:{free_port()} --as bank --data bank.csv --out bank",
        "join bank/invitation.zip --party lab --data lab.csv --out lab",
        "approve bank lab/lab.request.zip --yes",
        "join lab --signed bank/lab.signed.zip",
    ):
        step = Party(tmp_path, *words.split())
        assert step.process.wait(60) == 0, step.said
    parties: list[Party] = []

    def start(name: str) -> Party:
        parties.append(Party(tmp_path, "run", name, "--yes"))
        return parties[-1]

    try:
        alone = start("bank")
        alone.hear("waiting for lab")
        check_stopped(alone, alone.interrupt(), "bank")
        bank, lab = start("bank"), start("lab")
        lab.hear("starts at step 0")
        while not list((tmp_path / "lab/run/parties/lab/checkpoints").glob("*")):
            assert lab.process.poll() is None, lab.said
            time.sleep(0.02)
        check_stopped(lab, lab.interrupt(), "lab")
        for row in ("model", "epochs", "defense", "encryption", "matching"):
            assert f"\n{row} " in lab.said
        bank.hear("lost party 'lab': stopped by its operator; waiting for its return")
        again = start("lab")
        assert again.process.wait(200) == 0, again.said
        assert bank.process.wait(60) == 0, bank.said
        assert "starts at step 0" not in again.said
    finally:
        for party in parties:
            party.end()


def check_stopped(party: Party, code: int, name: str) -> None:
    assert code == 130, party.said
    assert "stopped by Ctrl-C" in party.said
    assert party.said.endswith(f"go on with: veracausa federation run {name} --yes\n"), party.said
    assert "Traceback" not in party.said
    assert "Aborted" not in party.said
