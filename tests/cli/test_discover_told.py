"""`veracausa discover` with effects, open directions and tiers: the terminal, the options, what is announced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from told_graph import written
from veracausa.cli.discover import _check_settings, _in_one_place, _tiers, _understood, print_discovery, together
from veracausa.cli.main import app
from veracausa.cli.progress import ProgressDisplay
from veracausa.discovery import DEFAULT_METHOD
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods import methods
from veracausa.errors import InputError

NAMES = ("age", "bmi", "dose", "crp", "hba1c", "ldl")
EDGES = (
    ("age", "bmi"),
    ("age", "hba1c"),
    ("bmi", "dose"),
    ("bmi", "crp"),
    ("bmi", "hba1c"),
    ("dose", "ldl"),
    ("hba1c", "ldl"),
)
TWO = ("--party", "hospital=age,bmi,dose", "--party", "lab=crp,hba1c,ldl")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["discover", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def linear(rows: int = 800) -> None:
    """Seven straight lines among six columns, as many as a first user has."""
    rng = np.random.default_rng(3)
    table = rng.normal(size=(rows, len(NAMES)))
    for cause, effect in EDGES:  # causes come before their effects
        table[:, NAMES.index(effect)] += 0.7 * table[:, NAMES.index(cause)]
    pl.DataFrame(table, schema=list(NAMES)).write_csv("patients.csv")
    Path("edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in EDGES), encoding="utf-8")


def test_a_linear_table_gives_its_whole_skeleton(here: Path) -> None:
    linear()
    printed = call("patients.csv", *TWO, "--truth", "edges.csv", "--method", "moments", "--engine", "floating")
    summary = json.loads(Path("runs/patients/summary.json").read_text(encoding="utf-8"))
    assert summary["skeleton_f1"] == 1.0
    assert summary["edges"] == 7
    for cause, effect in summary["undirected"]:
        assert any(line.split()[:3] == [cause, "—", effect] for line in printed.splitlines())


def test_the_terminal_shows_lines_slopes_and_shares(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_discovery(written(here / "run", parties=True))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cause", "effect", "deviations", "of", "variance", "shape", "whose"] in rows
    assert ["bmi", "→", "crp", "−0.30", "50", "%", "falls", "clinic", "→", "lab"] in rows
    assert ["age", "—", "bmi", "+0.42", "12", "%", "rises", "clinic"] in rows
    assert ["sex", "→", "crp", "6", "%", "categories", "clinic", "→", "lab"] in rows
    assert any(row[:1] == ["WARNING:"] for row in rows)
    assert any(row[:2] == ["—:", "the"] for row in rows)


def test_confidence_of_resamples_is_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sure = {"confidence_": np.full((4, 4), 0.5), "skeleton_confidence_": np.full((4, 4), 0.96), "bootstrap": 25}
    print_discovery(written(here / "run", **sure))
    printed = capsys.readouterr().out
    assert ["age", "—", "bmi", "+0.42", "12", "%", "rises", "96", "%"] in [
        line.split() for line in printed.splitlines()
    ]


def test_tiers_are_read_from_the_earliest_to_the_latest() -> None:
    assert _tiers(("age, sex", "bmi,dose")) == [["age", "sex"], ["bmi", "dose"]]
    assert _tiers(()) is None
    with pytest.raises(InputError, match="'age' is named twice"):
        _tiers(("age", "age,bmi"))
    with pytest.raises(InputError, match="write it as COLUMN,COLUMN"):
        _tiers((" ,",))


def test_a_method_is_not_given_what_it_does_not_know() -> None:
    assert _understood("notears", {"engine": "floating", "bootstrap": None}) == {}
    for chosen, said in (
        ({"engine": "federated"}, "--engine federated: notears needs all columns in one place"),
        ({"tiers": [["a"]]}, "--tier: notears does not know it"),
        ({"networks": True}, "--networks: notears does not know it"),
    ):
        with pytest.raises(InputError, match=said):
            _understood("notears", chosen)
    assert _understood("vfedcd", {"engine": "floating"}) == {"engine": "floating"}
    assert _understood("notear", {"networks": True}) == {"networks": True}, "a typo is refused elsewhere"


def test_floating_is_what_the_method_calls_its_engine_in_one_place() -> None:
    assert _in_one_place(Literal["one place", "federated"] | None) == "one place"
    assert _in_one_place(Literal["floating", "federated"] | None) == "floating"
    assert _in_one_place(Literal["one place", "federated"]) == "one place"
    assert _in_one_place(str) == "floating"


def test_a_setting_of_vfedcd_without_its_name_says_what_to_add() -> None:
    job = DiscoveryJob(method="moments", data={"name": "given"}, settings={"epochs": 3})
    with pytest.raises(InputError, match=r"--set epochs: a setting of vfedcd.*add --method vfedcd"):
        _check_settings(job, given=False)
    _check_settings(job, given=True)
    _check_settings(job.model_copy(update={"settings": {"starts": 2}}), given=False)


def test_the_default_comes_from_one_place() -> None:
    assert DiscoveryJob(data={}).method == DEFAULT_METHOD
    assert DEFAULT_METHOD in methods.names()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"seconds": 6.2, "bytes": 4_100_000}, "about 6 s and 4.1 MB of messages"),
        ({"seconds": 0.2}, "about 1 s"),
        ({"method": "vfedcd", "seconds": 200.0, "bytes": 0}, "vfedcd: about 3 min 20 s"),
        ({}, ""),
    ],
)
def test_cost_is_announced(event: dict[str, float], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay() as progress:
        progress({"event": "announced", **event})
    assert capsys.readouterr().err.strip() == said


def test_what_several_parties_say_is_said_once() -> None:
    notes = ["hospital: squares are left out", "sums: one", "lab: squares are left out", "one of two: and alone"]
    assert together(notes) == ["hospital, lab: squares are left out", "sums: one", "one of two: and alone"]
