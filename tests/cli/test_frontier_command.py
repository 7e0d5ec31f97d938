"""`veracausa frontier`: trains, attacks, writes tables and a page, goes on where it was, and refuses in a sentence."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
import tomli_w
import torch
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.config import load_job
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.errors import InputError
from veracausa.experiments import trial as trials
from veracausa.registry import Options

JOB: dict[str, Any] = {
    "name": "mine",
    "data": {"name": "digits", "train": 600, "test": 200},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 2, "batch_size": 128},
    "risk": {"samples": 2, "rank": 2},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


class ScaleOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("factor",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"factor": (0.0,)}

    factor: float = 1.0


class Scale(Defense):
    """Multiplies what is sent; by nothing, nothing is left to read."""

    options: ScaleOptions

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.options.factor * r


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("COLUMNS", "140")
    defenses.names()
    defenses.register("scale", ScaleOptions)(Scale)
    yield
    del defenses._entries["scale"]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(JOB), encoding="utf-8")
    return path


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.draws
def test_a_sweep_from_the_job_to_the_recommendation_and_again(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "found"
    asked = [job, "--defenses", "scale", "--budget", "5m", "--quick", "--parties", "passive_1", "--out", out]
    asked += ["--victims", 60, "--auxiliary", 120]
    shown = call("frontier", *asked, "--leakage", 0.01)
    assert "factor = 0" in shown
    assert "weaker attackers" in shown
    snippet = tomllib.loads(shown[shown.index("[defense]") : shown.index("Page:")])
    assert snippet == {"defense": {"name": "scale", "factor": 0.0}}
    assert load_job({**JOB, **snippet}).defense.name == "scale"
    rows = list(csv.DictReader((out / "frontier.csv").open(encoding="utf-8")))
    assert [row["defense"] for row in rows] == ["none", "scale"]
    table = pl.read_parquet(out / "frontier.parquet")
    assert table["leakage"].to_list() == [float(row["leakage"]) for row in rows]
    # What is sent undefended can be read, and nothing can be read from nothing.
    assert table["leakage"][0] > 0.1 > 0.01 >= table["leakage"][1]
    assert set(table["coverage"]) == {"whole training"}
    assert table["leakage_last_model"][0] <= table["leakage"][0]
    assert table["party"].to_list() == ["passive_1", "passive_1"]
    assert "Not attacked: passive_2." in shown
    page = (out / "frontier.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "undefended" in page
    assert "nothing sent" in page
    assert all((out / row["run"] / "report.html").is_file() for row in rows)
    assert "| scale | factor = 0 |" in (out / "frontier.md").read_text(encoding="utf-8")

    with pytest.raises(InputError, match="--resume"):
        call("frontier", *asked)

    def never(*arguments: object, **named: object) -> None:
        raise AssertionError("it trains again")

    monkeypatch.setattr(trials, "train", never)
    found = json.loads(call("frontier", *asked, "--resume", "--accuracy", 0.99, "--json").splitlines()[-1])
    assert found["recommendation"]["toml"] is None
    assert found["recommendation"]["sentence"].startswith("No setting that was tried reached")
    assert [row["leakage"] for row in found["trials"]] == table["leakage"].to_list()
    assert found["complete"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--defenses", "laplase"], "laplace"),
        (["--defenses", ","], "at least one"),
        (["--defenses", "prune", "--budget", "soon"], "--budget soon"),
        (["--defenses", "prune", "--cuts", "3,x"], "--cuts 3,x"),
        (["--defenses", "prune", "--cuts", "99"], "cut 99"),
        (["--defenses", "prune", "--accuracy", "0.5", "--leakage", "0.5"], "one of them"),
        (["--defenses", "prune", "--parties", "bob"], "bob"),
    ],
)
def test_wrong_input_is_one_sentence(job: Path, tmp_path: Path, arguments: list[str], named: str) -> None:
    with pytest.raises(InputError, match=named) as refused:
        call("frontier", job, *arguments, "--out", tmp_path / "out")
    assert refused.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_regression_has_no_accuracy_to_weigh(tmp_path: Path) -> None:
    rows = [f"{i % 7},{i % 5},{i % 11},{i % 4},{i / 7:.3f}" for i in range(80)]
    (tmp_path / "all.csv").write_text("\n".join(["a,b,c,d,y", *rows]), encoding="utf-8")
    job = tmp_path / "job.toml"
    data = {"name": "csv", "path": str(tmp_path / "all.csv"), "label": "y"}
    job.write_text(tomli_w.dumps({"data": data, "model": {"name": "mlp", "cut": 1}}), encoding="utf-8")
    with pytest.raises(InputError, match="no classes"):
        call("frontier", job, "--defenses", "prune", "--out", tmp_path / "out")
