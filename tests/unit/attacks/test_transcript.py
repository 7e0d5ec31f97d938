"""A transcript comes back as it was written, and every way in which one can be wrong is a sentence."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import Names
from safetensors.torch import load_file, save_file

from veracausa.attacks.base import Exchange
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter
from veracausa.config import load_job
from veracausa.errors import InputError
from veracausa.training.recorders import named_moments
from veracausa.training.train import train

SHAPE = (2, 3)


def head(**settings) -> Head:
    return Head(**{"victim": "bank", "payload_shape": SHAPE, "row_shape": (1, 4, 4), "classes": 3, **settings})


def exchanges(count: int = 6, rows: int = 4, people: int = 8, labels: bool = True) -> list[Exchange]:
    rng = torch.Generator().manual_seed(1)
    made = []
    for step in range(1, count + 1):
        ids = torch.randperm(people, generator=rng)[:rows]
        classes = torch.randint(0, 3, (rows,), generator=rng) if labels else None
        shop = {"shop": torch.randn(rows, 5, generator=rng)}
        made.append(Exchange(step, ids, torch.randn(rows, *SHAPE, generator=rng), classes, shop))
    return made


def written(path, made: list[Exchange], flush_every: int = 2, **settings):
    writer = TranscriptWriter(path, head(**settings))
    for number, exchange in enumerate(made, 1):
        writer.add(exchange)
        if number % flush_every == 0:
            writer.flush()
    writer.close()
    return path


def alike(first: Exchange, second: Exchange) -> bool:
    pairs = [(first.ids, second.ids), (first.payload, second.payload)]
    if first.labels is not None or second.labels is not None:
        pairs.append((first.labels, second.labels))
    return first.step == second.step and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("flush_every", [1, 4, 100])
def test_it_comes_back_as_it_was_written(tmp_path, labels, flush_every):
    made = exchanges(labels=labels)
    back = Transcript(written(tmp_path / "t", made, flush_every, others={"shop": (5,)}, moments={"start": 1, "end": 6}))
    assert len(back) == 6
    assert back.head.victim == "bank"
    assert all(alike(a, b) for a, b in zip(made, back, strict=True))
    assert all(torch.equal(a.others["shop"], b.others["shop"]) for a, b in zip(made, back, strict=True))
    assert alike(back.at("end"), made[-1])
    assert alike(back.at(3), made[2])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 4))
def test_exchanges_of_any_size_come_back(tmp_path_factory, sizes, flush_every):
    rng = torch.Generator().manual_seed(2)
    made = [
        Exchange(2 * n + 1, torch.arange(s), torch.randn(s, *SHAPE, generator=rng), None) for n, s in enumerate(sizes)
    ]
    back = Transcript(written(tmp_path_factory.mktemp("t"), made, flush_every))
    assert all(alike(a, b) for a, b in zip(made, back, strict=True))


def test_the_latest_payload_of_each_id(tmp_path):
    made = exchanges()
    back = Transcript(written(tmp_path / "t", made, moments={"middle": 3}))
    for until, wanted in ((None, made), ("middle", made[:3])):
        latest = {int(i): (e.step, e.payload[n]) for e in wanted for n, i in enumerate(e.ids)}
        ids = torch.tensor(sorted(latest, reverse=True))
        payloads, steps = back.last_payloads(ids, until)
        assert steps.tolist() == [latest[int(i)][0] for i in ids]
        assert torch.equal(payloads, torch.stack([latest[int(i)][1] for i in ids]))
    with pytest.raises(InputError, check=Names("t", "99")):
        back.last_payloads(torch.tensor([1, 99]))


def test_all_payloads_of_an_id_are_bounded_and_the_latest_come_first(tmp_path):
    made = exchanges(count=8, people=4)  # everybody in every exchange
    back = Transcript(written(tmp_path / "t", made, 3))
    payloads, steps = back.all_payloads(torch.tensor([2, 0]), most=3)
    assert steps.tolist() == [[8, 7, 6]] * 2
    for row, someone in enumerate((2, 0)):
        for slot, exchange in enumerate(reversed(made[-3:])):
            assert torch.equal(payloads[row, slot], exchange.payload[(exchange.ids == someone).nonzero()[0, 0]])
    assert back.all_payloads(torch.tensor([9]), most=2)[1].tolist() == [[-1, -1]]
    assert back.all_payloads(torch.tensor([], dtype=torch.int64))[0].shape == (0, 32, *SHAPE)


def test_the_buffer_is_spilled_and_a_resume_cuts_back(tmp_path):
    writer = TranscriptWriter(tmp_path / "t", head(payload_shape=(64, 64)), buffer_mib=1)
    rows = [Exchange(step, torch.arange(40), torch.ones(40, 64, 64), None) for step in range(1, 9)]
    for exchange in rows:
        writer.add(exchange)
    assert writer.parts == 4, "640 KiB an exchange, 1 MiB of buffer"
    kept = writer.parts, writer.exchanges
    writer.add(Exchange(9, torch.arange(1), torch.ones(1, 64, 64), None))
    writer.flush()
    again = TranscriptWriter(tmp_path / "t", head(payload_shape=(64, 64)), resume=True)
    again.cut_back(*kept)
    assert len(Transcript(tmp_path / "t")) == 8, "an unfinished transcript can be read as far as it goes"
    again.add(Exchange(9, torch.arange(2), torch.ones(2, 64, 64), None))
    again.close()
    back = Transcript(tmp_path / "t")
    assert len(back) == 9
    assert len(back.at(9).ids) == 2
    assert not list((tmp_path / "t").glob("*.tmp"))


def change(path, **tensors):
    """Lay tensors over a part's; None takes one away."""
    held = load_file(path)
    held.update(tensors)
    save_file({name: value for name, value in held.items() if value is not None}, path)


def nan_at(path):
    payloads = load_file(path)["payloads"]
    payloads[3, 0, 0] = float("nan")
    return payloads


PART = "part-00001.safetensors"
BROKEN = {
    "no ids": (lambda p: change(p / PART, ids=None), "no tensor 'ids'"),
    "too few ids": (lambda p: change(p / PART, ids=torch.arange(3)), "ids of shape"),
    "negative id": (lambda p: change(p / PART, ids=torch.arange(8) - 1), "an id is -1"),
    "ids of a wrong type": (lambda p: change(p / PART, ids=torch.arange(8).float()), "must be int64"),
    "wrong shape": (lambda p: change(p / PART, payloads=torch.zeros(8, 3, 3)), "have shape"),
    "wrong type": (lambda p: change(p / PART, payloads=torch.zeros(8, *SHAPE).half()), "float16"),
    "NaN": (lambda p: change(p / PART, payloads=nan_at(p / PART)), "row 3 of payloads is not finite"),
    "steps backwards": (lambda p: change(p / PART, steps=torch.arange(8).flip(0) + 1), "count up"),
    "a label too many": (lambda p: change(p / PART, labels=torch.full((8,), 3)), "3 classes"),
    "labels in some": (lambda p: change(p / PART, labels=None), "all of them or none"),
    "empty": (lambda p: change(p / PART, payloads=torch.zeros(0, *SHAPE)), "no payloads"),
    "truncated": (lambda p: (p / PART).write_bytes((p / PART).read_bytes()[:-40]), "not a whole safetensors"),
    "rubbish": (lambda p: (p / PART).write_bytes(b"rubbish"), "not a whole safetensors"),
    "a part lost in the middle": (lambda p: (p / PART).unlink(), "part-00001.safetensors is missing"),
    "a part lost at the end": (lambda p: (p / "part-00002.safetensors").unlink(), "says 6 exchanges"),
    "a part twice": (lambda p: shutil.copy(p / PART, p / "part-00003.safetensors"), "twice or out of order"),
    "no parts": (lambda p: [part.unlink() for part in p.glob("part-*")], "nothing was recorded"),
    "no head": (lambda p: (p / "transcript.json").unlink(), "not a transcript"),
    "a torn head": (lambda p: (p / "transcript.json").write_text('{"version": 1'), "transcript.json"),
    "another version": (lambda p: head_with(p, version=2), "reads version 1"),
    "a typo": (lambda p: head_with(p, payload_shap=[2]), "payload_shap"),
    "an unknown type": (lambda p: head_with(p, dtype="int8"), "there are"),
    "others missing": (lambda p: head_with(p, others={"shop": [5]}), "others/shop"),
}


def head_with(path, **fields):
    about = json.loads((path / "transcript.json").read_text())
    (path / "transcript.json").write_text(json.dumps({**about, **fields}))


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path, case):
    path = written(tmp_path / "t", exchanges())
    Transcript(path)
    breaking, words = BROKEN[case]
    breaking(path)
    with pytest.raises(InputError, match=words) as refused:
        Transcript(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_moment_that_is_not_there_is_said(tmp_path):
    back = Transcript(written(tmp_path / "t", exchanges(), moments={"end": 60}))
    with pytest.raises(InputError, check=Names("t", "start")):
        back.at("start")
    with pytest.raises(InputError, check=Names("t", "60")):
        back.at("end")


JOB = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "training": {"epochs": 2, "batch_size": 256, "evaluate_every": 9},
    "checkpoints": {"every_steps": 2, "moments": [0.5]},
    "risk": {"every": 0},
}


def test_a_run_records_what_crossed_and_is_not_changed_by_it(tmp_path):
    job = {**JOB, "transcript": {"record": True, "every": 4, "victims": ["passive_2"]}}
    recorded, plain = train(job, tmp_path / "recorded"), train(JOB, tmp_path / "plain")
    for party in ("active", "passive_1", "passive_2"):
        first, second = ((run.path / "parties" / party / "model.safetensors") for run in (recorded, plain))
        assert first.read_bytes() == second.read_bytes()
    folder = recorded.path / "parties" / "active" / "transcript"
    assert [path.name for path in folder.iterdir()] == ["passive_2"]
    back = Transcript(folder / "passive_2")
    assert back.head.moments == {"start": 1, "50%": 6, "end": 12}
    assert [exchange.step for exchange in back] == [1, 5, 6, 9, 12]
    assert back.head.row_shape == (1, 8, 4)
    assert not (plain.path / "parties" / "active" / "transcript").exists()


def test_a_resumed_run_records_the_same(tmp_path):
    job = {**JOB, "transcript": {"record": True}}
    whole = train(job, tmp_path / "whole")

    def stop(event):
        if event["event"] == "step" and event["step"] == 9:
            raise KeyboardInterrupt

    with pytest.raises(BaseException):  # noqa: B017, PT011
        train(job, tmp_path / "stopped", observer=stop)
    resumed = train(job, tmp_path / "stopped", resume=True)
    first, second = (Transcript(run.path / "parties/active/transcript/passive_1") for run in (whole, resumed))
    assert len(first) == 12
    assert all(alike(a, b) for a, b in zip(first, second, strict=True))


def test_moments_have_names():
    job = load_job({**JOB, "checkpoints": {"moments": [0, 0.1, 0.5, 1]}})
    assert named_moments(job, 200) == {"start": 1, "10%": 20, "50%": 100, "end": 200}


def test_a_victim_that_is_no_party_is_refused():
    with pytest.raises(InputError, check=Names("transcript.victims")):
        load_job({**JOB, "transcript": {"victims": ["passive_9"]}})
