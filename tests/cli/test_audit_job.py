"""`veracausa audit JOB`: the job and its undefended twin are trained, both are attacked, and a broken audit goes on."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
import tomli_w
import torch
from typer.testing import CliRunner

import veracausa
from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack, Grant, LiveAttack
from veracausa.audit.baseline import defended_by, undefended
from veracausa.audit.job import audit_run
from veracausa.audit.settings import AuditSettings
from veracausa.cli.main import app
from veracausa.config import load_job
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.errors import InputError, RunError
from veracausa.registry import Options
from veracausa.runs.folder import Run

QUICK = ("inverse.epochs=2", "inverse.channels=8", "inverse.blocks=1", "inverse.average=2")
JOB: dict[str, Any] = {
    "name": "mine",
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 2, "batch_size": 256},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "defense": {"name": "noise"},
}
# As many exchanges with half the rows.
SMALL = {**JOB, "data": {"name": "digits", "train": 768}, "training": {"epochs": 2, "batch_size": 128}}
ASKED = {"victims": 40, "parties": ["passive_1"], "labels": False}


class Noise(Defense):
    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return 0 * r + torch.randn(r.shape, generator=self.rng)


class Offset(Defense):
    """Noise drawn once for each id."""

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        drawn = torch.randn(2000, *r.shape[1:], generator=torch.Generator().manual_seed(1))
        return r + 3 * drawn[ids]


class Mute(FeatureAttack):
    """Guesses black, whatever it sees; fails on the way if it is told to."""

    needs = Grant.ARCHITECTURE
    uses = Grant.DEFENSE | Grant.WEIGHTS | Grant.LABELS
    broken = False
    ids: ClassVar[list[torch.Tensor]] = []

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        assert len(view.labels)
        assert not hasattr(view, "auxiliary")
        rows = torch.rand(2, *view.row_shape)
        bottom = view.bottom(view.rng)
        assert bottom(rows).shape == (2, *view.payload_shape) == view.transmit(rows).shape
        optimizer = torch.optim.SGD(bottom.parameters(), lr=0.1)
        assert view.defense(bottom, optimizer, view.rng).infer(rows, torch.arange(2)).shape == (2, *view.payload_shape)
        assert view.classes == 10
        self.shape = view.row_shape

    def reconstruct(self, payload: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        if Mute.broken:
            raise RunError("the attack fell over")
        Mute.ids.append(ids)
        return torch.zeros(len(payload), *self.shape)


class Asking(FeatureAttack):
    needs = Grant.QUERIES


class Sitting(LiveAttack):
    """Must be there while the victim trains; guesses black."""

    def reconstruct(self, payload: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(payload), *self.view.row_shape)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only while a test runs: other tests go over everything that is registered."""
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(Mute, "broken", False)
    monkeypatch.setattr(Mute, "ids", [])
    defenses.names(), attacks.names()
    defenses.register("noise")(Noise)
    defenses.register("offset")(Offset)
    own = {"mute": Mute, "asking": Asking, "sitting": Sitting}
    for name, attack in own.items():
        attacks.register(name, Options)(attack)
    yield
    del defenses._entries["noise"], defenses._entries["offset"]
    for name in own:
        del attacks._entries[name]


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def written(tmp_path: Path, job: dict[str, Any] = JOB) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(job), encoding="utf-8")
    return path


def test_the_twin_leaks_and_the_noise_does_not(tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ["--attacks", "inverse,mute", "--victims", "40", "--parties", "passive_1"]
    asked += [word for setting in (*QUICK, "training.epochs=3") for word in ("--set", setting)]
    printed = call("audit", str(written(tmp_path, SMALL)), "--out", str(out), *asked)
    assert "mute does not work here" in printed
    summary = Run(out).summary
    assert Run(out).job.training.epochs == 3
    inverse, mute = summary["attacks"]["inverse"], summary["attacks"]["mute"]
    assert inverse["works"] is True
    assert inverse["leakage"] < 0.05 < 0.5 < inverse["undefended"]["leakage"]
    assert mute["works"] is False
    said = "Against noise the attack that works here reads no more than a blind guess over the whole training"
    assert summary["verdict"].startswith(said)
    assert summary["coverage"] == inverse["coverage"] == "whole training"
    assert mute["coverage"] == "last model"
    assert summary["parties_not_attacked"] == ["passive_2"]
    twin = Run(out / "twin")
    assert not defended_by(twin.job)
    assert twin.job.seed == Run(out).job.seed
    assert twin.summary["attacks"]["inverse"]["leakage"] == inverse["undefended"]["leakage"]
    for run in (out, out / "twin"):
        samples = pl.read_parquet(run / "samples.parquet")
        assert {"attack", "party", "split", "moment", "position", "mse", "psnr", "ssim"} <= set(samples.columns)
        moments = samples.filter(pl.col("attack") == "inverse")["moment"].unique().sort()
        assert len(moments) == 4
        assert moments[-1] == 1
        assert samples.filter(pl.col("attack") == "mute")["moment"].unique().to_list() == [1.0]
    told = summary["attacks"]["inverse"]["parties"]["passive_1"]["moments"]
    assert [entry["moment"] for entry in told] == moments.to_list()
    table, page = (out / "audit.md").read_text(), (out / "report.html").read_text()
    assert "| mute |" in table
    first = next(line for line in table.splitlines() if line.startswith("| inverse |"))
    assert first.endswith(f" {inverse['seconds']:.0f} |")
    assert summary["verdict"] in page
    # The other half: the noise hides the rows from the active party, not the labels from passive_1.
    told = summary["label_attacks"]["gradient_direction"]
    assert told["party"] == "passive_1"
    assert told["accuracy"] > 0.4 > 0.2 > told["prior"]
    assert told["undefended"]["accuracy"] == twin.summary["label_attacks"]["gradient_direction"]["accuracy"]
    assert "2 classes" in summary["label_attacks"]["gradient_norm"]["unavailable"]
    assert summary["label_verdict"].startswith("In the other direction passive_1 tells")
    assert summary["label_verdict"] in " ".join(printed.split())
    assert summary["label_verdict"] in table
    assert summary["label_verdict"] in page
    cosine = summary["causal_cosine"]
    assert abs(cosine["centred"]) < 0.1 < cosine["undefended"]["centred"]
    assert "causal proxy" in table
    assert "causal proxy" in page


def test_a_broken_audit_keeps_what_was_finished_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(Mute, "broken", True)
    weak = ["training.epochs=1", *QUICK, "inverse.epochs=1", "inverse.average=1"]
    with pytest.raises(RunError, match="fell over"):
        veracausa.audit(SMALL, attacks=["inverse", "mute"], out=out, overrides=weak, **ASKED)
    assert Run(out).status["audit"]["state"] == "failed"
    assert "leakage" in Run(out / "twin").summary["attacks"]["inverse"]
    page = Run(out).report().read_text(encoding="utf-8")
    assert "fell over" in page
    monkeypatch.setattr(Mute, "broken", False)
    events: list[Any] = []
    run = veracausa.audit_job(
        SMALL, ["inverse", "mute"], out, resume=True, overrides=weak, observer=events.append, **ASKED
    )
    assert run.path == out
    done = [
        (event["attack"], event["baseline"]) for event in events if event["event"] == "attack" and not event["share"]
    ]
    # The twin was attacked first; its inverse was finished, and nothing was trained again.
    assert ("inverse", True) not in done
    assert {("mute", True), ("inverse", False), ("mute", False)} == set(done)
    assert not [event for event in events if event["event"] == "step"]
    # Each said which one it is of those that were left.
    numbers = [event["number"] for event in events if event["event"] == "attack" and not event["share"]]
    assert numbers == list(range(1, len(done) + 1))
    assert {event["of"] for event in events if event["event"] == "attack"} == {len(done)}
    assert set(run.summary["attacks"]) == {"inverse", "mute"}
    assert "fell over" not in (out / "report.html").read_text(encoding="utf-8")


def test_an_undefended_job_is_its_own_twin(tmp_path: Path) -> None:
    job = {**SMALL, "defense": {"name": "none"}}
    run = veracausa.audit_job(job, ["mute"], tmp_path / "run", **ASKED)
    assert not (run.path / "twin").exists()
    assert run.summary["attacks"]["mute"]["works"] is False
    # A test row took no part in the training: its position is nobody's training id.
    train, test = Mute.ids
    assert train.min() >= 0
    assert test.unique().tolist() == [-1]


@pytest.mark.slow
def test_audits_of_several_defenses_share_one_twin(tmp_path: Path) -> None:
    job = written(tmp_path)
    plain = veracausa.audit_job(
        {**JOB, "name": "plain", "defense": {"name": "none"}}, ["mute"], tmp_path / "0", **ASKED
    )
    events: list[Any] = []
    run = veracausa.audit_job(JOB, ["mute"], tmp_path / "1", twin=plain.path, observer=events.append, **ASKED)
    assert not [event for event in events if event.get("baseline")]
    assert not (run.path / "twin").exists()
    assert run.summary["attacks"]["mute"]["undefended"] == {
        "leakage": 0,
        **run.summary["attacks"]["mute"]["undefended"],
    }
    # The run remembers its twin; an attack that the twin lacks is run on it, too.
    asked = [str(run.path), "--attacks", "inverse", "--victims", "40", "--parties", "passive_1"]
    call("audit", *asked, *(word for setting in QUICK for word in ("--set", setting)))
    assert Run(run.path).summary["attacks"]["inverse"]["undefended"]["leakage"] == pytest.approx(
        Run(plain.path).summary["attacks"]["inverse"]["leakage"]
    )
    # Refused before anything is trained.
    for twin, setting, sentence in (
        (run.path, "seed=0", "defends nowhere"),
        (plain.path, "seed=1", "seed was 1, is 0"),
    ):
        with pytest.raises(InputError, match=sentence):
            call("audit", str(job), "--out", str(tmp_path / "2"), "--twin", str(twin), "--set", setting)
    assert not (tmp_path / "2").exists()


@pytest.mark.slow
def test_an_attack_that_remembers_makes_the_job_record_what_crosses(tmp_path: Path) -> None:
    names = ("averaging", "differencing", "mismatch")
    small = ("epochs=2", "channels=8", "blocks=1")
    settings = [*(f"{name}.{setting}" for name in names for setting in small), "averaging.exchanges=2"]
    run = veracausa.audit_job(JOB, names, tmp_path / "run", overrides=settings, **ASKED)
    for each in (run.path, run.path / "twin"):
        assert (each / "parties" / "active" / "transcript" / "passive_1").is_dir()
    found = run.summary["attacks"]
    # Two epochs are too few for a difference: a row's nearest payload to three of the moments is the same one.
    assert found["averaging"]["works"] is found["mismatch"]["works"] is True
    assert all(found[name]["leakage"] < 0.1 for name in names)
    assert found["differencing"]["parties"]["passive_1"]["moments_used"] == 4


@pytest.mark.slow
def test_differencing_reads_a_finished_run_through_noise_that_is_fixed_for_an_id(tmp_path: Path) -> None:
    slowly = {"epochs": 8, "batch_size": 64, "optimizer": {"lr": 0.002}}
    job = {**JOB, "defense": {"name": "offset"}, "training": slowly}
    job |= {"transcript": {"record": True}, "checkpoints": {"moments": [0, 0.25, 0.5]}}
    run = veracausa.train(job, tmp_path / "run")
    told = ("epochs=4", "channels=8", "labels=false")  # of the payload alone
    small = [f"{name}.{setting}" for name in ("inverse", "differencing") for setting in told]
    found = audit_run(run, AuditSettings(["inverse", "differencing"], small, **ASKED))["attacks"]
    # Both read the last model: over the training the inverse network has four chances.
    assert found["inverse"]["end"]["leakage"] < 0.02 < 0.4 < found["differencing"]["leakage"]


@pytest.mark.slow
def test_rows_that_are_known_tell_of_others_without_anybodys_weights(tmp_path: Path) -> None:
    job = {**JOB, "defense": {"name": "none"}}
    small = [f"known_rows.{setting}" for setting in ("epochs=6", "channels=8", "blocks=1")]
    run = veracausa.audit_job(job, ["known_rows"], tmp_path / "run", overrides=small, known=100, **ASKED)
    entry = run.summary["attacks"]["known_rows"]
    assert entry["leakage"] > 0.2
    assert entry["coverage"] == "whole training"
    assert entry["parties"]["passive_1"]["known_rows"] == 100
    assert "test" not in entry["parties"]["passive_1"]


def test_an_attack_that_must_be_there_gets_a_training_of_its_own(tmp_path: Path) -> None:
    job = {**SMALL, "defense": {"name": "none"}}
    run = veracausa.audit_job(job, ["sitting"], tmp_path / "run", **ASKED)
    assert Run(run.path / "live" / "sitting-passive_1").status["state"] == "done"
    assert run.summary["attacks"]["sitting"]["leakage"] == 0


def test_the_twin_of_a_job_defends_nowhere() -> None:
    job = load_job({**JOB, "party": {"passive_2": {"defense": {"name": "greyscale"}}}})
    assert defended_by(job) == "noise and greyscale"
    twin = undefended(job)
    assert not defended_by(twin)
    assert tomllib.loads(twin.to_toml())["seed"] == job.seed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["JOB", "--attacks", "invers"], "did you mean 'inverse'"),
        (["JOB", "--attacks", "asking"], "needs queries, which an audit cannot give it"),
        (["JOB", "--parties", "passive_3"], "no passive party"),
        (["JOB", "--set", "training.epoch=3"], "did you mean 'epochs'"),
        (["JOB", "--set", "inverse.epoch=3"], "did you mean 'epochs'"),
        (["nowhere.toml"], "neither a job file nor a run folder"),
        (["FOLDER"], "not a run folder"),
        (["FOLDER", "--out", "elsewhere"], "is a finished run"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_trained(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    job = written(tmp_path)
    names = {"JOB": str(job), "FOLDER": str(tmp_path / "folder")}
    with pytest.raises(InputError, match=sentence) as refused:
        call("audit", *(names.get(word, word) for word in arguments))
    assert refused.value.exit_code == 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_json_is_the_last_line(tmp_path: Path) -> None:
    asked = ["--out", str(tmp_path / "r"), "--attacks", "mute", "--no-labels", "--json"]
    printed = call("audit", str(written(tmp_path)), *asked)
    assert not any((tmp_path / "r").rglob("gradients"))
    assert json.loads(printed.splitlines()[-1])["strongest"]["attack"] == "mute"
