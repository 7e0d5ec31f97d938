"""Payloads of another shape: the adapter itself, what is announced, and what attackers and checkpoints get of it."""

from __future__ import annotations

import pytest
import torch
import trainings
from refusals import Field, Names
from torch import nn
from trainings import image_data, job_for, table_data, train_all

from veracausa import seeding
from veracausa.audit.attacker import AdversaryKnowledge
from veracausa.config import Job
from veracausa.errors import InputError, WireError
from veracausa.models.cut import build_adapter
from veracausa.registry import Options
from veracausa.runs.store import same
from veracausa.testing.defense import check_defense
from veracausa.training.split.active import ActiveParty
from veracausa.training.split.halves import build_defended
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema
from veracausa.training.train import check_models

CONVNET = {"name": "convnet", "cut": 6}


@pytest.fixture(autouse=True)
def layered(monkeypatch):
    trainings.registered(monkeypatch)


def with_defense(job: Job, **defense) -> Job:
    return Job.model_validate({**job.model_dump(), "defense": {"name": "layered", **defense}})


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ((3, 2, 1), (8, 4, 2)),
        ((3, 5, 3), (8, 7, 3)),
        ((4,), (9,)),
        ((4,), (2, 3, 2)),
        ((2, 3, 2), (5,)),
        ((6,), (2, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_gives_the_expected_shape_and_passes_gradients(payload, expected, dtype):
    adapter = build_adapter(payload, expected, seeding.generator(0))
    r = torch.randn(4, *payload, generator=seeding.generator(1)).to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = adapter(r)
    assert output.shape == (4, *expected)
    assert output.dtype == dtype
    output.float().sum().backward()
    assert r.grad.abs().sum() > 0


def test_an_adapter_draws_from_its_generator_alone():
    before = torch.get_rng_state()
    first, second = (build_adapter((3, 2, 1), (8, 4, 2), seeding.generator(5)).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(first, second)
    assert not same(first, build_adapter((3, 2, 1), (8, 4, 2), seeding.generator(6)).state_dict())


def test_an_adapter_that_no_memory_holds_is_refused():
    with pytest.raises(InputError, match="needs an adapter"):
        build_adapter((1 << 19,), (1 << 19,), seeding.generator(0))


def test_the_contract_holds_for_layers():
    check_defense(trainings.Layered)


def test_the_contract_finds_a_defense_that_keeps_its_layers():
    class Kept(trainings.Layered):
        def layers(self, shape):
            self.own = super().layers(shape)
            return self.own

        def protect(self, r, x, ids):
            return r + next(self.own.parameters()).sum()

    with pytest.raises(AttributeError, match="own"):
        check_defense(Kept)


def test_layers_are_drawn_last_and_are_part_of_the_bottom():
    data = image_data(1)
    plain = job_for(data, CONVNET)
    job = with_defense(plain)
    bottoms = [build_defended(j, "passive_1", (3, 16, 8), 4, seeding.generator(3)) for j in (plain, job)]
    assert bottoms[0].payload == bottoms[0].expected == bottoms[1].expected == (16, 4, 2)
    assert bottoms[1].payload == (3, 2, 1)
    own = bottoms[0].module.state_dict()
    assert all(torch.equal(value, bottoms[1].module.state_dict()[name]) for name, value in own.items())
    assert len(bottoms[1].module) == len(bottoms[0].module) + 1
    assert isinstance(bottoms[1].module[-1], nn.Sequential)


def test_the_top_is_the_same_with_and_without_an_adapter(tmp_path):
    """No step is taken: what differs is what was drawn."""
    data = image_data(2)
    plain = job_for(data, CONVNET, optimizer={"name": "sgd", "lr": 1e-30})
    without, adapted = train_all([(plain, data), (with_defense(plain), data)], "threads", tmp_path)
    assert "adapters" not in without["active"]
    assert set(adapted["active"]["adapters"]) == {"passive_1", "passive_2"}
    assert same(without["active"]["top"], adapted["active"]["top"])


def test_only_the_party_with_layers_gets_an_adapter(tmp_path):
    data = image_data(2, active_part=True)
    plain = job_for(data, CONVNET)
    job = Job.model_validate({**plain.model_dump(), "party": {"passive_2": {"defense": {"name": "layered"}}}})
    (states,) = train_all([(job, data)], "threads", tmp_path)
    assert set(states["active"]["adapters"]) == {"passive_2"}


class Announcing:
    """A link over which one peer has said hello."""

    def __init__(self, expected):
        self.tensors = {"shape": torch.tensor([3]), "expected": torch.tensor(expected)}
        self.tensors["present"] = torch.ones(24, dtype=torch.bool)
        self.meta = {"train": 24, "validation": 0, "test": 0}

    def declare(self, *kinds, peer=None):
        pass

    def gather(self, kind, exchange):
        return {"passive_1": self}


@pytest.mark.parametrize("expected", [[1 << 21], [0], []])
def test_an_announced_shape_is_checked(expected):
    data = table_data(1)
    job = job_for(data, {"name": "mlp", "cut": 2, "hidden": [8, 8]})
    party = ActiveParty(job, data.parties["active"], "classification", 3, "features")
    with pytest.raises(WireError, check=Field("hello.expected")):
        party.meet(Announcing(expected))


def test_a_live_attacker_gets_the_layers_and_a_top_that_takes_the_payload():
    data = image_data(2)
    job = with_defense(job_for(data, CONVNET))
    rows = {name: torch.rand(4, 3, 16, 8, generator=seeding.generator(0)) for name in data.passive}
    knowledge = AdversaryKnowledge(job, "passive_1", Schema.of(data), rows, None, None)
    view = knowledge.view(Options(name="any"), None)
    assert view.payload_shape == (3, 2, 1)
    assert view.bottom(seeding.generator(0))(rows["passive_1"]).shape == (4, 3, 2, 1)
    assert view.other_bottoms["passive_2"](seeding.generator(0))(rows["passive_2"]).shape == (4, 3, 2, 1)


def test_models_are_checked_with_layers_and_adapter(monkeypatch):
    data = image_data(1)
    job = with_defense(job_for(data, CONVNET))
    assert check_models(job, data) is not None
    monkeypatch.setattr(trainings.Layered, "layers", lambda self, shape: nn.Conv2d(99, 3, 1))
    with pytest.raises(InputError, check=Names("passive_1", "99")):
        check_models(job, data)


def test_a_passive_party_trains_its_layers():
    data = image_data(1)
    party = PassiveParty(with_defense(job_for(data, CONVNET)), data.parties["passive_1"], 4)
    trained = {id(p) for group in party.optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in party.bottom.parameters()}
    assert party.shape == (3, 2, 1)
    assert party.expected == (16, 4, 2)
