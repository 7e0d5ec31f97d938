"""What TensorBoard and MLflow are told of a run, with the real packages where they are there, and what they are not."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import Names

import veracausa
from veracausa.errors import InputError
from veracausa.report.tracking import Tracker

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"
SECRET = "ada-lovelace"
EPOCH: Any = {"event": "epoch", "party": SECRET, "epoch": 2, "test": {"accuracy": 0.5, "worst": float("nan")}}


class Told:
    """A store that keeps what it is told."""

    def __init__(self, breaks: bool = False) -> None:
        self.breaks = breaks
        self.log: list[Any] = []

    def begin(self, name: str, folder: Path) -> None:
        self.log.append(("begin", name))

    def settings(self, told: Mapping[str, str]) -> None:
        self.log.append(("settings", dict(told)))

    def score(self, name: str, value: float, step: int) -> None:
        if self.breaks:
            raise OSError("disk full\nmore")
        self.log.append((name, value, step))

    def end(self, done: bool) -> None:
        self.log.append(("end", done))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run whose parties, columns, data and attacks have names that nobody else should learn."""
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "example"))
    config = (folder / "config.toml").read_text()
    more = f'\n[party.{SECRET}.data]\npath = "/home/{SECRET}/rows.csv"\nid = "{SECRET}"\n'
    (folder / "config.toml").write_text(config + more)
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {
        "parties": {SECRET: {"role": "passive", "bytes_sent": 3, "columns": [{"name": SECRET, "least": 4711}]}},
        "attacks": {"inverse": {"leakage": 0.62, "party": SECRET}, f"../{SECRET}": {"leakage": 0.1}},
        "strongest": {"attack": "inverse", "leakage": 0.62, "party": SECRET},
        "baselines": {"active_only": {"accuracy": 0.25}, SECRET: {"accuracy": 0.1}},
        "notes": [SECRET],
        "class_names": [SECRET],
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_settings_scores_and_what_was_read_are_told_and_no_name(run_dir: Path) -> None:
    told = Told()
    with Tracker("told", told) as observer:
        observer({"event": "folder", "path": str(run_dir)})
        observer({"event": "step", "step": 1})
        observer(EPOCH)
        observer({**EPOCH, "baseline": True})
    assert told.log[0] == ("begin", "example")
    assert told.log[1][0] == "settings"
    assert told.log[1][1]["seed"].isdigit()
    assert ("test/accuracy", 0.5, 2) in told.log
    assert ("baseline/test/accuracy", 0.5, 2) in told.log
    assert ("leakage", 0.62, 2) in told.log
    assert ("attacks/inverse/leakage", 0.62, 2) in told.log
    assert ("baselines/active_only/accuracy", 0.25, 2) in told.log
    assert told.log[-1] == ("end", True)
    assert SECRET not in json.dumps(told.log)
    assert str(run_dir.parent) not in json.dumps(told.log)
    assert "4711" not in json.dumps(told.log)


def test_a_run_that_never_began_leaves_nothing_and_one_that_failed_is_marked(run_dir: Path, tmp_path: Path) -> None:
    told = Told()
    with Tracker("told", told):
        pass
    with Tracker("told", told) as observer:
        observer({"event": "folder", "path": str(tmp_path / "nowhere")})
    assert told.log == []
    stopped = Tracker("told", told)
    stopped({"event": "folder", "path": str(run_dir)})
    stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert told.log[-1] == ("end", False)
    assert "leakage" not in {entry[0] for entry in told.log}


def test_a_store_that_fails_is_told_once_and_the_run_goes_on(run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "veracausa"), Tracker("told", Told(breaks=True)) as observer:
        observer({"event": "folder", "path": str(run_dir)})
        observer(EPOCH)
        observer(EPOCH)
    assert [record.getMessage() for record in caplog.records] == [
        "--track told: failed and was given up (disk full); the run goes on without it"
    ]


def test_another_store_and_a_missing_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, check=Names("tensorbord", "tensorboard")):
        veracausa.track("tensorbord")
    for name in ("tensorboard", "mlflow"):
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
        with pytest.raises(InputError, match=rf"--track {name}: .*pip install \"veracausa\[{name}\]\""):
            veracausa.track(name)


def test_tensorboard_reads_what_was_written(run_dir: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with veracausa.track("tensorboard") as observer:
        observer({"event": "folder", "path": str(run_dir)})
        observer(EPOCH)
    found = EventAccumulator(str(run_dir / "tensorboard"))
    found.Reload()
    tags = found.Tags()["tensors"]
    assert {"test/accuracy", "leakage", "attacks/inverse/leakage"} <= set(tags)
    assert [event.step for event in found.Tensors("test/accuracy")][:1] == [2]
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in (run_dir / "tensorboard").iterdir())


@pytest.mark.slow  # mlflow makes a database of forty tables first: half a minute on a busy core
def test_mlflow_reads_what_was_written(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    from mlflow.tracking import MlflowClient

    with veracausa.track("mlflow") as observer:
        observer({"event": "folder", "path": str(run_dir)})
        observer(EPOCH)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("veracausa")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["leakage"] == 0.62
    assert run.data.params["seed"].isdigit()
    assert SECRET not in str(run.to_dictionary())
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
