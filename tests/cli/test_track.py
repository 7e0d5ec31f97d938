"""`--track` on the command line: what a store hears of a whole run, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from refusals import Names
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.data.causal.patients import write_example
from veracausa.errors import InputError
from veracausa.report import tracking

JOB: dict[str, Any] = {
    "name": "mine",
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 1, "batch_size": 256},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


class Kept:
    """A store that keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def begin(self, name: str, folder: Path) -> None:
        self.told["name"] = name

    def settings(self, told: Mapping[str, str]) -> None:
        self.told |= told

    def score(self, name: str, value: float, step: int) -> None:
        self.told[name] = step, value

    def end(self, done: bool) -> None:
        self.told["done"] = done


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.chdir(tmp_path)
    store = Kept()
    monkeypatch.setattr(tracking, "STORES", {"kept": lambda: store})
    return store


def run(*arguments: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--quiet"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output


def test_a_training_is_told(kept: Kept) -> None:
    Path("job.toml").write_text(tomli_w.dumps(JOB))
    run("train", "job.toml", "--track", "kept", "--track", "kept")
    assert (kept.told["training.epochs"], kept.told["done"]) == ("1", True)
    assert kept.told["test/accuracy"][0] == 1
    assert kept.told["bytes_sent"][1] > 0


def test_a_discovery_is_told(kept: Kept) -> None:
    write_example(Path())
    columns = ["--party", "hospital=age,bmi,dose", "--party", "lab=crp,hba1c,ldl"]
    run("discover", "patients.csv", *columns, "--set", "encryption=none", "--track", "kept")
    assert kept.told["edges"][1] >= 5
    assert "hospital" not in str(kept.told)
    assert "hba1c" not in str(kept.told)


def test_another_store_is_refused_before_anything_starts(kept: Kept) -> None:
    Path("job.toml").write_text(tomli_w.dumps(JOB))
    with pytest.raises(InputError, check=Names("--track", "kapt", "kept")):
        run("train", "job.toml", "--track", "kapt")
    assert not Path("runs").exists()
    assert kept.told == {}
