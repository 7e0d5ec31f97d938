"""What the commands write and print."""

from __future__ import annotations

import io
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import veracausa
from veracausa.attacks import blind_attacks
from veracausa.audit.baseline import defended_by
from veracausa.audit.settings import attack_options, check_grants, quick_overrides
from veracausa.cli import console as console_module
from veracausa.cli import demo, doctor, init
from veracausa.cli import progress as progress_module
from veracausa.cli.main import app
from veracausa.cli.progress import ProgressDisplay
from veracausa.config import load_job
from veracausa.data.sources import datasets
from veracausa.errors import InputError
from veracausa.events import event_of
from veracausa.runs.folder import Run, write_json

EXAMPLE = Path(__file__).parent / "example_run"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path / "data"))
    # Rich measures the terminal; a wide one keeps a table's lines whole.
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def call(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def last_line(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


@pytest.mark.parametrize("name", datasets.names())
def test_init_writes_a_job_that_loads(name: str, here: Path) -> None:
    printed = call("init", "jobs/my.toml", "--data", name)
    assert "veracausa train jobs/my.toml" in printed
    job = load_job(here / "jobs" / "my.toml")
    assert job.data.name == name


def test_init_explains_every_section(here: Path) -> None:
    call("init", "--protocol", "split")
    text = (here / "job.toml").read_text(encoding="utf-8")
    sections = set(tomllib.loads(text))
    assert sections >= set(type(load_job(here / "job.toml")).model_fields) - {"party", "blind", "features"}
    settings = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    assert sum("#" in line for line in settings) > len(settings) / 2


def test_init_keeps_a_file_that_is_there(here: Path) -> None:
    (here / "job.toml").write_text("mine")
    with pytest.raises(InputError, match="--force"):
        call("init")
    assert (here / "job.toml").read_text() == "mine"
    call("init", "--force")
    load_job(here / "job.toml")


def test_init_refuses_unknown_data_and_folders(here: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'digits'"):
        call("init", "--data", "digit")
    with pytest.raises(InputError, match="is a folder"):
        call("init", str(here))
    assert list(here.iterdir()) == []


def test_report_of_one_run(here: Path) -> None:
    run = shutil.copytree(EXAMPLE, here / "run")
    assert "96.2 %" in call("report", "run")
    assert (run / "report.html").is_file()
    row = last_line(call("report", "run", "--json"))["runs"][0]
    assert (row["name"], row["model"]) == ("run", "convnet")


def test_report_of_several_runs(here: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(EXAMPLE, here / name)
    call("report", "a", "b", "--out", "pages/both.html")
    assert "2 runs compared" in (here / "pages" / "both.html").read_text(encoding="utf-8")
    assert not (here / "a" / "report.html").exists()


def test_report_has_no_place_for_a_single_run(here: Path) -> None:
    shutil.copytree(EXAMPLE, here / "run")
    with pytest.raises(InputError, match="comparison of several"):
        call("report", "run", "--out", "x.html")


def test_list_names_what_a_job_can_choose(here: Path) -> None:
    found = last_line(call("list", "--json"))
    registries = {
        "datasets",
        "models",
        "defenses",
        "surrogates",
        "attacks",
        "label_attacks",
        "column_attacks",
        "features",
    }
    assert set(found) == {*registries, "blind_attacks", "methods", "causal_data", "encryptions", "runs"}
    for kind in set(found) - {"runs"}:
        assert found[kind], kind
        for entry in found[kind]:
            assert entry["description"], entry
    assert "digits" in [entry["name"] for entry in found["datasets"]]
    convnet = next(entry for entry in found["models"] if entry["name"] == "convnet")
    assert convnet["description"]
    assert convnet["settings"]["cut"] == 6
    assert found["runs"] == []


def test_list_is_an_index_that_fits_a_screen(here: Path) -> None:
    shutil.copytree(EXAMPLE, here / "runs" / "first")
    printed = call("list")
    assert len(printed.splitlines()) <= 50
    named = set(re.split(r"[,\s]+", printed))
    for kind, entries in last_line(call("list", "--json")).items():
        assert {kind, *(entry["name"] for entry in entries)} <= named
    assert "Adds Laplace noise" not in printed


def test_list_shows_a_line_each_and_settings_with_a_kind(here: Path) -> None:
    lines = call("list", "all").splitlines()
    assert len([line for line in lines if line.startswith("laplace ")]) == 1
    assert lines[lines.index("encryptions") + 1].startswith("bfv")
    assert not any("cut = " in line for line in lines)
    assert "cut = 6" in call("list", "models")


def test_list_runs(here: Path) -> None:
    shutil.copytree(EXAMPLE, here / "runs" / "first")
    (here / "runs" / "something else").mkdir()
    printed = call("list", "runs")
    assert "first" in printed
    assert "96.2 %" in printed
    assert "something else" not in printed


def test_data_tells_what_is_missing_without_fetching(here: Path) -> None:
    found = {row["name"]: row for row in last_line(call("data", "--json"))["datasets"]}
    assert found["digits"]["state"] == "bundled"
    assert found["csv"]["state"] == "yours"
    assert found["mnist"]["state"] == "missing"
    assert str(here / "data" / "MNIST") in found["mnist"]["where"]
    assert not (here / "data").exists()


def test_data_that_cannot_be_fetched_is_code_1(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from veracausa.data import files

    def fail(path: Path, remote: object) -> None:
        raise InputError(f"{path.name} is missing")

    monkeypatch.setattr(files, "fetch", fail)
    assert "missing" in call("data", "mnist", "--fetch", code=1)


def test_data_refuses_an_unknown_name(here: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        call("data", "mnst")


def test_doctor(here: Path) -> None:
    answer = last_line(call("doctor", "--json"))
    assert answer["ok"] is True
    assert {check["state"] for check in answer["checks"]} <= {"ok", "warn"}


def test_doctor_fails_with_the_fix(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = doctor.Check("torch", "fail", "does not import", "reinstall it")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: broken,))
    assert "reinstall it" in call("doctor", code=1)


def test_demo_writes_a_report_and_takes_a_free_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The audits themselves are tested where they live; here: what the demo makes of two runs, and its own graph.
    def audit_job(job: Any, attacks: Any, out: Path, quick: bool, observer: Any) -> Run:
        trained = load_job(job)
        observer({"event": "start", "epochs": 1, "steps": 1})
        observer({"event": "attack", "attack": attacks[0], "party": "passive_1", "share": 0.0})
        run = Run(shutil.copytree(EXAMPLE, out))
        leaked = {"blind": 0.031, "split": 0.87}[trained.training.protocol]
        told = {"protocol": trained.training.protocol, "strongest": {"attack": attacks[0], "leakage": leaked}}
        situations = [
            {"as_run": True, "split": split, "leakage": 0.1 * (split == "test")} for split in ("train", "test")
        ]
        told |= {"blind_training": {"numbers": 9}, "blind_audit": {"situations": situations}}
        write_json(run.path / "summary.json", {**run.summary, **told})
        return run

    monkeypatch.setattr(veracausa, "audit_job", audit_job, raising=False)
    printed = call("demo")
    said = "Verdict: a partner reads 87 % of the training pictures in split training, and 0 % in blind training."
    assert said in printed
    assert "runs/demo/report.html" in printed
    assert "9 numbers" in printed
    assert re.search(r"\d of the 7 true edges were found", printed)
    summary = last_line(call("demo", "--json"))
    assert summary["report"] == "runs/demo-2/report.html"
    assert summary["verdict"] == said
    page = (here / "runs" / "demo-2" / "report.html").read_text(encoding="utf-8")
    assert f"<h1>{said}</h1>" in page
    assert 'aria-label="The causal graph"' in page


def test_the_demo_needs_its_encryption_before_it_trains(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise InputError("seal is not installed")

    monkeypatch.setattr("veracausa.crypto.backends.encryption_class", missing)
    with pytest.raises(InputError, match="seal is not installed"):
        call("demo")
    assert not (here / "runs").exists()


def test_the_demo_has_valid_jobs() -> None:
    assert defended_by(load_job(demo.SPLIT)) == ""
    check_grants(attack_options(demo.PAYLOAD_ATTACKS, quick_overrides(demo.PAYLOAD_ATTACKS)))
    assert load_job(demo.BLIND).training.protocol == "blind"
    assert set(demo.SUM_ATTACKS) <= set(blind_attacks.names())


def test_progress_without_a_terminal_is_a_line_an_epoch() -> None:
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, width=200)) as progress:
        for share in (0.1, 0.6):
            progress({"event": "preparing", "party": "passive_1", "share": share})
        progress({"event": "start", "epochs": 2, "steps": 4})
        for step in range(4):
            progress({"event": "step", "step": step})
        progress({"event": "epoch", "epoch": 1, "seconds": 1.5, "train": {"loss": 0.4}, "test": {"accuracy": 0.9}})
        progress({"event": "epoch", "epoch": 1, "party": "passive_1", "masked": 0.2})
        progress({"event": "something new"})
        progress({"event": "done"})
    assert text.getvalue() == "preparing the defense\nepoch 1/2  train loss 0.4000  test accuracy 90.0 %  1.5 s\n"


def test_progress_on_a_terminal_survives_every_event() -> None:
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, width=80, force_terminal=True)) as progress:
        progress({"event": "step", "step": 1})
        progress({"event": "preparing", "party": "passive_1", "share": 0.5})
        progress({"event": "preparing", "party": "passive_2", "share": 1.0})
        progress({"event": "start", "epochs": 1, "steps": 2, "step": 1})
        progress({"event": "step", "step": 2, "loss": 0.1})
        progress({"event": "epoch", "epoch": 1, "train": {"loss": 0.4}})
        progress({"event": "baseline", "name": "joint"})
        progress({"event": "done"})
    assert "baseline joint" in text.getvalue()


ATTACK = {"attack": "inverse", "party": "a", "moment": 1.0}
AUDITED = [
    {"event": "trial", "defense": "prune", "setting": "share=0.5", "cut": 3, "seed": 1, "kept": False, "left": 90.0},
    {"event": "epoch", "epoch": 1, "train": {"loss": 0.5}, "baseline": False},
    {"event": "done", "baseline": False},
    {"event": "epoch", "epoch": 1, "train": {"loss": 0.25}, "baseline": True},
    {"event": "attack", "attack": "inverse", "party": "a", "moment": 0.5, "share": 0.0, "baseline": True},
    {"event": "attack", "attack": "inverse", "party": "a", "moment": 0.5, "share": 0.5, "baseline": True},
    {"event": "progress", "what": "graph", "share": 0.1},
    {"event": "aligning", "party": "a", "share": 0.5},
]


def test_one_display_shows_the_events_of_every_command() -> None:
    text, drawn = io.StringIO(), io.StringIO()
    consoles = Console(file=text, width=200), Console(file=drawn, width=80, force_terminal=True)
    for console in consoles:
        with ProgressDisplay(console) as progress:
            for event in AUDITED:
                progress(event)
    lines = ["prune share=0.5 cut 3, seed 1: 1 min 30 s left", "epoch 1  train loss 0.5000", "the undefended baseline"]
    lines += ["epoch 1  train loss 0.2500", "inverse on a after 50 % of the training, undefended", "learning the graph"]
    assert text.getvalue().splitlines() == lines
    assert "masking ids" in drawn.getvalue()
    assert "50%" in drawn.getvalue()


def test_an_audit_says_which_attack_of_how_many_and_how_long_all_take(monkeypatch: pytest.MonkeyPatch) -> None:
    text, drawn, now = io.StringIO(), io.StringIO(), [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    consoles = Console(file=text, width=200), Console(file=drawn, width=80, force_terminal=True)
    for console in consoles:
        with ProgressDisplay(console) as progress:
            for number in (1, 2, 3):
                for share in (0.0, 0.5, 1.0):
                    progress(event_of("attack", {**ATTACK, "number": number, "of": 3, "share": share}))
                    now[0] += 30 if share < 1 else 0
            progress(event_of("progress", {"what": "validator M1", "number": 2, "of": 7, "share": 0.0}))
            progress(event_of("attack", {**ATTACK, "number": 1, "of": 1, "share": 0.0}))
    assert text.getvalue().splitlines() == [
        "attack 1 of 3: inverse on a",
        "attack 1 of 3: about 2 min left for all",
        "attack 2 of 3: inverse on a, about 2 min left",
        "attack 3 of 3: inverse on a, about 60 s left",
        "case 2 of 7: validator M1",
        "inverse on a",
    ]
    assert "attack 2 of 3 " in drawn.getvalue()


def test_job_text_names_the_file() -> None:
    assert "veracausa train other.toml" in init.job_text("digits", Path("other.toml"))


def test_a_narrow_list_cuts_descriptions_and_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "out", Console(width=60))
    result = CliRunner().invoke(app, ["list", "all"])
    assert result.exit_code == 0
    assert {"cifar100", "noisy_bottleneck", "candidate_differencing"} <= set(result.output.split())
    assert max(map(len, result.output.splitlines())) <= 60
