"""One copy of the data: strips are views of one array in threads, one shared block a party between processes."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest
import torch

from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.data.overlap import restrict
from veracausa.training.split.program import Schema, make_party, share, unshare
from veracausa.wire.memory import SharedTensor

JOB = {"data": {"name": "digits", "validation": 0.1}, "model": {"name": "convnet"}, "runtime": {"device": "cpu"}}


@pytest.fixture(scope="module")
def digits():
    return load(load_job(JOB))


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_the_strips_of_all_parties_are_views_of_one_array(digits):
    first, second = (digits.parties[name] for name in ("passive_1", "passive_2"))
    assert storage(first.train.features) == storage(second.train.features) == storage(second.validation.features)
    assert storage(first.test.features) == storage(second.test.features)


@pytest.mark.parametrize("name", ["active", "passive_1", "passive_2"])
def test_a_party_of_a_run_copies_nothing(name, digits):
    job = load_job(JOB)
    data = digits.parties[name]
    party = make_party(job, unshare(data), Schema.of(digits))
    for split in ("train", "test"):
        for held in ("features", "labels"):
            theirs, ours = getattr(data.part(split), held), getattr(party.parts[split], held)
            assert (theirs is None) == (ours is None)
            if theirs is not None:
                assert ours.data_ptr() == theirs.data_ptr()


@pytest.mark.parametrize("name", ["active", "passive_1", "passive_2"])
def test_shared_rows_are_the_same_rows_in_the_same_memory(name, digits):
    data = digits.parties[name]
    if name == "passive_2":
        data = replace(data, train=restrict(data.train, torch.arange(0, len(data.train), 2)))
    shared = share(data)
    once, twice = unshare(shared), unshare(shared)
    for split in ("train", "validation", "test"):
        for held in ("features", "index", "labels"):
            before, first, second = (getattr(d.part(split), held) for d in (data, once, twice))
            if before is None:
                assert first is None
                continue
            assert isinstance(getattr(shared.part(split), held), SharedTensor)
            assert torch.equal(first, before)
            assert first.dtype == before.dtype
            assert first.data_ptr() == second.data_ptr() != before.data_ptr()
        assert len(once.part(split)) == len(data.part(split))
    assert once.shape == data.shape


def test_rows_that_are_not_shared_stay_as_they_are(digits):
    data = digits.parties["passive_1"]
    assert unshare(data).train.features is data.train.features


def test_a_child_process_writes_into_the_same_memory():
    """Forked, because a spawned one would import torch for seconds; the block is the same anonymous file."""
    block = SharedTensor(torch.zeros(4))
    child = multiprocessing.get_context("fork").Process(target=lambda: block.tensor()[1:3].numpy().fill(7))
    child.start()
    child.join()
    assert block.tensor().tolist() == [0, 7, 7, 0]


def test_the_schema_tells_the_top_how_many_outputs_it_has(digits):
    assert Schema.of(digits).outputs == 10
    assert Schema("regression", (), "features").outputs == 1
