"""A party's checkpoints and snapshots: whole or known to be torn, the newest that all hold, the oldest removed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from refusals import Names

import veracausa
from veracausa.config import Checkpoints
from veracausa.data.load import load
from veracausa.errors import RunError
from veracausa.runs import store as store_module
from veracausa.runs.store import Store, common_step
from veracausa.training.checkpoints import restore_passive
from veracausa.training.split.program import Schema
from veracausa.wire.message import Message


def state(step: int) -> dict:
    return {"step": step, "weight": torch.full((3,), float(step))}


def saved(run, party: str, *steps: int, keep: int = 3) -> Store:
    store = Store(run, party, keep)
    for step in steps:
        store.save(step, state(step))
    return store


def file_of(store: Store, step: int):
    (path,) = store.checkpoints.glob(f"step-{step:08d}-*.safetensors")
    return path


def tear(store: Store, step: int, how: str) -> None:
    path = file_of(store, step)
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        content[-1] ^= 1
        path.write_bytes(content)
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()


def test_a_checkpoint_comes_back(tmp_path):
    store = saved(tmp_path, "a", 5)
    assert torch.equal(store.load(5)["weight"], torch.full((3,), 5.0))
    with pytest.raises(RunError, check=Names("checkpoints", "6")):
        store.load(6)


def test_only_the_newest_are_kept(tmp_path):
    store = saved(tmp_path, "a", 1, 2, 3, 4, 30, keep=2)
    assert store.steps() == store.whole_steps() == {4, 30}
    assert len(list(store.checkpoints.iterdir())) == 2


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty", "missing"])
def test_a_torn_newest_checkpoint_leads_to_the_one_before(how, tmp_path):
    stores = [saved(tmp_path, party, 1, 2, 3) for party in ("a", "b", "c")]
    assert common_step(stores) == 3
    tear(stores[1], 3, how)
    assert common_step(stores) == 2
    assert stores[1].whole_steps() == {1, 2}
    if how != "missing":
        with pytest.raises(RunError, check=Names("checkpoints", "3")):
            stores[1].load(3)


def test_the_common_step_is_the_newest_that_is_whole_everywhere(tmp_path):
    first, second = saved(tmp_path, "a", 1, 2, 3), saved(tmp_path, "b", 2, 3, 4)
    assert common_step([first, second]) == 3
    tear(first, 3, "flipped")
    tear(second, 2, "flipped")
    assert common_step([first, second]) is None
    assert common_step([Store(tmp_path, "new")]) is None


def test_what_came_later_is_made_again(tmp_path):
    store = saved(tmp_path, "a", 1, 2, 3)
    tear(store, 3, "truncated")
    store.forget_after(2)
    assert store.steps() == {1, 2}
    store.save(3, state(3))
    assert store.whole_steps() == {1, 2, 3}


def test_other_files_are_no_checkpoints(tmp_path):
    store = saved(tmp_path, "a", 1)
    for name in (".step-00000002-0123456789abcdef.safetensors.77.tmp", "step-2.safetensors", "notes.txt"):
        (store.checkpoints / name).write_text("x")
    assert store.steps() == {1}


def test_a_full_disk_leaves_the_checkpoints_before(tmp_path, monkeypatch):
    store = saved(tmp_path, "a", 1, 2, keep=2)

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "atomic_write", full)
    with pytest.raises(OSError, match="No space"):
        store.save(3, state(3))
    assert store.whole_steps() == {1, 2}


def test_the_ledger_goes_back_with_the_checkpoint(tmp_path):
    store = Store(tmp_path, "a")
    message = Message("a", "b", "hello", 0, {}, {})
    for _ in range(3):
        store.ledger.record(message, 10)
    store.save(1, state(1))
    for _ in range(4):
        store.ledger.record(message, 10)
    store.ledger.flush()
    assert len(store.ledger.path.read_text().splitlines()) == 7
    again = Store(tmp_path, "a")
    again.load(1)
    assert (again.ledger.messages, again.ledger.bytes_sent) == (3, 30)
    assert len(again.ledger.path.read_text().splitlines()) == 3


def test_a_partys_records_are_lines_with_its_name(tmp_path):
    for party in ("a", "b"):
        Store(tmp_path, party).log({"epoch": 1})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"party": "a", "epoch": 1}\n{"party": "b", "epoch": 1}\n'


JOB = {
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 2, "batch_size": 256},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "checkpoints": {"moments": [0.0, 0.5], "keep": 2},
}


def test_shares_are_steps_and_nothing_is_before_the_first_exchange() -> None:
    assert Checkpoints(moments=(0.0, 0.1, 0.5, 1.0)).moment_steps(40) == {1, 4, 20, 40}
    assert Checkpoints(moments=(0.0, 0.1)).moment_steps(4) == {1}
    assert Checkpoints().moment_steps(40) == set()


def test_moments_are_no_checkpoints_and_later_ones_are_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path, "a", keep=2)
    for step in (1, 5, 9):
        store.keep_moment(step, {"weight": torch.tensor([float(step)])})
        store.save(step, {})
    assert store.moment_steps() == [1, 5, 9]
    assert store.steps() == {5, 9}
    assert store.moment(5)["weight"].item() == 5
    store.forget_after(5)
    assert store.moment_steps() == [1, 5]
    with pytest.raises(RunError, match="no such moment"):
        store.moment(9)


def test_a_party_comes_back_as_it_was_then(tmp_path: Path) -> None:
    run = veracausa.train(JOB, tmp_path / "run")
    dataset = load(run.job)
    steps = Store(run.path, "passive_1").moment_steps()
    assert steps == [1, run.summary["rounds"] // 2]
    restored = [
        restore_passive(run, "passive_1", dataset.parties["passive_1"], Schema.of(dataset), step)
        for step in (*steps, None)
    ]
    weights = [next(iter(party.bottom.parameters())) for party in restored]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert Store(run.path, "active").moment_steps() == steps
