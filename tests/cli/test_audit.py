"""`veracausa audit` on small runs: undefended, defended by noise alone, and of a table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import veracausa
from veracausa.audit.evaluation import column_groups
from veracausa.audit.job import audit_run, strength_check
from veracausa.audit.sample import choose
from veracausa.audit.settings import AuditSettings
from veracausa.audit.usefulness import Whole
from veracausa.cli.main import app
from veracausa.data.load import load
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.errors import InputError
from veracausa.runs.folder import Run

pytestmark = pytest.mark.xdist_group("audit")  # what its tests share is made once, not once a worker

QUICK = ("inverse.epochs=2", "inverse.channels=8", "inverse.blocks=1")
SETTINGS = [word for setting in QUICK for word in ("--set", setting)]
DIGITS = {
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 1, "batch_size": 128},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


class NoiseAlone(Defense):
    """Sends numbers that have nothing to do with the rows."""

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return 0 * r + torch.randn(r.shape, generator=self.rng)


class ScaledByBatch(Defense):
    """Hides nothing: the same map for all, but every batch has a scale and an offset of its own."""

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand(2, generator=torch.Generator().manual_seed(int(1e4 * float(x.detach().mean()))))
        return r * (0.1 + 9.9 * drawn[0]) + 10 * drawn[1]


@pytest.fixture
def registered() -> Iterator[None]:
    """Only while a test runs: other tests go over everything that is registered."""
    defenses.names()
    defenses.register("noise_alone")(NoiseAlone)
    defenses.register("scaled_by_batch")(ScaledByBatch)
    yield
    del defenses._entries["noise_alone"], defenses._entries["scaled_by_batch"]


@pytest.fixture(scope="module")
def undefended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return veracausa.train(DIGITS, tmp_path_factory.mktemp("audit") / "run").path


@pytest.fixture
def run(undefended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("COLUMNS", "120")
    return Path(shutil.copytree(undefended, tmp_path / "run"))


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_undefended_run_leaks_and_everything_is_written(run: Path) -> None:
    before = Run(run).summary
    printed = call("audit", str(run), "--victims", "100", *SETTINGS, "--json")
    found = json.loads(printed.splitlines()[-1])
    summary = Run(run).summary
    inverse = summary["attacks"]["inverse"]
    assert inverse["leakage"] > 0.5
    strongest = {key: inverse[key] for key in ("leakage", "party", "moment", "at", "end", "coverage")}
    assert summary["strongest"] == {"attack": "inverse", **strongest}
    assert inverse["coverage"] == summary["coverage"] == "last model", "the run kept no snapshots"
    assert summary["parties_not_attacked"] == []
    assert "whole training" not in summary["verdict"]
    assert "from the last model only" in summary["verdict"]
    assert "Last model only" in (run / "audit.md").read_text()
    assert summary["blind"]["mse"] == inverse["blind_mse"] > inverse["mse"]
    assert {"mse", "psnr", "ssim", "leakage"} <= set(inverse)
    assert found["attacks"]["inverse"] == inverse
    assert inverse["works"] is True
    assert inverse["undefended"]["leakage"] == inverse["leakage"]
    assert summary["verdict"].startswith("Nothing is defended, and the strongest attack, inverse, reads")
    assert {name: summary[name] for name in before} == before
    assert set(inverse["parties"]) == {"passive_1", "passive_2"}
    for party in inverse["parties"].values():
        assert party["train"]["samples"] == 100
        assert party["test"]["leakage"] > 0.5
        assert party["train"]["leakage"] <= inverse["leakage"]
        assert party["auxiliary"] == 179
        assert party["ssim_window"] == 3
    written = json.loads((run / "attacks/inverse/metrics.json").read_text())
    assert set(written["granted"]) == {"auxiliary", "weights", "defense", "labels", "labelled auxiliary"}
    assert written["settings"]["epochs"] == 2
    samples = pl.read_parquet(run / "attacks/inverse/samples.parquet")
    assert samples.height == 400
    worst = samples.filter((pl.col("party") == inverse["party"]) & (pl.col("split") == "train"))
    assert worst["mse"].mean() == pytest.approx(inverse["mse"], rel=1e-4)
    assert pl.read_parquet(run / "samples.parquet").equals(samples)
    assert set(samples["moment"]) == {1.0}
    assert summary["verdict"] in (run / "audit.md").read_text()
    assert (run / "report.html").is_file()
    assert Run(run).status["audit"]["state"] == "done"
    assert Image.open(run / "images/inverse-passive_1.png").size[0] > 100


def test_usefulness_is_measured_on_the_model_that_predicts(run: Path) -> None:
    trained = Run(run)
    sent, clean, depths, logits = Whole(trained, load(trained.job)).test(torch.arange(40))
    assert torch.allclose(sent, clean, atol=1e-5), "nothing is defended"
    assert len(depths) == 3
    assert torch.allclose(logits.softmax(1), trained.predict().outputs[:40], atol=1e-5)


def test_it_prints_a_table_and_a_sentence(run: Path) -> None:
    printed = call("audit", str(run), "--victims", "20", "--parties", "passive_2", *SETTINGS)
    assert "passive_2" in printed
    assert printed.count("passive_1") == 1
    assert "(passive_1 not attacked)" in printed
    assert "Last model only: what crossed earlier in the training was not attacked" in printed
    assert "20 train" in printed
    assert "the strongest attack, inverse, reads" in printed


def test_the_same_audit_again_gives_the_same_figure(run: Path) -> None:
    first, second = (
        audit_run(Run(run), AuditSettings(victims=20, overrides=QUICK, parties=["passive_1"])) for _ in range(2)
    )
    assert first["strongest"] == second["strongest"]


@pytest.mark.slow
def test_doubling_says_whether_the_figure_has_settled(run: Path) -> None:
    strength = strength_check(Run(run), victims=50, overrides=QUICK, parties=["passive_1"])["passive_1"]
    assert [entry["epochs"] for entry in strength[:2]] == [2, 4]
    party = Run(run).summary["attacks"]["inverse"]["parties"]["passive_1"]
    moved = abs(strength[-1]["leakage"] - strength[-2]["leakage"])
    assert party["settled"] == (moved < 0.02)
    assert party["train"]["leakage"] == max(entry["leakage"] for entry in strength)


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_a_map_that_changes_from_batch_to_batch_is_read_all_the_same(tmp_path: Path) -> None:
    run = veracausa.train({**DIGITS, "defense": {"name": "scaled_by_batch"}}, tmp_path / "run")
    settings = (*QUICK, "inverse.epochs=6")
    found = audit_run(run, AuditSettings(victims=200, overrides=settings, parties=["passive_1"]))
    assert found["strongest"]["leakage"] > 0.4


@pytest.mark.usefixtures("registered")
def test_noise_alone_leaks_nothing(tmp_path: Path) -> None:
    job = {**DIGITS, "defense": {"name": "noise_alone"}}
    run = veracausa.train(job, tmp_path / "run")
    overrides = (*QUICK, "inverse.average=2")
    found = audit_run(run, AuditSettings(victims=200, overrides=overrides, parties=["passive_1"]))
    party = found["attacks"]["inverse"]["parties"]["passive_1"]
    assert found["strongest"]["leakage"] < 0.05
    assert party["payloads_averaged"] == 2


def test_a_table_is_measured_by_its_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows: dict[str, Any] = {f"n{i}": rng.normal(size=300) for i in range(3)}
    rows["job"] = rng.choice(["nurse", "clerk", "cook"], 300)
    rows["own"] = rng.normal(size=300)
    rows["ill"] = (rows["n0"] + rows["own"] > 0).astype(int)
    pl.DataFrame(rows).write_csv(tmp_path / "people.csv")
    job = {
        **DIGITS,
        "data": {"name": "csv", "label": "ill", "path": tmp_path / "people.csv"},
        "model": {"name": "mlp", "cut": 2, "hidden": [32, 8]},
        "parties": {"active": "clinic", "passive": ["bank"]},
        "partition": {"columns": {"clinic": ["own"], "bank": ["n0", "n1", "n2", "job"]}},
        "checkpoints": {"moments": [0]},
    }
    run = veracausa.train({**job, "training": {"epochs": 2, "batch_size": 128}}, tmp_path / "run")
    found = audit_run(run, AuditSettings(overrides=("inverse.epochs=10", "inverse.channels=16")))
    entry = found["attacks"]["inverse"]
    assert entry["leakage"] > 0.5
    assert "ssim" not in entry
    # The run kept its first exchange, so this is of the whole training.
    assert found["coverage"] == "whole training"
    assert entry["leakage"] == max(told["train"] for told in entry["parties"]["bank"]["moments"])
    assert "the most over the whole training" in found["verdict"]
    columns = {one["column"]: one["leakage"] for one in entry["parties"]["bank"]["train"]["columns"]}
    assert set(columns) == {"n0", "n1", "n2", "job"}
    table, page = (run.path / "audit.md").read_text(), run.report().read_text(encoding="utf-8")
    assert "## Which columns inverse reads of bank" in table
    assert "Which columns of bank leak" in page
    shown = json.loads((run.path / "attacks/inverse/rows-bank.json").read_text())
    assert shown["columns"] == ["n0", "n1", "n2", "job"]
    first = shown["rows"][0]
    assert f"{rows['n0'][_row_of(first, rows)]:.4g}" == first["original"][0]
    assert all(f"<td>{value}</td>" in page for value in (*first["original"], *first["read"]))


def _row_of(shown: dict[str, Any], rows: dict[str, Any]) -> int:
    """The row of the file that has the three numbers shown."""
    numbers = [float(value) for value in shown["original"][:3]]
    distance = sum(abs(rows[f"n{place}"] - number) for place, number in enumerate(numbers))
    assert rows["job"][int(distance.argmin())] == shown["original"][3]
    return int(distance.argmin())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--attacks", "invers"], "did you mean 'inverse'"),
        (["--attacks", ","], "at least one attack"),
        (["--parties", "passive_3"], "no passive party"),
        (["--set", "inverse.epoch=3"], "did you mean 'epochs'"),
        (["--set", "inverse.epochs=none"], "inverse.epochs=none"),
        (["--set", "unsplit.steps=3"], "is not run"),
        (["--set", "epochs=3"], "ATTACK.SETTING=VALUE"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(run: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call("audit", str(run), *arguments)
    assert not (run / "attacks").exists()


def test_a_run_that_is_not_finished_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "status.json").write_text('{"state": "running"}')
    with pytest.raises(InputError, match="not finished; finish it with --resume"):
        call("audit", str(run))
    with pytest.raises(InputError, match="not a run folder"):
        call("audit", str(tmp_path))


def test_no_auxiliary_row_is_a_victim(run: Path) -> None:
    job = Run(run).job
    parties = load(job).parties
    samples = [choose(parties[name], job.seed, 4000, 2000) for name in job.parties.passive]
    assert torch.equal(samples[0].auxiliary, samples[1].auxiliary)
    assert not set(samples[0].auxiliary.tolist()) & set(samples[0].victims["test"].tolist())
    assert len(samples[0].auxiliary) == len(parties["passive_1"].test) // 2
    with pytest.raises(InputError, match="too few"):
        choose(parties["passive_1"], 0, 3, 2000)


def test_columns_of_a_table_are_grouped_as_they_were() -> None:
    numeric = {"kind": "numeric", "missing": False}
    flagged = {"kind": "numeric", "missing": True}
    category = {"kind": "categorical", "values": ["a", "b"], "other": True, "missing": True}
    assert column_groups({"columns": [numeric, flagged, category, numeric]}) == (0, 1, 2, 3, 3, 3, 3, 4)
    assert column_groups(None) is None
