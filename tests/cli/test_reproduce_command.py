"""`veracausa reproduce`: one experiment of each kind, tiny, and what the command says."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.cli.reproduce import _seconds
from veracausa.errors import InputError
from veracausa.experiments.experiment import known_experiments
from veracausa.experiments.reproduce import reproduce_all

pytestmark = [
    pytest.mark.xdist_group("reproduce_command"),  # what its tests share is made once, not once a worker
    pytest.mark.draws,
]

FOLDER = Path(__file__).parents[2] / "experiments" / "causshield"
# What is shown, how it is drawn, and by which rows: each of them the file of the paper's figure with fewer rows.
KINDS = {
    "table2": 'rows = ["prune"]',
    "fig5": 'rows = ["none"]\nfallback.attack = "urvfl"',
    "fig9": 'rows = ["none"]\nfallback.attack = "urvfl"\nattacks.unsplit.per_class = 2',
    "fig11": 'rows = ["prune"]',
    "fig13": 'panels.cifar10.rows = ["prune"]',
    "fig14": 'bench.names = ["laplace", "invl_enp"]',
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kinds at once, as `reproduce all` would, in this process."""
    place = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, changes in KINDS.items():
            (place / f"{name}.toml").write_text(f'extends = "{FOLDER / name}.toml"\n[scales.smoke]\n{changes}\n')
        found = reproduce_all([f"{name}.toml" for name in KINDS], "smoke", workers=1)
    assert not any(each.progress.failed or each.progress.unfit or each.progress.stopped for each in found)
    return place


@pytest.mark.parametrize("name", KINDS)
def test_one_of_each_kind_leaves_tables_a_figure_and_a_page(done: Path, name: str):
    out = done / "results" / name / "smoke"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Its numbers mean nothing" in page
    assert "://" not in page.replace("http://www.w3.org", "")
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "figure.svg").read_text(encoding="utf-8")
    table = pl.read_parquet(out / "table.parquet")
    assert len(table) == len((out / "table.csv").read_text(encoding="utf-8").splitlines()) - 1
    assert (out / "table.md").read_text(encoding="utf-8").startswith("# ")
    assert json.loads((out / "environment.json").read_text(encoding="utf-8"))[0]["torch"]
    if name != "fig14":
        assert table["mean"].is_not_null().all()
        assert table["published"].is_null().all()  # digits are not the paper's data


def test_the_oracle_decoder_reads_both_parties_from_the_first_exchange_on(done: Path):
    text = (done / "results" / "table2" / "smoke" / "table.md").read_text(encoding="utf-8")
    assert "oracle decoder: the most that is read over the whole training (the first exchange and the end) of " in text
    cells = json.loads((done / "results" / "table2" / "smoke" / "cells.json").read_text(encoding="utf-8"))
    found = json.loads((done / "runs/cells/results" / f"{cells[0]['inverse']}.json").read_text(encoding="utf-8"))
    assert found["coverage"] == "whole training"
    assert {party: len(own["moments"]) for party, own in found["parties"].items()} == {"passive_1": 1, "passive_2": 1}
    every = [own["train"]["leakage"] for own in found["parties"].values()]
    every += [told["train"] for own in found["parties"].values() for told in own["moments"]]
    assert found["scores"]["leakage"]["mean"] == max(every)
    assert found["scores"]["end_leakage"]["mean"] == max(own["train"]["leakage"] for own in found["parties"].values())


def test_times_call_what_is_rebuilt_from_formulas_so(done: Path):
    lines = (done / "results" / "fig14" / "smoke" / "table.md").read_text(encoding="utf-8").splitlines()
    rebuilt = [line for line in lines if line.startswith("| invl_")]
    assert rebuilt
    assert all("reconstructed" in line for line in rebuilt)


def test_trainings_and_attacks_are_shared(done: Path):
    keys = {}
    for name in ("table2", "fig5", "fig11"):
        cells = json.loads((done / "results" / name / "smoke" / "cells.json").read_text(encoding="utf-8"))
        keys[name] = {cell["row"]: cell for cell in cells}
    assert keys["table2"]["none"]["training"] == keys["fig11"]["none"]["training"] == keys["fig5"]["none"]["training"]
    assert keys["table2"]["none"]["inverse"] == keys["fig5"]["none"]["inverse"]
    assert keys["table2"]["prune"]["training"] == keys["fig11"]["prune"]["training"]


def test_the_batch_attack_takes_so_many_of_each_class(done: Path):
    cells = json.loads((done / "results" / "fig9" / "smoke" / "cells.json").read_text(encoding="utf-8"))
    found = json.loads((done / "runs/cells/results" / f"{cells[0]['unsplit']}.json").read_text(encoding="utf-8"))
    assert found["victims"] == 20
    assert 0 <= found["scores"]["success_mse_0.1"]["mean"] <= 1
    assert "success_mse_0.1_grey" in found["scores"]


def test_what_an_attack_needed_only_for_itself_is_gone(done: Path):
    trainings = [path for path in (done / "runs/cells/work").iterdir() if path.is_dir()]
    assert trainings
    for path in trainings:
        assert not list(path.glob("parties/*/checkpoints/*"))
        assert not (path / "live").exists()


def test_a_job_of_the_page_can_be_trained_alone(done: Path):
    from veracausa.config import load_job

    job = load_job(done / "results/table2/smoke/configs/cifar10-prune.toml")
    assert (job.defense.name, job.data.name) == ("prune", "digits")


def test_everything_is_there_so_nothing_is_run_again(done: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(done)
    monkeypatch.setattr("veracausa.experiments.schedule.run_cell", None)
    result = CliRunner().invoke(app, ["reproduce", "fig13.toml", "--workers", "1", "--json"])
    assert result.exit_code == 0
    (told,) = json.loads(result.stdout.splitlines()[-1])
    assert told["finished"] == told["cells"] == 4


def test_time_that_is_up_at_once_is_no_failure_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "causshield/fig11", "--time-limit", "0s", "--workers", "1"])
    assert result.exit_code == 3
    assert "the same command goes on" in result.stderr
    assert "0 of 6 cells are finished" in result.stdout
    assert (tmp_path / "results/causshield/fig11/smoke/report.html").is_file()


def test_without_a_name_all_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["reproduce"])
    assert result.exit_code == 0
    for name in known_experiments():
        assert name in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["causshield/tabel2"], "did you mean 'causshield/table2'?"),
        (["causshield/table2", "--scale", "smal"], "did you mean 'small'?"),
        (["nowhere.toml"], "no such experiment file"),
        (["causshield/table2", "--panel", "cifar"], "no panel is named 'cifar'"),
        (["causshield/table2", "--time-limit", "soon"], "write it as 90s, 9m or 2h"),
        (["all", "--out", "x"], "--out is for one experiment"),
        (["causshield/table2", "--set", "training.epohcs=1"], "training.epohcs"),
    ],
)
def test_wrong_input_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.exception.exit_code == 2


def test_a_time_limit_is_read_as_people_write_it():
    assert [_seconds(text) for text in ("90", "90s", "9m", "1.5h")] == [90, 90, 540, 5400]


@pytest.mark.slow
def test_all_at_smoke_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "all", "--workers", "2"])
    assert result.exit_code == 0, result.output
    pages = {page.parts[-3] for page in tmp_path.glob("results/causshield/*/smoke/report.html")}
    assert pages == {name.split("/")[1] for name in known_experiments() if name.startswith("causshield/")}
    assert len(pages) > 14


def test_the_index_is_of_all_papers_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "--index"])
    assert result.exit_code == 0
    assert (tmp_path / "results/vfedcd/index.md").is_file()
    refused = CliRunner().invoke(app, ["reproduce", "vfedcd/table1", "--index"])
    assert isinstance(refused.exception, InputError)
    assert "leave out the name" in str(refused.exception)
