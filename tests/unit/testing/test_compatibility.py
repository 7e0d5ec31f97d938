"""The matrix says what happens: tiny jobs are really run, and attacks really asked, where it says yes and where no."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from veracausa.attacks import attacks
from veracausa.audit.settings import AuditSettings
from veracausa.cli.main import app
from veracausa.data.vertical import VerticalDataset
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.registry import Options
from veracausa.runs.folder import Run
from veracausa.testing import compatibility as attacking
from veracausa.testing import compatibility as defended
from veracausa.testing import compatibility as matrix
from veracausa.testing.synthetic import KINDS, SHAPES, toy_data
from veracausa.training import train as training

SAMPLED = [("laplace", "overlap"), ("greyscale", "tables"), ("noisy_bottleneck", "vectors"), ("prune", "bf16")]
# Other tests register defenses of their own, which a process of its own may know or not.
OURS = [name for name in defenses.names() if defenses.get(name).__module__.startswith("veracausa.")]
WHOLE = [(name, condition) for name in OURS for condition in defended.CONDITIONS]


def really_runs(name: str, condition: str, out: Path, monkeypatch: pytest.MonkeyPatch, **runtime: Any) -> str:
    """What `veracausa train` says to the same job on the same rows: a whole run with its folder."""
    wanted = defended.CONDITIONS[condition]
    job, data = defended.made(name, wanted, wanted.kind or defended.suited(name)[0])
    if runtime:
        job = job.model_copy(update={"runtime": job.runtime.model_copy(update=runtime)})

    def rows(settings: object, frames: object = None) -> VerticalDataset:
        return data

    monkeypatch.setattr(training, "load", rows)
    try:
        run = training.train(job, out)
    except VeracausaError as error:
        return str(error)
    assert isinstance(run, Run)
    assert run.status["state"] == "done"
    return ""


@pytest.mark.parametrize(
    ("name", "condition"),
    [*SAMPLED, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in WHOLE if pair not in SAMPLED)],
)
def test_a_job_runs_where_the_matrix_says_so(
    name: str, condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = defended.tried(name, condition)
    happened = really_runs(name, condition, tmp_path / "run", monkeypatch)
    assert bool(said) == bool(happened), (said, happened)


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_a_job_runs_in_processes_where_the_matrix_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = defended.asked(name, "processes", defended.suited(name)[0])
    happened = really_runs(name, "maps", tmp_path / "run", monkeypatch, link="processes")
    assert bool(said) == bool(happened), (said, happened)


class Forgets(Defense):
    """Its payload depends on how often it was asked, which no checkpoint keeps."""

    count = 0

    def forward(self, x: torch.Tensor, ids: torch.Tensor, step: int) -> Any:
        self.count += 1
        return super().forward(x, ids, step)

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return r * (1 + self.count)


class NeedsBigBatches(Defense):
    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        if len(r) < 12:
            raise RunError("too few rows")
        return r


class OnlyVectors(Defense):
    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        rows, entries = r.shape
        return r.view(rows, entries)


class Compiles(Defense):
    def forward(self, x: torch.Tensor, ids: torch.Tensor, step: int) -> Any:
        torch.compile(self.protect)
        return super().forward(x, ids, step)


@pytest.fixture
def odd() -> Iterator[None]:
    defenses.names()
    own = {"forgets": Forgets, "big": NeedsBigBatches, "vectors_only": OnlyVectors, "compiles": Compiles}
    for name, defense in own.items():
        defenses.register(name, Options)(defense)
    yield
    for name in own:
        del defenses._entries[name]


def test_what_cannot_run_is_found_out(odd: None) -> None:
    assert "checkpoint" in defended.asked("forgets", "resume", "pictures")
    assert "too few rows" in defended.tried("big", "overlap")
    assert not defended.tried("big", "tables")
    assert "ValueError" in defended.tried("vectors_only", "maps")
    assert not defended.tried("vectors_only", "vectors")
    assert "entry point" in defended.asked("big", "processes", "pictures")
    assert not defended.asked("compiles", "compile", "pictures")
    assert "nothing that is compiled" in defended.asked("big", "compile", "pictures")
    compiler = torch.compile
    defended.asked("compiles", "compile", "tables")
    assert torch.compile is compiler


@pytest.mark.slow
@pytest.mark.parametrize("name", defenses.names())
def test_every_defense_has_a_row_that_is_found_out_the_same_again(name: str) -> None:
    row = defended.defense_row(name)
    assert set(row) == {*defended.CONDITIONS, *defended.ASKED}
    assert {column: bool(why) for column, why in row.items()} == {
        column: bool(why) for column, why in defended.defense_row(name).items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_surrogates_suit_the_rows_that_the_matrix_names(kind: Any) -> None:
    rows = toy_data(kind).parties["passive_1"].train.features
    assert rows is not None
    for name in surrogates.names():
        maker = surrogates.get(name)(surrogates.options(name)(name=name))
        if matrix.surrogate_row(name)[kind]:
            with pytest.raises(InputError):
                maker.check(rows.shape[1:])
        else:
            maker.check(rows.shape[1:])


def test_attacks_say_what_they_need_and_refuse_what_they_cannot_read() -> None:
    assert all(attacking.begun("colour_prior", kind) for kind in ("tables", "pictures"))
    assert not attacking.begun("unsplit", "tables")
    assert attacking.facts_of("unsplit")["transcript alone"]
    assert not attacking.facts_of("inverse")["transcript alone"]
    assert attacking.facts_of("averaging")["past payloads"]
    for name in attacks.names():
        facts = attacking.facts_of(name)
        assert facts["granted"], name
        assert not (facts["live"] and facts["transcript alone"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) == ("unsplit", "tables") else pytest.mark.slow)
        for name in attacks.names()
        for kind in KINDS
    ],
)
def test_an_audit_accepts_and_refuses_as_the_matrix_says(
    name: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from veracausa.audit import job as auditing
    from veracausa.audit import job as own_site
    from veracausa.audit import live as sitting_in

    job, data = defended.made("none", defended.Condition(job={"transcript": {"record": True}}), kind)
    job = job.model_copy(update={"checkpoints": job.checkpoints.model_copy(update={"moments": (0.0, 0.5)})})
    for module in (training, own_site, sitting_in):
        monkeypatch.setattr(module, "load", lambda settings, frames=None: data)
    run = training.train(job, tmp_path / "run")
    known = attacks.options(name).model_fields
    small = {"epochs": 1, "channels": 4, "blocks": 0, "main": 1, "steps": 2, "batch_size": 4, "reading_epochs": 1}
    given = [f"{name}.{setting}={value}" for setting, value in small.items() if setting in known]
    try:
        auditing.audit_run(run, AuditSettings([name], given, 8, 4, ["passive_1"]))
        happened = ""
    except VeracausaError as error:
        happened = str(error)
    assert bool(attacking.begun(name, kind)) == bool(happened), happened


def test_the_command_prints_tables_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every cell is tried by other tests; here a few stand for all, so that the default suite stays short.
    monkeypatch.setattr(matrix.defenses, "names", lambda: ["greyscale", "none"])
    monkeypatch.setattr(matrix.attacks, "names", lambda: ["colour_prior", "unsplit"])
    monkeypatch.setenv("COLUMNS", "100")
    shown = CliRunner().invoke(app, ["list", "matrix"])
    assert shown.exit_code == 0, shown.output
    assert "greyscale" in shown.stdout
    assert "removes colour" in shown.stdout
    found = json.loads(CliRunner().invoke(app, ["list", "matrix", "--json"]).stdout.splitlines()[-1])
    assert found["defenses"]["greyscale"]["tables"]["runs"] is False
    assert "colour" in found["defenses"]["greyscale"]["tables"]["why"]
    assert found["defenses"]["none"]["overlap"] == {"runs": True}
    assert found["attacks"]["unsplit"]["needs"] == ["architecture"]
    assert set(found["surrogates"]["lab"]) == set(SHAPES)
