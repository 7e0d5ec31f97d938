"""Blind training on the command line: init, settings that make no sense, list, doctor, progress."""

from __future__ import annotations

import builtins
import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from veracausa.cli import doctor
from veracausa.cli import init as init_module
from veracausa.cli.main import app
from veracausa.cli.progress import ProgressDisplay
from veracausa.config import Job, load_job
from veracausa.data.sources import datasets
from veracausa.errors import InputError
from veracausa.features import feature_maps

BLIND: dict[str, Any] = {"data": {"name": "digits"}, "training": {"protocol": "blind"}}
IN_NEITHER = {"party"}
FOR_SPLIT = {"defense", "risk", "transcript"}
FOR_BLIND = {"blind", "features"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def call(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.parametrize("protocol", ["blind", "split"])
@pytest.mark.parametrize("data", datasets.names())
def test_init_writes_a_job_of_either_protocol(data: str, protocol: str, here: Path) -> None:
    printed = call("init", "--data", data, "--protocol", protocol)
    assert "because" not in printed
    job = load_job(here / "job.toml")
    assert job.training.protocol == protocol
    assert job.notes() == ()
    sections = set(tomllib.loads((here / "job.toml").read_text(encoding="utf-8")))
    left_out = FOR_SPLIT | {"model"} if protocol == "blind" else FOR_BLIND
    assert sections >= set(Job.model_fields) - IN_NEITHER - left_out
    assert not sections & (FOR_SPLIT if protocol == "blind" else FOR_BLIND)


def test_every_setting_of_blind_is_in_the_job_or_a_comment(here: Path) -> None:
    text = init_module.job_text("csv", protocol="blind")
    rare = {"label_prior", "label_bins", "clip", "block_rows"}
    for name in set(type(load_job(BLIND).blind).model_fields) - rare:
        assert f"{name} = " in text, name


def test_auto_recommends_in_a_sentence_where_nobody_can_be_asked(here: Path) -> None:
    assert "blind training, because no training row is opened" in call("init")
    assert load_job(here / "job.toml").training.protocol == "blind"


def test_a_first_job_asks_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_module, "_terminal", lambda: True)
    result = CliRunner().invoke(app, ["init"])
    assert result.exit_code == 0, result.output
    assert "blind training, because" in result.output
    assert "?" not in result.output


@pytest.mark.parametrize(("answer", "protocol"), [("y", "split"), ("n", "blind"), ("", "blind")])
def test_auto_asks_on_a_terminal(answer: str, protocol: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_module, "_terminal", lambda: True)
    result = CliRunner().invoke(app, ["init", "--protocol", "auto"], input=f"{answer}\n")
    assert result.exit_code == 0, result.output
    assert "products of two parties' columns" in result.output
    assert f"{protocol} training, because" in result.output
    assert load_job(here / "job.toml").training.protocol == protocol


def test_an_unknown_protocol_is_refused(here: Path) -> None:
    assert CliRunner().invoke(app, ["init", "--protocol", "blynd"]).exit_code == 2
    with pytest.raises(InputError, match=r"training\.protocol"):
        load_job({**BLIND, "training": {"protocol": "blynd"}})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a defense": ({"defense": {"name": "prune"}}, "defense.name: 'prune' changes payloads"),
    "a party's defense": (
        {"party": {"passive_2": {"defense": {"name": "laplace"}}}},
        "party.passive_2.defense.name: 'laplace' changes payloads",
    ),
    "a transcript": ({"transcript": {"record": True}}, "transcript.record: blind training has no payload"),
    "an unknown map": ({"features": {"name": "spline"}}, "did you mean 'splines'"),
    "a party's unknown map": ({"party": {"passive_1": {"features": {"name": "spline"}}}}, "did you mean 'splines'"),
    "an unknown setting": ({"blind": {"epsilonn": 1}}, "blind.epsilonn: no such setting; did you mean 'epsilon'"),
    "epsilon of 0": ({"blind": {"epsilon": 0}}, "blind.epsilon"),
    "an unknown labels": ({"blind": {"labels": "some"}}, "blind.labels"),
    "a block of odd rows": ({"blind": {"block_rows": 1000}}, "blind.block_rows"),
    "a ridge in words": ({"blind": {"ridge": "strong"}}, "blind.ridge"),
    "a map's unknown option": ({"features": {"name": "splines", "knotz": 3}}, "features.knotz: no such setting"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_settings_are_refused_in_one_sentence(what: str) -> None:
    settings, said = REFUSED[what]
    with pytest.raises(InputError) as caught:
        load_job({**BLIND, **settings})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_defense_of_the_active_party_alone_is_no_reason_to_refuse() -> None:
    load_job({**BLIND, "party": {"active": {"defense": {"name": "prune"}}}})


def test_settings_without_effect_are_noted() -> None:
    assert load_job(BLIND).notes() == ()
    (note,) = load_job({**BLIND, "blind": {"label_epsilon": 1.0}}).notes()
    assert note == 'blind.label_epsilon has no effect: blind.labels is "none", not "private"'
    assert load_job({**BLIND, "blind": {"label_epsilon": 1.0, "labels": "private"}}).notes() == ()
    (note,) = load_job({**BLIND, "blind": {"delta": 1e-6}}).notes()
    assert "blind.delta" in note
    (note,) = load_job({**BLIND, "training": {"protocol": "blind", "epochs": 3}}).notes()
    assert note.startswith("training.epochs has no effect: blind training solves its head from sums")
    split = {"data": {"name": "digits"}, "model": {"name": "convnet"}, "blind": {"epsilon": 1.0}}
    (note,) = load_job(split).notes()
    assert note.startswith("blind.epsilon has no effect")


def test_list_has_every_feature_map_with_settings(here: Path) -> None:
    assert "features" in call("list")
    found = json.loads(call("list", "features", "--json"))["features"]
    assert [entry["name"] for entry in found] == list(feature_maps.names())
    for entry in found:
        assert entry["description"]
    assert "splines" in call("list", "features")


def test_the_doctor_says_what_blind_training_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_encryption().state == "ok"
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "seal":
            raise ImportError("No module named 'seal'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    found = doctor.check_encryption()
    assert found.state == "warn"
    assert 'pip install "veracausa[he]"' in found.fix


PHASES = [
    {"event": "phase", "what": "features", "party": "a", "share": 0.0},
    {"event": "phase", "what": "features", "party": "b", "share": 1.0},
    {"event": "phase", "what": "moments", "party": "a", "share": 0.5},
    {"event": "phase", "what": "something new", "party": "a", "share": 0.5},
    {"event": "phase", "what": "scores", "party": "a", "share": 1.0},
    {"event": "epoch", "epoch": 1, "test": {"accuracy": 0.9}},
    {"event": "done"},
]


def test_the_phases_are_lines_or_a_bar() -> None:
    text, drawn = io.StringIO(), io.StringIO()
    for console in (Console(file=text, width=200), Console(file=drawn, width=80, force_terminal=True)):
        with ProgressDisplay(console) as progress:
            for event in PHASES:
                progress(event)
    lines = ["features, at home", "sums over rows", "something new", "scores of rows to predict"]
    lines.append("trained  test accuracy 90.0 %")
    assert text.getvalue().splitlines() == lines
    assert "sums over rows" in drawn.getvalue()
