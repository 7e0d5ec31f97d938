"""What a run looks like while it runs: from its events and its folder alone, each line counted once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from veracausa.report import live_state
from veracausa.report.live_state import LiveState


def test_steps_have_a_rate_and_a_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live_state.time, "monotonic", lambda: now[0])
    state = LiveState("veracausa train")
    assert state.snapshot()["state"] == "starting"
    state({"event": "start", "epochs": 2, "steps": 100, "step": 0})
    for step in range(1, 41):
        now[0] += 0.5
        state({"event": "step", "step": step})
    told = state.snapshot()
    assert (told["state"], told["step"], told["steps"], told["share"]) == ("running", 40, 100, 0.4)
    assert told["rate"] == pytest.approx(2.0)
    assert told["left"] == pytest.approx(30.0)
    now[0] += 10  # nothing comes: the time goes on
    assert state.snapshot()["left"] == pytest.approx(20.0)
    state({"event": "done"})
    assert (state.snapshot()["state"], state.snapshot()["left"]) == ("done", None)


def test_the_slowest_party_says_how_far_all_are() -> None:
    state = LiveState("veracausa train")
    for party, share in (("a", 0.8), ("b", 0.3), ("a", 0.9)):
        state({"event": "preparing", "party": party, "share": share})
    assert (state.snapshot()["task"], state.snapshot()["share"]) == ("preparing the defense", 0.3)
    state({"event": "phase", "what": "moments", "party": "a", "share": 0.5})
    assert (state.snapshot()["task"], state.snapshot()["share"]) == ("sums over rows", 0.5)
    for share in (0.0, 0.25):
        state({"event": "baseline", "name": "joint", "share": share})
    assert (state.snapshot()["task"], state.snapshot()["share"]) == ("baseline joint", 0.25)


def test_epochs_without_scores_are_passed_over_and_unknown_events_change_nothing() -> None:
    state = LiveState("veracausa train")
    state({"event": "epoch", "epoch": 1, "train": {"loss": 0.5}, "test": {"accuracy": 0.9, "loss": float("nan")}})
    state({"event": "epoch", "party": "passive_1", "epoch": 1})
    state({"event": "aligned", "rows": 3})
    epochs = state.snapshot()["epochs"]
    assert epochs == [{"epoch": 1, "train": {"loss": 0.5}, "validation": {}, "test": {"accuracy": 0.9}}]
    json.dumps(state.snapshot(), allow_nan=False)


def test_a_member_that_is_waited_for_is_named_and_no_path_is_told() -> None:
    state = LiveState("veracausa federation run")
    state({"event": "waiting", "peers": ["lab", "shop"], "seconds": 3.0})
    assert state.snapshot()["task"] == "waiting for lab, shop"
    state({"event": "lost", "reason": "/srv/ada/study/party is gone"})
    assert (state.snapshot()["state"], state.snapshot()["note"]) == ("waiting", "…/party is gone")


def test_what_was_sent_and_measured_is_read_as_it_grows(tmp_path: Path) -> None:
    ledger = tmp_path / "run" / "parties" / "lab" / "ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    state = LiveState("veracausa train")
    state({"event": "folder", "path": str(tmp_path / "run")})
    assert (state.snapshot()["run"], state.snapshot()["sent"], state.snapshot()["risk"]) == ("run", [], [])
    line = json.dumps({"step": 1, "to": "bank", "kind": "representation", "shape": {}, "bytes": 10}) + "\n"
    ledger.write_text(line * 2 + line[:20])
    assert state.snapshot()["sent"][0] | {"what": ""} == {"party": "lab", "what": "", "messages": 2, "bytes": 20}
    with ledger.open("a") as file:  # the rest of the torn line, and another
        file.write(line[20:] + line)
    risk = {"event": "defense", "party": "lab", "epoch": 1, "risk": {"invre": 0.25, "exact": 1}}
    (tmp_path / "run" / "metrics.jsonl").write_text("[1]\nnonsense\n" + json.dumps(risk) + "\n")
    told = state.snapshot()
    assert (told["sent"][0]["messages"], told["sent"][0]["bytes"]) == (4, 40)
    assert told["risk"] == [{"party": "lab", "invre": 0.25, "unavailable": None}]
    assert state.snapshot()["sent"] == told["sent"], "what was read once is not counted again"
