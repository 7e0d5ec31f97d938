"""What stands beside a victim's last payload, and auxiliary rows from the training split, on one small run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import veracausa
from veracausa import seeding
from veracausa.attacks import attacks
from veracausa.audit.evaluation import AttackEvaluation
from veracausa.audit.sample import choose
from veracausa.audit.victim import StackedVictim, Victim
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.runs.folder import Run
from veracausa.training.split.program import Schema

JOB: dict[str, Any] = {
    "data": {"name": "digits", "train": 256, "test": 64},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 2, "batch_size": 64, "evaluate_every": 9},
    "checkpoints": {"moments": [0.0, 0.5]},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}
SMALL = {"epochs": 2, "channels": 4, "blocks": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return veracausa.train(JOB, out=tmp_path_factory.mktemp("stacked") / "run")


@pytest.fixture(scope="module")
def dataset(run: Run) -> VerticalDataset:
    return load(run.job)


def scene(run: Run, dataset: VerticalDataset, **sizes: Any) -> AttackEvaluation:
    data = dataset.parties["passive_1"]
    sample = choose(data, 0, **{"auxiliary": 24, "victims": 32, **sizes})
    return AttackEvaluation(run.job, dataset, Victim(run, data, Schema.of(dataset)), sample)


def test_both_parties_and_every_snapshot_stand_in_one_input(run: Run, dataset: VerticalDataset) -> None:
    outcome = scene(run, dataset).attacked(attacks.options("stacked")(name="stacked", **SMALL), lambda event: None)
    assert outcome.notes["payloads_stacked"] == 6, "two parties at two snapshots and at the end"
    assert outcome.notes["whole_training"] == 1
    few = attacks.options("stacked")(name="stacked", parties="victim", moments="end", **SMALL)
    alone = scene(run, dataset).attacked(few, lambda event: None)
    assert "whole_training" not in alone.notes
    assert alone.notes["payloads_stacked"] == 1


def test_the_input_is_every_members_own_payload(run: Run, dataset: VerticalDataset) -> None:
    schema, rows, rng = Schema.of(dataset), torch.arange(5), seeding.generator(0)
    first, second = (dataset.parties[name] for name in ("passive_1", "passive_2"))
    early = Victim(run, first, schema, 1)
    members = [Victim(run, first, schema), early, Victim(run, second, schema)]
    stacked = StackedVictim(members[0], members[1:])
    sent = stacked.payloads("test", rows, 1, rng)
    assert tuple(sent.shape[1:]) == stacked.payload_shape
    own = [member.payloads("test", rows, 1, rng) for member in members]
    assert not torch.equal(own[0], own[1]), "the model has learnt since"
    torch.testing.assert_close(sent, torch.cat(own, 1))
    assert not stacked.from_first, "of the second party the first exchange is missing"


def test_auxiliary_rows_that_the_test_split_lacks_come_from_training(run: Run, dataset: VerticalDataset) -> None:
    data = dataset.parties["passive_1"]
    few, more = (choose(data, 0, 100, 32, 20, from_training) for from_training in (False, True))
    assert (len(few.auxiliary), len(few.spare)) == (32, 0)
    assert (len(more.auxiliary), len(more.spare)) == (32, 68)
    assert torch.equal(few.victims["train"], more.victims["train"])
    used = torch.cat([more.victims["train"], more.known, more.spare])
    assert len(used.unique()) == len(used) == 120, "nobody is a victim and learnt from"
    assert len(choose(data, 0, 10_000, 32, from_training=True).spare) == 2 * 256 // 3
    evaluation = scene(run, dataset, auxiliary=100, from_training=True)
    assert len(evaluation.auxiliary) == 100
    outcome = evaluation.attacked(attacks.options("inverse")(name="inverse", **SMALL), lambda event: None)
    assert outcome.auxiliary == 100
    assert outcome.measured["train"].others["attributes"][0]["attribute"] in ("brightness", "contrast")
