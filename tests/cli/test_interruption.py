"""Ctrl-C: a sentence, exit code 130, what to type to go on, and that command goes on."""

from __future__ import annotations

import _thread
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w

from veracausa.cli import main as cli
from veracausa.cli.interruption import GoOn
from veracausa.cli.progress import ProgressDisplay
from veracausa.data.causal import load_causal
from veracausa.wire import threads
from veracausa.wire.threads import run_threads, thread_links

JOB: dict[str, Any] = {
    "name": "mine",
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 2, "batch_size": 256},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    # A suite that was started in the background has Ctrl-C switched off.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(JOB))
    yield path
    signal.signal(signal.SIGINT, before)


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["veracausa", *arguments])
    try:
        cli.main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def interrupt_at(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
    """Press Ctrl-C, once, when the command reports what is wanted."""
    pressed = threading.Event()
    shown = ProgressDisplay.__call__

    def hear(self: Any, event: Mapping[str, Any]) -> None:
        shown(self, event)
        if wanted(event) and not pressed.is_set():
            pressed.set()
            _thread.interrupt_main()

    monkeypatch.setattr(ProgressDisplay, "__call__", hear)


def command_to_go_on(text: str) -> list[str]:
    assert "stopped by Ctrl-C" in text
    assert "Traceback" not in text
    words = shlex.split(text.rpartition("go on with: ")[2].strip())
    assert words[0] == "veracausa"
    return words[1:]


def state_of(run: Path) -> Mapping[str, Any]:
    return json.loads((run / "status.json").read_text())


@pytest.mark.parametrize("link", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_training_stops_and_goes_on(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_at(monkeypatch, lambda event: event["event"] == "epoch" and event["epoch"] == 1)
    assert leave(monkeypatch, "train", "job.toml", "--set", f"runtime.link={link}") == 130
    stopped = state_of(tmp_path / "runs/mine")
    assert (stopped["state"], stopped["error"]) == ("stopped", "stopped by its operator")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("active", "passive"))]
    again = command_to_go_on(capsys.readouterr().err)
    assert again == ["train", "job.toml", "--set", f"runtime.link={link}", "--resume", "--out", "runs/mine"]
    assert leave(monkeypatch, *again) == 0
    assert state_of(tmp_path / "runs/mine")["state"] == "done"


def test_an_audit_stops_and_keeps_the_training_and_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_at(monkeypatch, lambda event: event["event"] == "attack")
    settings = ("--set", "inverse.epochs=1", "--set", "inverse.channels=8", "--set", "inverse.blocks=1")
    asked = ("audit", "job.toml", "--no-labels", "--attacks", "inverse", "--victims", "20", *settings)
    assert leave(monkeypatch, *asked) == 130
    run = tmp_path / "runs/mine"
    assert state_of(run)["state"] == "done"
    assert state_of(run)["audit"]["state"] == "stopped"
    assert (run / "report.html").is_file()
    again = command_to_go_on(capsys.readouterr().err)
    assert leave(monkeypatch, *again) == 0
    assert state_of(run)["audit"]["state"] == "done"


def test_a_discovery_stops_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_causal("synthetic", attributes=4, edges=4, rows=120, seed=1)
    pl.DataFrame(data.values, schema=["a", "b", "c", "d"]).write_csv(tmp_path / "four.csv")
    interrupt_at(monkeypatch, lambda event: event["event"] == "progress" and event["share"] > 0)
    quick = ("--method", "vfedcd", "--set", "epochs=4", "--set", "refit_epochs=2", "--set", "searches=[]")
    assert leave(monkeypatch, "discover", "four.csv", "--party", "x=a,b", "--party", "y=c,d", *quick) == 130
    assert state_of(tmp_path / "runs/four")["state"] == "stopped"
    again = command_to_go_on(capsys.readouterr().err)
    assert leave(monkeypatch, *again) == 0
    assert state_of(tmp_path / "runs/four")["state"] == "done"


def test_a_frontier_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    interrupt_at(monkeypatch, lambda event: event["event"] == "epoch")
    assert leave(monkeypatch, "frontier", "job.toml", "--defenses", "prune") == 130
    again = command_to_go_on(capsys.readouterr().err)
    assert again == ["frontier", "job.toml", "--defenses", "prune", "--resume"]


def test_before_anything_is_written_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    assert GoOn().sentence(["train"]) == "stopped by Ctrl-C before anything was written"
    assert GoOn(tmp_path / "none").sentence(["train"]) == "stopped by Ctrl-C before anything was written"
    assert GoOn(by_itself=True).sentence(["reproduce", "a/b"]).endswith("go on with: veracausa reproduce a/b")
    resumed = ["audit", "job.toml", "--resume"]
    assert GoOn().sentence(resumed).endswith("go on with: veracausa audit job.toml --resume")
    assert GoOn(tmp_path).sentence(resumed).endswith(f"veracausa audit job.toml --resume --out {tmp_path}")
    assert GoOn(tmp_path).sentence(["train", "--out=x", "--resume"]).endswith("veracausa train --out=x --resume")


def test_a_party_that_computes_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STOP_SECONDS", 0.2)
    let_go = threading.Event()

    def hangs(link: Any) -> None:
        _thread.interrupt_main()
        let_go.wait(60)

    links = thread_links(["a", "b"], timeout=60)
    with pytest.raises(KeyboardInterrupt):
        run_threads({"a": hangs, "b": lambda link: link._collect("a")}, links)
    let_go.set()


@pytest.mark.slow
def test_a_real_signal_leaves_without_an_abort(job: Path) -> None:
    """The interpreter was taken down under threads that still computed: `terminate called`, exit code 134."""
    words = ["train", "job.toml", "--set", "training.epochs=500", "--out", "run"]
    command = [sys.executable, "-m", "veracausa.cli.main", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=job.parent)  # Ctrl-C is on, see `job`
    assert process.stderr is not None
    while "epoch 2/" not in process.stderr.readline():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(60) == 130
    assert "terminate called" not in rest
    assert "go on with: veracausa train job.toml --set training.epochs=500 --out run --resume" in rest


def test_a_library_that_is_stopped_while_it_loads_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(**_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as pressed:
            raise ImportError("initialization failed") from pressed

    monkeypatch.setattr(cli, "app", load)
    assert leave(monkeypatch, "discover") == 130
    assert capsys.readouterr().err == "veracausa: stopped by Ctrl-C\n"


def test_an_error_that_nobody_stopped_is_not_called_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise ImportError("initialization failed")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(ImportError):
        leave(monkeypatch, "discover")


def test_the_program_is_stopped_before_its_command_line_is_there() -> None:
    stop = "import builtins; kept = builtins.__import__\n"
    stop += "def load(name, *given, **named):\n"
    stop += "    if name == 'veracausa.cli.main': raise KeyboardInterrupt\n"
    stop += "    return kept(name, *given, **named)\n"
    stop += "from veracausa.__main__ import program; builtins.__import__ = load; program()"
    found = subprocess.run([sys.executable, "-c", stop], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (130, "veracausa: stopped by Ctrl-C\n")
