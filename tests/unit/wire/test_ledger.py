"""The ledger: what left, in order, and exactly that after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from veracausa.errors import RunError
from veracausa.wire.ledger import Ledger, read_ledger
from veracausa.wire.message import Message


def message(step: int) -> Message:
    return Message("a", "b", "payload", step, {"x": torch.full((2, 3), 0.125)}, {"note": "private"})


def recorded(path: Path, count: int) -> Ledger:
    ledger = Ledger(path)
    for step in range(count):
        ledger.record(message(step), 100 + step)
    ledger.flush()
    return ledger


def test_a_line_says_what_left_and_never_the_payload(tmp_path: Path) -> None:
    ledger = recorded(tmp_path / "ledger.jsonl", 2)
    text = (tmp_path / "ledger.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"step": step, "to": "b", "kind": "payload", "shape": {"x": [2, 3]}, "bytes": 100 + step} for step in range(2)
    ]
    assert "0.125" not in text
    assert "private" not in text
    assert (ledger.messages, ledger.bytes_sent) == (2, 201)


def test_lines_reach_the_disk_now_and_then_and_at_flush(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.record(message(0), 1)
    assert not path.exists()
    ledger.flush()
    ledger.flush()
    assert len(list(read_ledger(path))) == 1
    for step in range(1000):
        ledger.record(message(step), 1)
    assert len(list(read_ledger(path))) > 500


def test_without_a_path_it_only_counts() -> None:
    ledger = Ledger()
    ledger.record(message(0), 7)
    ledger.flush()
    ledger.resume(0, 0)
    assert (ledger.messages, ledger.bytes_sent) == (0, 0)


def test_a_resume_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    recorded(path, 10)
    ledger = Ledger(path)
    ledger.resume(4, 406)
    ledger.record(message(4), 104)
    ledger.flush()
    assert [line["step"] for line in read_ledger(path)] == [0, 1, 2, 3, 4]
    assert (ledger.messages, ledger.bytes_sent) == (5, 510)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("torn", [1, 20, 60])
def test_a_torn_last_line_is_passed_over_and_gone_after_a_resume(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "ledger.jsonl"
    recorded(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[0][:torn])
    assert [line["step"] for line in read_ledger(path)] == [0, 1, 2]
    Ledger(path).resume(3, 303)
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    recorded(path, 3)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{torn\n" + lines[2])
    with pytest.raises(RunError, match="line 2"):
        list(read_ledger(path))
