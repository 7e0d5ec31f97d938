"""The audit's picture of a blind run is the run: the same sums, the same answers, the same labels told."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import veracausa
from veracausa.attacks.blind import Release
from veracausa.audit.blind import BlindAudit, BlindAuditSettings
from veracausa.audit.blind_labels import LabelSituations
from veracausa.audit.blind_record import audit_blind_run
from veracausa.audit.blind_situations import RowSituations
from veracausa.audit.blind_system import BlindSystem
from veracausa.crypto.moments import Moments
from veracausa.data.load import load
from veracausa.errors import InputError
from veracausa.report.audit_figures import tables_read
from veracausa.runs.folder import Run
from veracausa.runs.store import Store

QUICK = tuple(f"score_decoder.{setting}" for setting in ("epochs=1", "width=16", "blocks=0", "fourier=16"))


def trained(folder: Path, **blind: Any) -> Run:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 6))
    label = np.where(x[:, 0] + x[:, 2] + x[:, 4] + 0.5 * rng.normal(size=800) > 0, "yes", "no")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"c{i}" for i in range(6)), "label"])
        writer.writerows([f"P{at}", *(f"{v:.5f}" for v in x[at]), label[at]] for at in range(800))
    job = {
        "name": "toy",
        "data": {"name": "csv", "path": str(folder / "rows.csv"), "id": "id", "label": "label"},
        "parties": {"passive": ["p1", "p2"]},
        "partition": {
            "active_has_features": True,
            "columns": {"active": ["c0", "c1"], "p1": ["c2", "c3"], "p2": ["c4", "c5"]},
        },
        "training": {"protocol": "blind"},
        "blind": {"encryption": "none", "labels": "private", "label_epsilon": 2.0, **blind},
        "features": {"name": "splines", "functions": 4},
        "runtime": {"device": "cpu", "cpu_threads": 1},
    }
    return veracausa.train(job, folder / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("blind"))


@pytest.fixture(scope="module")
def system(run: Run) -> BlindSystem:
    return BlindSystem.of_run(run, load(run.job))


def test_what_the_audit_opens_is_what_a_prediction_opens(run: Run, system: BlindSystem) -> None:
    everybody = torch.arange(len(system.active.test))
    scores = system.opened("test", everybody) + system.part("active", "test", everybody)
    ours = system.head.outputs(scores.numpy()).softmax(1)
    assert torch.allclose(ours, run.predict().outputs, atol=1e-3)  # features and weights are in fixed point there
    again = system.opened("test", everybody)
    assert torch.equal(again, system.opened("test", everybody))  # permanent
    exact = sum(system.part(party, "test", everybody) for party in system.passive)
    assert 0 < float((again - exact).abs().max()) <= system.step


def test_its_sums_are_those_that_were_released(run: Run, system: BlindSystem) -> None:
    store = Store(run.path, "active")
    state = store.load(max(store.steps()))
    released = Moments.of(state["moments"])
    own = system.own_block("train", system.training)
    features = system.features("p1", "train", system.training)
    ours: Release = system.release_of("p1", own, features)
    theirs = released.block("active", "p1")
    mine = ours.gram[own.shape[1] - len(theirs) : own.shape[1], ours.victim]
    # Sums there are of values rounded to 1/128.
    assert np.abs(mine - theirs).max() < 0.02 * len(system.training)
    assert np.corrcoef(mine.ravel(), theirs.ravel())[0, 1] > 0.9999


def test_the_labels_as_told_are_those_that_left(system: BlindSystem) -> None:
    labels = LabelSituations(system, "p1")
    view = labels.makers["labels as told"]().view
    right = float((view.told == labels.labels).double().mean())
    kept = float(view.transition[0, 0])
    assert right == pytest.approx(kept, abs=0.06)
    assert kept == pytest.approx(np.exp(2) / (1 + np.exp(2)))


def test_no_auxiliary_row_is_a_target(system: BlindSystem) -> None:
    sample = system.choose(10_000, 50)
    assert not set(sample.auxiliary.tolist()) & set(sample.predicted.tolist())
    assert len(sample.predicted) >= 20
    assert len(sample.auxiliary) > len(sample.predicted)


def test_noise_spares_what_the_receiver_knows(system: BlindSystem) -> None:
    own, features = system.own_block("train", system.training), system.features("p1", "train", system.training)
    exact, noisy = (system.release_of("p1", own, features, noise) for noise in (0.0, system.noise_at(1.0)))
    columns = own.shape[1]
    assert np.array_equal(exact.gram[:columns, :columns], noisy.gram[:columns, :columns])
    assert np.allclose(noisy.gram, noisy.gram.T)
    spread = (noisy.gram - exact.gram)[columns:, :columns].std()
    assert spread == pytest.approx(noisy.noise, rel=0.4)


def test_a_row_less_is_that_row(system: BlindSystem) -> None:
    sample = system.choose(100, 20)
    situations = RowSituations(system, sample, "p1")
    for name, exact in (("a row less", True), ("a row less, scaled again", False)):
        situation = situations.makers[name]()
        one, other = situation.view.releases(0)
        gone = (one.gram - other.gram)[one.victim, one.own.stop - 1]
        row = system.features("p1", "train", situation.positions[:1])[0].numpy()
        assert np.allclose(gone, row) is exact


def test_an_audit_of_rows_runs_where_it_is_told_to(system: BlindSystem) -> None:
    asked = BlindAuditSettings(("score_decoder",), QUICK, parties=("p2",), situations=("summed scores",))
    (outcome,) = BlindAudit(system, asked).outcomes()
    assert outcome.situation.as_run
    assert outcome.victim == "p2"
    assert 0 <= outcome.scores["leakage"] <= 1
    with pytest.raises(InputError, match="no passive party"):
        BlindAudit(system, BlindAuditSettings(parties=("nobody",)))


def test_a_situation_is_as_run_where_its_name_says_so(system: BlindSystem) -> None:
    rows = RowSituations(system, system.choose(200, 60), "p1")
    for place in (rows, LabelSituations(system, "p1")):
        assert {name for name, make in place.makers.items() if make().as_run} == place.as_run


def test_label_bound_stands_above_what_was_measured(run: Run) -> None:
    audit_blind_run(run, BlindAuditSettings(("label_inference",)))
    told = run.summary["label_attacks"]["label_inference"]
    assert told["epsilon"] == 2.0
    assert told["accuracy"] <= told["bound"] + 0.03
    assert "epsilon = 2" in run.summary["label_verdict"]


def test_the_page_says_which_columns_of_predicted_rows_leak(run: Run) -> None:
    audit_blind_run(run, BlindAuditSettings(("score_decoder",), QUICK, situations=("summed scores",)))
    (first, second) = tables_read(run.path, run.summary["attacks"]["score_decoder"])
    assert (first.party, second.party) == ("p1", "p2")
    assert (first.of, first.where) == ("predicted", "on predicted rows")
    leaked = [share for _, share in first.columns]
    assert leaked == sorted(leaked, reverse=True)
    assert first.names == [name for name, _ in first.columns]
    assert {len(row["original"]) for row in first.rows} == {len(row["read"]) for row in first.rows} == {2}
    page = run.report().read_text(encoding="utf-8")
    assert "Which columns of p1 leak" in page
    assert "Predicted rows of p2 and what score_decoder made" in page


def test_a_run_with_a_party_missing_is_refused(run: Run, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run.path, tmp_path / "copy")
    (tmp_path / "copy" / "parties" / "p2" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="p2"):
        audit_blind_run(Run(tmp_path / "copy"), BlindAuditSettings())


def test_no_training_row_is_singled_out_by_the_active_partys_columns(run: Run, system: BlindSystem) -> None:
    """The fitted value of a row holds its leverage of its own features: not more than one of `min_rows` rows."""
    everybody = torch.arange(len(system.active.train))
    own = system.own_block("train", everybody).numpy()
    own = np.concatenate([np.ones((len(own), 1)), own], axis=1)  # known without being sent
    leverage = np.einsum("ij,jk,ik->i", own, np.linalg.pinv(own.T @ own, rcond=1e-10), own)
    assert leverage.max() <= 1.02 / run.job.blind.min_rows
