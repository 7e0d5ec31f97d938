"""A defense that prepares longer than the time-out is not taken for dead, and what it made is kept once."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest
import torch
import trainings
from refusals import Names, Peer

import veracausa
from veracausa.errors import PeerLost, RunError
from veracausa.runs.store import deserialize_state
from veracausa.training.split.protocol import READY, Heartbeat, await_ready
from veracausa.wire.threads import Turns, run_threads, thread_links

OWN = "trainings:small_network"
JOB = {
    "name": "slow",
    "data": {"name": "digits", "train": 64, "test": 16},
    "model": {"name": OWN, "cut": 2},
    "training": {"epochs": 2, "batch_size": 32},
    "risk": {"every": 2, "samples": 2},
    "runtime": {"device": "cpu", "cpu_threads": 1, "timeout": 0.8},
    "defense": {"name": "slow"},
}


def job(timeout: float = 0.8, link: str = "threads", **seconds: float) -> dict:
    party = {name: {"defense": {"name": "slow", "seconds": value}} for name, value in seconds.items()}
    return {**JOB, "party": party, "runtime": {**JOB["runtime"], "timeout": timeout, "link": link}}


def lines(run, event: str) -> list[dict]:
    return [record for record in run.metrics if record["event"] == event]


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """A process's first steps take long; they are not the silence meant."""
    settings = {**job(timeout=20), "risk": {"every": 0}}
    veracausa.train(settings, tmp_path_factory.mktemp("warm") / "run", allow_model=OWN)


def test_parties_that_take_different_times_wait_for_each_other(tmp_path):
    """Three times the time-out at one, nothing at the other, which must hear that it is not forgotten."""
    heard = []
    settings = {**job(passive_1=2.4), "risk": {"every": 0}}
    run = veracausa.train(settings, tmp_path / "run", observer=heard.append, allow_model=OWN)
    assert run.status["state"] == "done"
    shares = [event["share"] for event in heard if event["event"] == "preparing"]
    assert {event.get("party") for event in heard if event["event"] == "preparing"} == {"passive_1"}
    assert shares == sorted(shares)
    assert len(shares) >= 3
    assert shares[-1] == 1
    prepared = {record["party"]: record for record in lines(run, "prepared")}
    assert prepared["passive_1"]["seconds"] >= 2.4 > prepared["passive_2"]["seconds"]
    assert prepared["passive_1"]["gates"].keys() == {"offset", "structure_lost"}


def test_a_silent_preparation_is_a_lost_party(tmp_path):
    settings = job(passive_2=2.5)
    settings["party"]["passive_2"]["defense"]["silent"] = True
    with pytest.raises(PeerLost, check=Peer("passive_2")):
        veracausa.train(settings, tmp_path / "run", allow_model=OWN)


@pytest.mark.slow
def test_processes_prepare_too_and_one_that_dies_is_named(tmp_path):
    settings = job(timeout=20, link="processes", passive_1=0.5)
    settings["party"]["passive_2"] = {"defense": {"name": "slow", "seconds": 1.0, "dies": True}}
    with pytest.raises(PeerLost, match="lost party 'passive_2'"):
        veracausa.train(settings, tmp_path / "run", allow_model=OWN)


@pytest.mark.parametrize("work", [(0.0, 0.0, 0.0), (0.9, 0.0, 1.2)])
def test_where_parties_take_turns_each_gives_its_turn_away(work):
    """As on a GPU: one computes at a time, and a party that prepares must not be the only one that ever does."""
    names, turns = ["a", "b", "c", "active"], Turns()
    links = thread_links(names, timeout=0.6, turns=turns)
    heard = []

    def passive(seconds: float):
        def program(link):
            link.declare(READY)
            sign = Heartbeat(link, "active")
            for done in range(int(seconds / 0.02)):
                threading.Event().wait(0.02)
                sign(done * 0.02 / seconds)
            sign.done()

        return program

    def active(link):
        link.declare(READY)
        await_ready(link, heard.append)

    programs = {name: passive(seconds) for name, seconds in zip("abc", work, strict=True)}
    run_threads({**programs, "active": active}, links, turns)
    assert {event["party"] for event in heard} == {name for name, seconds in zip("abc", work, strict=True) if seconds}


def test_what_was_prepared_is_kept_once_and_taken_over(tmp_path):
    settings = job(timeout=20)
    run = veracausa.train(settings, tmp_path / "run", allow_model=OWN)
    path = run.path / "parties/passive_1/prepared.safetensors"
    kept = deserialize_state(path.read_bytes())
    assert kept["offset"] != 0
    trainings.Slow.times = 0
    (run.path / "summary.json").unlink()
    before = path.stat().st_mtime_ns
    again = veracausa.train(settings, run.path, resume=True, allow_model=OWN)
    assert again.predict().scores == pytest.approx(again.summary["test"], rel=1e-6)
    assert trainings.Slow.times == 0
    assert path.stat().st_mtime_ns == before
    assert len(lines(again, "prepared")) == 2


@pytest.mark.parametrize(("damage", "says"), [("missing", "is missing"), ("other", "is not what")])
def test_a_resume_or_prediction_without_it_is_refused(damage, says, tmp_path):
    settings = job(timeout=20)
    run = veracausa.train(settings, tmp_path / "run", allow_model=OWN)
    path = run.path / "parties/passive_2/prepared.safetensors"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes((run.path / "parties/passive_1/prepared.safetensors").read_bytes())
    with pytest.raises(RunError, match=f"parties/passive_2/prepared.safetensors: {says}.*; put the file back"):
        run.predict()
    (run.path / "summary.json").unlink()
    with pytest.raises(RunError, match=says):
        veracausa.train(settings, run.path, resume=True, allow_model=OWN)
    for checkpoint in run.path.glob("parties/*/checkpoints/*"):
        checkpoint.unlink()
    trainings.Slow.times = 0
    # From the beginning: it is made again, and said again.
    again = veracausa.train(settings, run.path, resume=True, allow_model=OWN)
    assert trainings.Slow.times == 2
    assert len(lines(again, "prepared")) == 2
    assert len(lines(again, "defense")) == 4


def test_a_restored_party_answers_as_it_was_trained(tmp_path):
    from veracausa.data.load import load
    from veracausa.errors import InputError
    from veracausa.training.checkpoints import restore_passive
    from veracausa.training.split.program import Schema

    run = veracausa.train(job(timeout=20), tmp_path / "run", allow_model=OWN)
    data = load(run.job)
    party = restore_passive(run, "passive_1", data.parties["passive_1"], Schema.of(data))
    ids = torch.arange(4)
    kept = deserialize_state((run.path / "parties/passive_1/prepared.safetensors").read_bytes())
    assert party.defense.offset == kept["offset"]
    rows = party.parts["train"].take(ids)
    sent = party.defense.infer(rows, ids)
    with torch.no_grad():
        assert torch.equal(sent, party.bottom.eval()(rows) + kept["offset"])
    with pytest.raises(InputError, check=Names("run", "active")):
        restore_passive(run, "active", data.parties["active"], Schema.of(data))


def test_small_rows_are_measured_after_an_epoch(tmp_path):
    run = veracausa.train(
        {**job(timeout=20), "risk": {"every": 2, "samples": 2, "exact": 3}}, tmp_path / "run", allow_model=OWN
    )
    assert not lines(run, "risk"), "the last epoch has told it"
    first, second = [record for record in lines(run, "defense") if record["party"] == "passive_1"]
    assert "risk" not in first
    assert second["risk"]["samples"] == 2
    assert second["risk"]["exact"] == 1
    assert 0 <= second["risk"]["invre"] <= 1
    assert second["seconds"] > 0
    assert run.summary["parties"]["passive_1"]["risk"] == second["risk"]
    assert run.summary["parties"]["passive_1"]["risk_seconds"] >= 0


def test_the_party_measures_its_defense_and_its_risk(tmp_path):
    settings = {**job(timeout=20), "risk": {"every": 2, "samples": 2, "exact": 3, "values": 8}}
    run = veracausa.train(settings, tmp_path / "run", allow_model=OWN)
    for name in ("passive_1", "passive_2"):
        first, second = [record for record in lines(run, "defense") if record["party"] == name]
        assert (first["epoch"], first["step"], second["epoch"], second["step"]) == (1, 2, 2, 4)
        assert first["defense"] == "slow"
        assert "risk" not in first
        assert "risk" not in second, "rows of more than `values` wait for the end"
        assert first["diagnostics"] == second["diagnostics"]  # the same rows every time
        assert first["diagnostics"]["broken"] is None
        (last,) = [record for record in lines(run, "risk") if record["party"] == name]
        assert last["risk"]["samples"] == 3
        assert last["risk"]["exact"] == 1
        assert last["seconds"] > 0
        assert run.summary["parties"][name]["risk"] == last["risk"]
        assert run.summary["parties"][name]["diagnostics"] == second["diagnostics"]
    assert "risk" not in run.summary["parties"]["active"]
    (run.path / "summary.json").unlink()
    again = veracausa.train(run.job, run.path, resume=True)  # nothing was left but the end, which is said once
    assert len(lines(again, "risk")) == 2
    assert again.summary["parties"][name]["diagnostics"] == first["diagnostics"]


class Rounds(trainings.Slow):
    """No gradient passes its payload, so there is no Jacobian."""

    def infer(self, x, ids):
        return super().infer(x, ids).round()

    def deterministic_payload(self, x, ids):
        with torch.no_grad():
            return super().deterministic_payload(x, ids).round()


class Thousandths(trainings.Slow):
    """Rounds without a gradient: by its Jacobian nothing is sent, and everything is."""

    def infer(self, x, ids):
        return (1000 * super().infer(x, ids)).round() / 1000

    def deterministic_payload(self, x, ids):
        return (1000 * super().deterministic_payload(x, ids)).round() / 1000


class Zeros(trainings.Slow):
    """Sends nothing, with the gradient of an undefended party."""

    def infer(self, x, ids):
        return 0 * super().infer(x, ids)

    def deterministic_payload(self, x, ids):
        r = super().deterministic_payload(x, ids)
        return r - r.detach()


class Diverged(trainings.Slow):
    def deterministic_payload(self, x, ids):
        return super().deterministic_payload(x, ids) / 0


@pytest.mark.parametrize(
    ("defense", "reason"),
    [
        (Rounds, "gradient"),
        (Diverged, "some payloads are not finite"),
        (Thousandths, "not how the payload changes"),
        (Zeros, "not how the payload changes"),
    ],
)
def test_a_risk_that_cannot_be_measured_says_why_and_training_goes_on(defense, reason, tmp_path, monkeypatch):
    from veracausa.defenses import defenses

    options = trainings.SlowOptions
    monkeypatch.setattr(defenses, "_entries", {**defenses._entries, "slow": (defense, options)})
    run = veracausa.train(job(timeout=20), tmp_path / "run", allow_model=OWN)
    assert run.status["state"] == "done"
    risk = run.summary["parties"]["passive_1"]["risk"]
    assert reason in risk["unavailable"]
    assert risk["invre"] is None, "not measured is not 0"


def test_switched_off_nothing_is_measured_and_one_small_message_an_epoch_is_sent(tmp_path):
    quiet = {**job(timeout=20), "defense": {"name": "none"}, "risk": {"every": 0}}
    run = veracausa.train(quiet, tmp_path / "run", allow_model=OWN)
    assert {record["party"] for record in run.metrics} == {"active"}
    assert not list(run.path.glob("parties/*/prepared.safetensors"))
    kinds = [
        json.loads(line)["kind"] for line in (run.path / "parties/passive_1/ledger.jsonl").read_text().splitlines()
    ]
    assert kinds.count("ready") == 1


def test_only_rows_that_the_party_holds_are_measured(tmp_path):
    partial = {**job(timeout=20), "overlap": {"fraction": 0.2}}
    run = veracausa.train(partial, tmp_path / "run", allow_model=OWN)
    assert {record["party"] for record in lines(run, "defense")} == {"passive_1", "passive_2"}


def test_a_large_model_is_measured_on_fewer_rows_rather_than_lost(tmp_path, monkeypatch):
    from veracausa.training.split import diagnostics as meters

    clock = iter(range(0, 100_000, 50))  # both parties look at it, in any order
    monkeypatch.setattr(meters, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(meters, "rows_at_once", lambda inputs, outputs: 2)
    settings = {**job(timeout=20), "risk": {"samples": 8}}
    run = veracausa.train(settings, tmp_path / "run", allow_model=OWN)
    assert run.summary["parties"]["passive_1"]["risk"]["samples"] == 2
