"""A party that fails or falls silent in the middle of training: it is named, the run is marked failed, exit code 1."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest

import veracausa
from veracausa.cli import main as cli
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.errors import RunError, VeracausaError
from veracausa.registry import Options
from veracausa.runs.store import Store, common_step

JOB: dict[str, Any] = {
    "name": "failing",
    "data": {"name": "digits", "train": 160, "test": 20},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 2, "batch_size": 32},
    "checkpoints": {"every_steps": 2},
    "party": {"passive_2": {"defense": {"name": "faulty"}}},
    "runtime": {"device": "cpu", "cpu_threads": 1, "timeout": 20},
}


class Raises(Defense):
    """Fails at the fourth exchange."""

    def forward(self, x, ids, step):
        if step == 3:
            raise ValueError("the mask has no ones")
        return super().forward(x, ids, step)


class RaisesOurs(Raises):
    def protect(self, r, x, ids):
        raise RunError("surrogates: the decoder diverged")


class Sleeps(Defense):
    """Falls silent at the fourth exchange, for as long as the test lasts."""

    over = threading.Event()

    def backward(self, context, grad, local_steps=1):
        if context.step == 3:
            Sleeps.over.wait(30)
        super().backward(context, grad, local_steps)


class WrongShape(Defense):
    def protect(self, r, x, ids):
        return r[:, :1]


@pytest.fixture
def faulty(monkeypatch):
    defenses.names()

    def install(defense: type[Defense]) -> None:
        monkeypatch.setattr(defenses, "_entries", {**defenses._entries, "faulty": (defense, Options)})

    yield install
    Sleeps.over.set()
    Sleeps.over = threading.Event()


@pytest.mark.parametrize(
    ("defense", "kind", "sentence"),
    [
        (Raises, RunError, "party 'passive_2' failed: ValueError: the mask has no ones"),
        (RaisesOurs, RunError, "surrogates: the decoder diverged"),
        (WrongShape, VeracausaError, "payload"),
    ],
)
def test_the_party_that_failed_is_named(defense, kind, sentence, faulty, tmp_path):
    faulty(defense)
    with pytest.raises(kind) as failure:
        veracausa.train(JOB, tmp_path / "run")
    assert sentence in str(failure.value)
    assert failure.value.exit_code == 1
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["state"] == "failed"
    assert status["error"] == str(failure.value)
    assert not (tmp_path / "run/summary.json").exists()
    if defense is Raises:
        stores = [Store(tmp_path / "run", party) for party in ("active", "passive_1", "passive_2")]
        assert common_step(stores) == 2


def test_after_the_fault_is_mended_a_resume_finishes(faulty, tmp_path):
    faulty(Raises)
    with pytest.raises(RunError):
        veracausa.train(JOB, tmp_path / "run")
    faulty(Defense)
    run = veracausa.train(JOB, tmp_path / "run", resume=True)
    whole = veracausa.train(JOB, tmp_path / "whole")
    assert run.status["state"] == "done"
    assert run.status["error"] is None
    assert run.summary["test"] == whole.summary["test"]


@pytest.mark.parametrize(
    ("defense", "sentence"),
    [
        (Raises, "party 'passive_2' failed: ValueError: the mask has no ones"),
        (Sleeps, "lost party 'passive_2': silent for 2 s"),
    ],
)
def test_the_command_line_says_it_in_one_sentence(defense, sentence, faulty, tmp_path, monkeypatch, capsys):
    faulty(Defense)
    job = {**JOB, "training": {"epochs": 1, "batch_size": 32}}
    veracausa.train(job, tmp_path / "warm")  # a process's first steps take long; they are not the silence that is meant
    faulty(defense)
    file = tmp_path / "job.toml"
    file.write_text(veracausa.load_job(JOB, ["runtime.timeout=2"] if defense is Sleeps else []).to_toml())
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setattr(sys, "argv", ["veracausa", "train", str(file), "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    # A terminal may be narrow, the last line is not wrapped.
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last == f"veracausa: {sentence}"
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["state"] == "failed"
    assert status["error"] == sentence
