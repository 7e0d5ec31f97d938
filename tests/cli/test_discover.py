"""`veracausa discover`: a table, or one a party, becomes a run folder with a drawn graph."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import veracausa
from veracausa.cli.main import app
from veracausa.cli.progress import ProgressDisplay
from veracausa.data.causal import load_causal
from veracausa.data.causal.patients import ROWS
from veracausa.discovery.discover import DiscoveryRun
from veracausa.discovery.edge_table import EDGE_FIELDS
from veracausa.discovery.job import read_job
from veracausa.errors import InputError

DATA = load_causal("synthetic", attributes=4, edges=4, rows=120, seed=1)
NAMES = ("age", "dose", "bmi", "crp")
FRAME = pl.DataFrame(DATA.values, schema=list(NAMES))
TRUTH = [(NAMES[i], NAMES[j]) for i, j in np.argwhere(DATA.truth)]
VFEDCD = ("--method", "vfedcd")
QUICK = (*VFEDCD, "--set", "epochs=3", "--set", "refit_epochs=2", "--set", "searches=[]")
TWO = ("--party", "hospital=age,dose", "--party", "lab=bmi,crp")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("COLUMNS", "160")
    FRAME.write_csv("all.csv")
    write_edges("truth.csv", TRUTH)
    return tmp_path


def write_edges(path: str, edges: list[tuple[str, str]]) -> None:
    Path(path).write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in edges), encoding="utf-8")


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["discover", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def refused(said: str, *arguments: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        call(*arguments)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


@pytest.mark.draws
def test_one_command_writes_the_whole_folder(here: Path) -> None:
    printed = call("all.csv", *TWO, "--truth", "truth.csv", "--engine", "floating", "--bootstrap", "2", *QUICK)
    run = here / "runs" / "all"
    assert f"Report: {Path('runs/all/report.html')}" in printed
    assert "hospital" in printed
    assert "note: all columns were in one place: parties are only named" in printed
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert {"shd", "f1", "edges", "acyclic", "empty_graph_shd", "intra_party_f1", "inter_party_f1"} <= set(summary)
    assert summary["acyclic"] is True
    with (run / "edges.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary["edges"]
    assert tuple(rows[0]) == EDGE_FIELDS
    assert {row["directed"] for row in rows} == {"yes"}
    assert not any(row["slope"] or row["margin"] for row in rows), "VFedCD tells no effects"
    graph = nx.read_graphml(run / "graph.graphml")
    assert set(graph.edges) == {(row["cause"], row["effect"]) for row in rows}
    assert graph.nodes["age"]["party"] == "hospital"
    assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "done"
    assert len((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    assert config["settings"]["learning_rate"] == 0.01, "defaults are written out"
    assert "cpu" in json.loads((run / "environment.json").read_text(encoding="utf-8"))
    page = (run / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?(?!data:)\w""", page), "it opens from disk, without anything beside it"
    assert page.count('class="node"') == 4
    assert 'aria-label="Loss"' in page
    assert "Parties are only named here" in page
    assert "in the true graph" in page


def test_a_run_is_repeated_from_its_own_config(here: Path) -> None:
    call("all.csv", *TWO, "--engine", "floating", *QUICK, "--seed", "3", "--out", "one")
    call("one/config.toml", "--out", "two")
    assert Path("one/edges.csv").read_bytes() == Path("two/edges.csv").read_bytes()
    assert Path("one/strengths.csv").read_bytes() == Path("two/strengths.csv").read_bytes()
    refused("already there", "all.csv", "--out", "two")
    refused("a job says itself what its data", "one/config.toml", "--data", "sachs")
    refused("a job says itself what its data", "one/config.toml", "--method", "notears")


def test_settings_are_laid_over_a_runs_config(here: Path) -> None:
    call("all.csv", *TWO, "--engine", "floating", *QUICK, "--seed", "3", "--out", "one")
    call("one/config.toml", "--seed", "4", "--set", "epochs=2", "--bootstrap", "2", "--out", "two")
    before, after = read_job(Path("one/config.toml")), read_job(Path("two/config.toml"))
    assert (after.seed, after.settings["bootstrap"], after.data) == (4, 2, before.data)
    assert (before.seed, before.settings["bootstrap"]) == (3, 0)
    assert "2 resamples" in Path("two/report.html").read_text(encoding="utf-8")
    refused("no such setting", "one/config.toml", "--set", "epoch=2", "--out", "three")
    assert not Path("three").exists()


def test_resume(here: Path) -> None:
    given = ("all.csv", "--engine", "floating", *QUICK, "--out", "one")
    call(*given)
    before = Path("one/summary.json").read_bytes()
    call(*given, "--resume")
    assert json.loads(call("--resume", "--out", "one", "--json").splitlines()[-1])["run"] == "one"
    assert Path("one/summary.json").read_bytes() == before, "what is done is not done again"
    refused("started with other settings", *given, "--set", "width=3", "--resume")
    Path("one/status.json").write_text('{"state": "running"}', encoding="utf-8")
    Path("one/summary.json").unlink()
    call("--resume", "--out", "one")
    again = json.loads(Path("one/summary.json").read_text(encoding="utf-8"))
    assert again["edges"] == json.loads(before)["edges"]


def test_parties_federate_and_the_page_says_what_is_not_protected(here: Path) -> None:
    line = call(
        "all.csv", *TWO, *VFEDCD, "--set", "epochs=1", "--set", "refit_epochs=1", "--set", "reveal=own", "--json"
    )
    summary = json.loads(line.splitlines()[-1])
    assert summary["engine"] == "federated"
    assert summary["encryption"] == "none"
    assert summary["parties"]["lab"]["columns"] == ["bmi", "crp"]
    ledgers = {path.parent.name for path in here.glob("runs/all/federation/parties/*/ledger.jsonl")}
    assert ledgers == set(summary["parties"]) == {"hospital", "lab", "validator"}
    assert summary["bytes_sent"] == sum(party["bytes_sent"] for party in summary["parties"].values()) > 0
    page = Path("runs/all/report.html").read_text(encoding="utf-8")
    assert "Nothing was protected here." in page
    told = Path("runs/all/parties/lab/edges.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert all("lab" in line.split(",")[4:] for line in told)


def test_a_file_a_party_joined_on_an_id(here: Path) -> None:
    ids = pl.DataFrame({"id": [f"p{row}" for row in range(120)]})
    pl.concat([ids, FRAME.select("age", "dose")], how="horizontal").write_csv("hospital.csv")
    lab = pl.concat([ids, FRAME.select("bmi", "crp")], how="horizontal")
    lab.sample(fraction=1.0, shuffle=True, seed=0).write_csv("lab.csv")
    files = ("--party", "hospital=hospital.csv", "--party", "lab=lab.csv", "--on", "id")
    call(*files, "--truth", "truth.csv", "--engine", "floating", *QUICK, "--out", "joined")
    call("all.csv", *TWO, "--truth", "truth.csv", "--engine", "floating", *QUICK, "--out", "whole")
    assert Path("joined/edges.csv").read_bytes() == Path("whole/edges.csv").read_bytes()
    lab.head(100).write_csv("lab.csv")
    call(*files, "--engine", "floating", *QUICK, "--out", "fewer")
    assert (
        "100 rows have an id in every file (120 of hospital.csv, 100 of lab.csv)"
        in DiscoveryRun("fewer").summary["notes"]
    )
    refused("column 'id' is also in .*hospital.csv; leave it in one of them, or name it with --on", *files[:4])
    lab.head(100).drop("id").write_csv("lab.csv")
    refused("lab.csv: 100 rows, but .*hospital.csv has 120; name the column", *files[:4])
    pl.concat([lab, lab.head(1)]).write_csv("lab.csv")
    refused("id 'p0' stands in rows 1 and 121", *files)
    lab.with_columns(pl.lit("q").add(pl.col("id")).alias("id")).write_csv("lab.csv")
    refused("no id in common", *files)
    lab.with_columns(age=1.5).write_csv("lab.csv")
    refused("column 'age' is also in .*hospital.csv", *files)
    lab.rename({"id": "ssn"}).write_csv("lab.csv")
    refused("no column 'id' for the id", *files)
    refused("no table beside them", "all.csv", *files)
    assert sorted(path.name for path in here.iterdir() if path.is_dir()) == ["fewer", "joined", "whole"]


def test_a_party_may_bring_a_packed_file_or_arrays(here: Path) -> None:
    Path("hospital.csv.gz").write_bytes(gzip.compress(FRAME.select("age", "dose").write_csv().encode()))
    np.savez("lab.npz", bmi=FRAME["bmi"].to_numpy(), crp=FRAME["crp"].to_numpy())
    files = ("--party", "hospital=hospital.csv.gz", "--party", "lab=lab.npz")
    call(*files, "--engine", "floating", *QUICK, "--out", "packed")
    call("all.csv", *TWO, "--engine", "floating", *QUICK, "--out", "whole")
    assert Path("packed/edges.csv").read_bytes() == Path("whole/edges.csv").read_bytes()


def test_edges_that_must_or_must_not_be(here: Path) -> None:
    write_edges("required.csv", [("crp", "age")])
    write_edges("forbidden.csv", [("age", "dose"), ("dose", "age")])
    given = ("all.csv", "--engine", "floating", *QUICK)
    call(*given, "--required", "required.csv", "--forbidden", "forbidden.csv", "--out", "one")
    edges = {(row["cause"], row["effect"]) for row in DiscoveryRun("one").edges}
    assert ("crp", "age") in edges
    assert not edges & {("age", "dose"), ("dose", "age")}
    refused("crp -> age is required and forbidden", *given, "--required", "required.csv", "--forbidden", "required.csv")
    write_edges("circle.csv", [("crp", "age"), ("age", "crp")])
    refused("age -> crp -> age is a cycle", *given, "--required", "circle.csv")
    write_edges("typo.csv", [("crpp", "age")])
    refused("did you mean 'crp'", *given, "--required", "typo.csv")
    Path("bad.csv").write_text("a,b\nage,crp\n", encoding="utf-8")
    refused("name them source,target", *given, "--truth", "bad.csv")


def test_other_methods_and_known_data(here: Path) -> None:
    known = ("--data", "synthetic", "--set", "data.attributes=5", "--set", "data.rows=80", "--method", "sortnregress")
    summary = json.loads(call(*known, "--json").splitlines()[-1])
    assert summary["method"] == "sortnregress"
    assert summary["empty_graph_shd"] == 10
    assert "5 attributes" in summary["notes"][0]
    assert "All columns were in one place" in Path("runs/synthetic/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a table, DATA.csv"),
        (("none.csv",), "none.csv: no such file"),
        (("all.csv", "--data", "sachs"), "give a table"),
        (("--data", "sacks"), "did you mean 'sachs'"),
        (("all.csv", "--method", "notear"), "did you mean 'notears'"),
        (("all.csv", *VFEDCD, "--set", "widht=3"), "did you mean 'width'"),
        (("all.csv", *VFEDCD, "--set", "width=0"), "width"),
        (("all.csv", "--set", "seed=3"), "give it by --seed"),
        (("all.csv", "--set", "modle.width=3"), "a setting of the data is data.NAME"),
        (("all.csv", "--set", "width"), "write it as NAME=VALUE"),
        (("all.csv", "--party", "lab"), "write it as NAME=COLUMN"),
        (("all.csv", "--party", "lab=age", "--party", "lab=bmi"), "'lab' is named twice"),
        (("all.csv", "--party", "lab=agee,dose"), "no column 'agee'; did you mean 'age'"),
        (("all.csv", *TWO, "--party", "x=age"), "column 'age' is named by 'hospital' and 'x'"),
        (("all.csv", *VFEDCD, "--engine", "federated"), "two parties or more"),
        (("all.csv", "--engine", "flying"), "engine"),
        (("all.csv", *TWO, "--encryption", "rot13"), "rot13"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(here: Path, arguments: tuple[str, ...], said: str) -> None:
    refused(said, *arguments)
    assert not list(here.glob("runs/*"))


def test_columns_of_nobody_are_left_out_and_that_is_said(here: Path) -> None:
    names = pl.Series("name", [f"p{row}" for row in range(120)])
    FRAME.with_columns(names).write_csv("all.csv")
    call("all.csv", "--party", "a=age", "--party", "b=bmi", "--engine", "floating", *QUICK, "--out", "one")
    assert "3 columns belong to no party and are left out: dose, crp, name" in DiscoveryRun("one").summary["notes"]


ORDINARY = FRAME.with_columns(
    patient=pl.Series([f"p{row}" for row in range(120)]),
    visit=pl.Series([f"2024-{1 + row // 28:02d}-{1 + row % 28:02d}" for row in range(120)]),
    number=pl.Series(range(1, 121)),
)


def test_names_dates_and_row_numbers_are_left_out_and_that_is_said(here: Path) -> None:
    ORDINARY.write_csv("all.csv")
    call("all.csv", "--engine", "floating", *QUICK, "--out", "one")
    summary = DiscoveryRun("one").summary
    assert summary["attributes"] == 4
    left = [note.split(",")[0] for note in summary["notes"] if "left out" in note]
    assert left == ["patient: left out", "visit: left out", "number: left out"]
    call("all.csv", "--engine", "floating", *QUICK, "--set", "data.columns=age, bmi", "--out", "two")
    assert DiscoveryRun("two").summary["attributes"] == 2
    both = ("--party", "a=age,patient,visit", "--party", "b=bmi")
    refused(r"patient \(120 .*, visit \(dates.*columns=age,bmi.*--set data.id=patient", "all.csv", *both)
    ORDINARY.select("patient", "visit").write_csv("all.csv")
    refused("no column can be an attribute", "all.csv")


def test_of_a_file_a_party_names_and_dates_are_left_out_too(here: Path) -> None:
    ORDINARY.select("patient", "visit", "age", "dose").write_csv("hospital.csv")
    ORDINARY.select("patient", "bmi", "crp").write_csv("lab.csv")
    files = ("--party", "hospital=hospital.csv", "--party", "lab=lab.csv", "--on", "patient")
    call(*files, "--engine", "floating", *QUICK, "--out", "one")
    summary = DiscoveryRun("one").summary
    assert summary["parties"]["hospital"]["columns"] == ["age", "dose"]
    assert any(note.startswith("visit: left out, it holds dates, such as '2024-01-01'") for note in summary["notes"])


def test_an_empty_graph_says_what_was_tried(here: Path) -> None:
    printed = call("all.csv", *TWO, "--engine", "floating", *QUICK, "--set", "threshold=50.0", "--out", "one")
    strongest = DiscoveryRun("one").summary["strongest"][0]
    page = Path("one/report.html").read_text(encoding="utf-8")
    edge = f"{strongest['cause']} → {strongest['effect']} {strongest['strength']:.2f}"
    for shown in (printed, page):
        assert "the threshold is 50.00 (as it was set), and the strongest of all possible edges are" in shown
        assert edge in shown
        assert "well enough" not in shown


SOLVED_FOR = "enough of them can be solved for those columns"


@pytest.mark.parametrize("encryption", ["none", "bfv"])
def test_what_no_encryption_hides_stands_on_terminal_page_and_summary(here: Path, encryption: str) -> None:
    if encryption == "bfv":
        pytest.importorskip("seal")
    few = (*VFEDCD, "--set", "epochs=1", "--set", "refit_epochs=1", "--set", "searches=[]", "--set", "data.rows=40")
    printed = call("all.csv", *TWO, "--encryption", encryption, *few, "--out", "one")
    assert SOLVED_FOR in printed
    assert SOLVED_FOR in " ".join(DiscoveryRun("one").summary["notes"])
    assert SOLVED_FOR in Path("one/report.html").read_text(encoding="utf-8")


def test_where_all_is_in_one_place_or_on_shares_that_is_not_said(here: Path) -> None:
    few = (*VFEDCD, "--set", "epochs=1", "--set", "refit_epochs=1", "--set", "searches=[]")
    assert SOLVED_FOR not in call("all.csv", *TWO, "--engine", "floating", *few, "--out", "one")
    assert SOLVED_FOR not in call("all.csv", *TWO, *few, "--set", "strong=true", "--out", "two")


@pytest.mark.parametrize(
    ("strong", "computing", "told"),
    [
        ("true", ["hospital", "lab", "validator"], "any two of them together can open every column"),
        ("dealer", ["validator"], "With any one party it can open every column"),
    ],
)
def test_the_page_of_a_strong_discovery_says_who_must_not_collude(
    here: Path, strong: str, computing: list[str], told: str
) -> None:
    few = ("--set", "epochs=1", "--set", "refit_epochs=1", "--set", "bernoulli=false", "--set", f"strong={strong}")
    call("all.csv", *TWO, *VFEDCD, *few, "--out", "one")
    assert DiscoveryRun("one").summary["computing"] == computing
    page = " ".join(Path("one/report.html").read_text(encoding="utf-8").split())
    assert told in page
    assert "No row was opened to anybody." in page
    assert "Nothing was protected here." not in page
    assert SOLVED_FOR not in page


def test_warnings_stand_on_terminal_page_and_summary(here: Path) -> None:
    line = np.random.default_rng(0).normal(size=(200, 4))
    line[:, 1] += line[:, 0]
    line[:, 2] += line[:, 1]
    pl.DataFrame(line, schema=list(NAMES)).write_csv("all.csv")
    short = (*VFEDCD, "--set", "epochs=60", "--set", "refit_epochs=60", "--set", "rate=0.03", "--set", "searches=[]")
    printed = call("all.csv", "--engine", "floating", *short, "--out", "one")
    assert "WARNING: relations look linear" in printed
    assert "note: vfedcd suits columns whose relations are curved" in printed
    summary = DiscoveryRun("one").summary
    assert summary["warnings"][0].startswith("relations look linear")
    assert set(summary["diagnostics"]) == set(NAMES)
    page = Path("one/report.html").read_text(encoding="utf-8")
    assert "<strong>Warning.</strong> Relations look linear" in page
    assert "whose relations are curved" in page


def test_status_says_which_epoch_a_running_fit_is_in(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veracausa.runs.fit_status.STATUS_EVERY", 0.0)
    seen: list[tuple[str, int, int]] = []

    def look(event: Any) -> None:
        if event["event"] != "progress":
            return
        status = json.loads(Path("mine/status.json").read_text(encoding="utf-8"))
        seen.append((status["state"], status.get("epoch", 0), status.get("epochs", 0)))

    settings = {"method": "vfedcd", "epochs": 3, "refit_epochs": 2, "searches": []}
    veracausa.discover(FRAME, {"a": ["age", "dose"], "b": ["bmi", "crp"]}, out="mine", observer=look, **settings)
    assert seen == [("running", 0, 0), *(("running", epoch, 5) for epoch in range(1, 5))]
    assert json.loads(Path("mine/status.json").read_text(encoding="utf-8"))["state"] == "done"


def test_without_a_bar_a_line_says_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("veracausa.cli.progress.time.monotonic", lambda: now[0])
    with ProgressDisplay() as progress:
        for share in (0.01, 0.02, 0.11, 0.12):
            progress({"event": "progress", "what": "graph", "share": share})
            now[0] += 5.0
    said = capsys.readouterr().err
    assert said.count("left") == 1
    assert "learning the graph: about 8 min left" in said


def test_the_example_is_written_and_its_true_edges_fit(here: Path) -> None:
    printed = call("--example")
    command = next(line for line in printed.splitlines() if line.startswith("veracausa discover"))
    assert "patients.csv" in command
    table = pl.read_csv("patients.csv")
    assert (table.height, table.columns) == (ROWS, ["age", "bmi", "dose", "crp", "hba1c", "ldl"])
    arguments = command.split()[2:]
    summary = json.loads(call(*arguments, "--engine", "floating", *QUICK, "--json", "--out", "one").splitlines()[-1])
    assert summary["empty_graph_shd"] == 7
    call("--example")  # the same files may be written again
    Path("patients.csv").write_text("age\n1\n", encoding="utf-8")
    refused("is already there and another file", "--example")
    refused("leave the other options", "--example", "--data", "sachs")
    call("--example", "--out", "elsewhere")
    assert Path("elsewhere/patients_edges.csv").is_file()


@pytest.mark.slow
def test_the_example_finds_most_of_its_edges_between_parties(here: Path) -> None:
    call("--example")
    parties = ("--party", "hospital=age,bmi,dose", "--party", "lab=crp,hba1c,ldl")
    given = ("patients.csv", *parties, "--truth", "patients_edges.csv", *VFEDCD, "--set", "searches=[]", "--json")
    summary = json.loads(call(*given).splitlines()[-1])
    assert summary["f1"] >= 0.8
    assert not summary["warnings"]


def test_from_python(here: Path) -> None:
    events: list[Any] = []
    settings = {"method": "vfedcd", "epochs": 2, "refit_epochs": 1, "searches": [], "engine": "floating"}
    parties = {"hospital": ["age", "dose"], "lab": ["bmi", "crp"]}
    run = veracausa.discover(FRAME, parties, truth=TRUTH, out="mine", observer=events.append, **settings)
    assert run.summary["empty_graph_shd"] == 4
    assert set(run.graph.edges) == {(row["cause"], row["effect"]) for row in run.edges}
    assert run.report() == Path("mine/report.html")
    assert [event["event"] for event in events[:4]] == ["folder", *3 * ["progress"]]
    assert {event["what"] for event in events[1:4]} == {"graph"}
    assert {event["what"] for event in events[4:]} == {"residuals"}
    array = veracausa.discover(DATA.values, {"a": [0, 1], "b": [2, 3]}, truth=DATA.truth, out="array", **settings)
    assert array.summary["shd"] == run.summary["shd"]
    refused("given in Python", "mine/config.toml")


def test_a_failed_fit_is_recorded(here: Path) -> None:
    with pytest.raises(veracausa.errors.RunError, match="diverged"):
        call("all.csv", *VFEDCD, "--set", "rate=1e30", "--out", "one")
    status = json.loads(Path("one/status.json").read_text(encoding="utf-8"))
    assert status["state"] == "failed"
    assert "diverged" in status["error"]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_graph(here: Path) -> None:
    given = ("discover", "all.csv", *TWO, *VFEDCD, "--set", "epochs=40", "--set", "refit_epochs=30")
    command = [sys.executable, "-m", "veracausa.cli.main", *given]
    environment = {**os.environ, "PYTHONPATH": str(Path(veracausa.__file__).parents[1])}
    with subprocess.Popen([*command, "--out", "killed"], env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not list(here.glob("killed/federation/parties/*/checkpoints/*")) and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    assert json.loads(Path("killed/status.json").read_text(encoding="utf-8"))["state"] == "running"
    refused("already there", *given[1:], "--out", "killed")
    call("--resume", "--out", "killed")
    call(*given[1:], "--out", "undisturbed")
    for name in ("edges.csv", "strengths.csv"):
        assert Path("killed", name).read_bytes() == Path("undisturbed", name).read_bytes()
