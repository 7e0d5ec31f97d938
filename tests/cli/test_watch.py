"""`--watch`: the page is there while the run runs, shows its numbers, and is gone afterwards, also after Ctrl-C."""

from __future__ import annotations

import _thread
import json
import re
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w

from veracausa.cli import main as cli
from veracausa.cli.progress import ProgressDisplay
from veracausa.data.causal import load_causal

JOB: dict[str, Any] = {
    "name": "mine",
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 1, "batch_size": 256},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    (tmp_path / "job.toml").write_text(tomli_w.dumps(JOB))
    yield
    signal.signal(signal.SIGINT, before)


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["veracausa", *arguments])
    try:
        cli.main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def at_event(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wanted: Callable[[Mapping[str, Any]], bool],
    then: Callable[[], None] = lambda: None,
) -> list[tuple[str, dict[str, Any]]]:
    """Where the page was and what it said, once, when the run reports what is wanted."""
    found: list[tuple[str, dict[str, Any]]] = []
    shown = ProgressDisplay.__call__

    def hear(self: Any, event: Mapping[str, Any]) -> None:
        shown(self, event)
        if wanted(event) and not found:
            printed = re.search(r"http://127\.0\.0\.1:\d+/\S+/", capsys.readouterr().err)
            assert printed is not None
            with urllib.request.urlopen(printed[0] + "state.json", timeout=5) as answer:
                found.append((printed[0], json.load(answer)))
            then()

    monkeypatch.setattr(ProgressDisplay, "__call__", hear)
    return found


def check_gone(url: str) -> None:
    assert not [thread for thread in threading.enumerate() if thread.name == "live page"]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_a_training_is_watched(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = at_event(monkeypatch, capsys, lambda event: event["event"] == "epoch" and "test" in event)
    assert leave(monkeypatch, "train", "job.toml", "--watch") == 0
    ((url, told),) = found
    assert (told["what"], told["run"], told["state"]) == ("veracausa train", "mine", "running")
    assert told["step"] == told["steps"] > 0
    assert told["epochs"][0]["test"]["accuracy"] >= 0
    check_gone(url)


def test_ctrl_c_closes_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = at_event(monkeypatch, capsys, lambda event: event["event"] == "step", _thread.interrupt_main)
    assert leave(monkeypatch, "train", "job.toml", "--watch") == 130
    check_gone(found[0][0])


def test_a_discovery_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_causal("synthetic", attributes=4, edges=4, rows=120, seed=1)
    pl.DataFrame(data.values, schema=["a", "b", "c", "d"]).write_csv(tmp_path / "four.csv")
    found = at_event(monkeypatch, capsys, lambda event: event["event"] == "progress")
    parties = ("--party", "one=a,b", "--party", "two=c,d", "--encryption", "none")
    assert leave(monkeypatch, "discover", "four.csv", *parties, "--watch") == 0
    ((url, told),) = found
    assert (told["what"], told["run"], told["state"]) == ("veracausa discover", "four", "running")
    assert 0 <= told["share"] <= 1
    check_gone(url)


def test_a_job_that_is_refused_names_no_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(monkeypatch, "train", "nojob.toml", "--watch") == 2
    said = capsys.readouterr().err
    assert "Live page" not in said
    assert "no such file" in said


def test_without_it_nothing_listens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nobody asked for a page")

    monkeypatch.setattr("veracausa.report.live_page.LivePage.__init__", refuse)
    assert leave(monkeypatch, "train", "job.toml") == 0
    assert "Live page" not in capsys.readouterr().err
