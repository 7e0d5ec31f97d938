"""What a party of a federated discovery refuses to take: repeated, misshapen, disagreeing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import Field

from veracausa.crypto.backends import none
from veracausa.crypto.ring import P
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import RunError, WireError
from veracausa.wire.message import Message
from veracausa.wire.threads import ThreadLink

SMALL = Settings(width=2, batch=8, epochs=2, refit_epochs=0, structure_every=2, threshold=0.1, held_out=0.0)


def fit(**more: Any) -> Any:
    values = np.random.default_rng(0).standard_normal((32, 3))
    columns = {"a": values[:, :2], "b": values[:, 2:]}
    return run_federation(columns, ("x", "y", "z"), SMALL, **{"seed": 1, "timeout": 20.0, **more})


Change = Callable[[Message, list[Message]], Message]


def on_the_way(monkeypatch: pytest.MonkeyPatch, kind: str, change: Change, after: int = 0) -> None:
    """Let `change` see b's messages of a kind, with those that went before, from one of them on."""
    deliver = ThreadLink._deliver
    before: list[Message] = []

    def watched(self: ThreadLink, message: Message, plan: Any) -> None:
        if message.sender == "b" and message.kind == kind:
            before.append(message)
            if len(before) > after + 1:
                message = change(message, before)
        deliver(self, message, plan)

    monkeypatch.setattr(ThreadLink, "_deliver", watched)


@pytest.mark.parametrize("kind", ["masked", "answer", "triples"])
def test_a_message_of_an_exchange_before_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    on_the_way(monkeypatch, kind, lambda message, before: before[-2], after=1)
    with pytest.raises(WireError, check=Field("step")):
        fit()


def test_a_message_that_comes_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = ThreadLink._deliver

    def twice(self: ThreadLink, message: Message, plan: Any) -> None:
        deliver(self, message, plan)
        if message.kind == "masked" and message.sender == "b" and message.step == 3:
            deliver(self, message, plan)

    monkeypatch.setattr(ThreadLink, "_deliver", twice)
    with pytest.raises(WireError, match=r"kind: is 'masked'|step: is"):
        fit()


def test_messages_of_a_life_before_the_resume_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[tuple[str, int], Message] = {}
    deliver = ThreadLink._deliver

    def record(self: ThreadLink, message: Message, plan: Any) -> None:
        if message.sender == "b" and message.kind == "masked":
            kept[message.kind, message.step] = message
        deliver(self, message, plan)

    def replay(self: ThreadLink, message: Message, plan: Any) -> None:
        deliver(
            self, kept.get((message.kind, message.step % 2**32), message) if message.sender == "b" else message, plan
        )

    class Killed(RunError):
        pass

    def kill(event: Any) -> None:
        raise Killed("now")

    how = {"out": tmp_path / "run", "checkpoint_every": 1}
    monkeypatch.setattr(ThreadLink, "_deliver", record)
    with pytest.raises(RunError):
        fit(**how, observer=lambda event: kill(event) if event["step"] == 2 else None)
    monkeypatch.setattr(ThreadLink, "_deliver", replay)
    with pytest.raises(WireError, check=Field("step")):
        fit(**how, resume=True)


def _other(name: str, tensor: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(message: Message, before: list[Message]) -> Message:
        return replace(message, tensors={**message.tensors, name: tensor(message.tensors[name])})

    return change


@pytest.mark.parametrize(
    ("kind", "name", "tensor", "words"),
    [
        ("masked", "weights", lambda t: torch.full_like(t, P), "masked.weights: holds numbers outside the field"),
        ("masked", "weights", lambda t: -t - 1, "masked.weights: holds numbers outside the field"),
        ("masked", "weights", lambda t: t[1:], "masked.weights: has shape"),
        ("answer", "features", lambda t: t[:-1], "answer.features: holds"),
        ("answer", "features", lambda t: t.repeat(99), "answer.features: has shape"),
        ("triples", "forward", lambda t: t[8:], "bytes for a seed"),
        ("triples", "products", lambda t: t.repeat(2), "bytes for a seed"),
        ("triples", "factors", lambda t: t | 255, "outside the field"),
        ("triples", "factors", lambda t: t[8:], "bytes for numbers of shape"),
        ("columns", "rows", lambda t: t.repeat(2), "bytes for numbers of shape"),
        ("columns", "rows", lambda t: torch.full((1 << 25,), 1, dtype=torch.uint8), "columns.rows: has shape"),
        ("norms", "into", lambda t: t[:0], "norms.into: is of 0 searches, 1 are expected"),
        ("norms", "losses", lambda t: t.repeat(2), "norms.losses: has shape"),
        ("agreed", "fingerprint", lambda t: 255 - t, "another plan, or other keys"),
    ],
)
def test_numbers_that_the_plan_does_not_allow_are_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, tensor: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    def change(message: Message, before: list[Message]) -> Message:
        return _other(name, tensor)(message, before) if name in message.tensors else message

    on_the_way(monkeypatch, kind, change, after=-1)
    with pytest.raises(WireError, match=words):
        fit()


def test_a_key_of_a_life_before_the_resume_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter(np.frombuffer(bytes([number] * 8), dtype=np.uint8).copy() for number in (1, 2, 3, 1))
    monkeypatch.setattr(none.NoEncryption, "public_key", lambda self: next(keys))
    how = {"out": tmp_path / "run", "checkpoint_every": 1}

    def kill(event: Any) -> None:
        if event["step"] == 2:
            raise RunError("now")

    with pytest.raises(RunError):
        fit(**how, observer=kill)
    with pytest.raises(WireError, check=Field("key.key")):
        fit(**how, resume=True)


def test_parties_that_saw_different_keys_do_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter(np.full(8, number, dtype=np.uint8) for number in (1, 2))
    monkeypatch.setattr(none.NoEncryption, "public_key", lambda self: next(keys))
    on_the_way(monkeypatch, "key", _other("key", lambda key: key + 7), after=-1)
    with pytest.raises(WireError, check=Field("agreed.fingerprint")):
        fit()
