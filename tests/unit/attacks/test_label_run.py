"""Label inference against a real federation: recorded while it trains, attacked from a passive party's seat."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from veracausa.attacks.base import Grant
from veracausa.attacks.gradient_record import GradientRecord
from veracausa.audit.labels import infer_labels
from veracausa.errors import InputError, RunError
from veracausa.runs.folder import Run
from veracausa.training.recorders import GradientsReturned, gradients_folder
from veracausa.training.train import train

pytestmark = pytest.mark.xdist_group("label_run")  # what its tests share is made once, not once a worker

JOB = {
    "data": {"name": "digits", "validation": 0.1},
    "model": {"name": "convnet"},
    "training": {"epochs": 2, "batch_size": 64},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("labels") / "run"
    return train(JOB, path, watchers=[GradientsReturned(parties=["passive_1"], memory=200_000)])


def test_every_row_s_gradient_of_every_epoch_is_kept(run: Run) -> None:
    record = GradientRecord(gradients_folder(run.path, "passive_1"))
    assert record.passes() == 2
    assert len(record.paths) > 1
    steps = torch.cat([part.step for part in record])
    assert steps[0] == 0
    assert (steps.diff() >= 0).all()
    assert not gradients_folder(run.path, "passive_2").exists()


def test_a_passive_party_learns_the_digits(run: Run) -> None:
    heard = []
    found = infer_labels(run, "passive_1", observer=heard.append)
    assert found["gradient_direction"]["advantage"] > 0.5
    assert found["model_completion"]["advantage"] > 0.3
    assert "2 classes" in found["gradient_norm"]["unavailable"]
    assert found["model_completion"]["known_labels"] == 50
    assert found["model_completion"]["granted"] == list(Grant.LABELLED_AUXILIARY.words)
    assert found["model_completion"]["prior"] < found["model_completion"]["rows_alone"] < 1
    assert "rows_alone" not in found["gradient_direction"]
    assert heard[-1]["share"] == 1
    alone = infer_labels(run, "passive_1", ["gradient_direction"], known=0)["gradient_direction"]
    assert alone["up_to_permutation"]
    assert alone["granted"] == []


def test_what_was_not_kept_is_said(run: Run) -> None:
    found = infer_labels(run, "passive_2", known=0)
    assert "record them" in found["gradient_direction"]["unavailable"]
    assert "labelled auxiliary" in found["model_completion"]["unavailable"]
    with pytest.raises(InputError, match="no training row left"):
        infer_labels(run, "passive_2", known=10_000)


def test_a_resumed_training_keeps_each_gradient_once(tmp_path: Path) -> None:
    job = {**JOB, "training": {"epochs": 2, "batch_size": 256}}
    whole = train(job, tmp_path / "whole", watchers=[GradientsReturned()])

    def stop_at(step: int):
        def observer(event) -> None:
            if event["event"] == "step" and event["step"] == step:
                raise RuntimeError("pulled the plug")

        return observer

    for step, resume in ((2, False), (whole.summary["rounds"] * 3 // 4, True)):  # before and after a checkpoint
        with pytest.raises(RunError, match="pulled the plug"):
            train(job, tmp_path / "torn", resume, watchers=[GradientsReturned()], observer=stop_at(step))
    torn = train(job, tmp_path / "torn", resume=True, watchers=[GradientsReturned()])
    for name in ("passive_1", "passive_2"):
        one, other = (list(GradientRecord(gradients_folder(r.path, name))) for r in (whole, torn))
        for field in ("step", "ids", "direction"):
            assert torch.equal(*(torch.cat([getattr(part, field) for part in parts]) for parts in (one, other)))
