"""What a peer may say in a discovery from sums: sizes, names and kinds that were not agreed are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from refusals import Field

from fuzz_sums import COLUMNS, LAYOUT, ME, OTHER, WIDTH, fuzz_plan, fuzz_sums
from sums_runs import sums_members, sums_plan, table
from veracausa.discovery.engines.sums import party, protocol
from veracausa.discovery.engines.sums.protocol import SUMS_BEAT
from veracausa.errors import PeerLost, WireError
from veracausa.wire.message import Message
from veracausa.wire.threads import thread_links


def test_mutated_messages_are_refused_or_in_range() -> None:
    found = fuzz_sums(1200, seed=1, seconds=5)
    assert found["messages"] > 300
    assert sum(count for what, count in found.items() if "refused" in what) > found["messages"] / 3


@pytest.mark.parametrize("width", [-1, 0, 1 << 40])
def test_a_width_that_was_not_agreed_is_refused(width: int) -> None:
    said = Message(OTHER, ME, "sums_hello", 0, {}, {"width": width})
    with pytest.raises(WireError, check=Field("sums_hello.width", OTHER)):
        protocol.received_width(fuzz_plan(), OTHER, said)


def test_a_validator_sums_up_nothing() -> None:
    plan = fuzz_plan()
    assert protocol.received_width(plan, "validator", Message("validator", ME, "sums_hello", 0, {}, {"width": 0})) == 0
    with pytest.raises(WireError):
        protocol.received_width(plan, "validator", Message("validator", ME, "sums_hello", 0, {}, {"width": 1}))


GOOD = protocol.sent_layout(LAYOUT)


@pytest.mark.parametrize(
    ("name", "row", "values"),
    [
        ("nodes", 0, (3, 3, 2, 1)),
        ("nodes", 0, (0, -3, 2, 1)),
        ("nodes", 0, (0, 1 << 40, 2, 1)),
        ("nodes", 0, (0, 3, 1, 1)),
        ("nodes", 0, (0, 3, 2, 2)),
        ("nodes", 0, (2, 3, 2, 1)),
        ("nodes", 1, (0, 0, 2, 0)),
        ("nodes", 2, (1, 2, 0, 0)),
        ("pairs", 0, (2, 0, 2)),
        ("pairs", 0, (0, 1, 2)),
        ("pairs", 0, (0, 3, 2)),
        ("pairs", 0, (0, 2, 9)),
        ("pairs", 0, (0, 2, 0)),
        ("pairs", 0, (-1, 2, 2)),
    ],
)
def test_a_layout_that_can_not_be_is_refused(name: str, row: int, values: tuple[int, ...]) -> None:
    parts = {key: part.clone() for key, part in GOOD.items()}
    parts[name][row] = torch.tensor(values)
    with pytest.raises(WireError):
        protocol.received_layout(fuzz_plan(), OTHER, Message(OTHER, ME, "sums_layout", 0, parts), WIDTH)


def test_the_layout_that_is_sent_is_the_one_that_is_read() -> None:
    assert protocol.received_layout(fuzz_plan(), OTHER, Message(OTHER, ME, "sums_layout", 0, GOOD), WIDTH) == LAYOUT


def test_under_reveal_own_there_is_no_place_for_others_edges() -> None:
    kind = protocol.found_kind(fuzz_plan(reveal="own"), ME)
    sizes = {name: spec.shape for name, spec in kind.tensors.items()}
    assert sizes["into"][1:] == (5, 2)
    assert sizes["out"][1:] == (2, 5)
    assert sizes["explained"] == (2,)
    assert "whole" not in sizes


def test_sums_that_no_rows_have_are_refused() -> None:
    moments = fuzz_plan(receiver="all").moments({ME: 1, OTHER: 1})
    parts = {"sums": torch.tensor([1, 2, 800 * moments.most**2 + 1])}
    with pytest.raises(WireError, check=Field("sums_opened.sums")):
        protocol.received_sums(moments, Message(OTHER, ME, "sums_opened", 0, parts))


@pytest.mark.parametrize("kind", ["sums_found", "sums_layout", "sums_hello", "sums_opened"])
def test_a_message_that_was_tampered_with_ends_the_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One number of it is changed on its way, and nobody ends with a graph that is none."""
    from veracausa.wire.link import Link

    send = Link.send

    def tampered(self: Link, to: str, what: Any, step: int, tensors: Any = None, **meta: Any) -> None:
        if what.name == kind:
            name = {"sums_found": "whole", "sums_layout": "nodes", "sums_hello": "fingerprint"}.get(kind, "sums")
            changed = tensors[name].clone()
            changed.view(-1)[1 if kind != "sums_opened" else -1] = 77  # the last sum is one of the last party's own
            tensors = {**tensors, name: changed}
        send(self, to, what, step, tensors, **meta)

    monkeypatch.setattr(Link, "send", tampered)
    with pytest.raises(WireError):
        sums_members(sums_plan(functions=1, receiver="all" if kind == "sums_opened" else "validator"), table())


def test_who_waits_hears_that_the_other_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of ten times the time-out ends well, and silence of as long does not."""
    import time

    from veracausa.wire.threads import run_threads

    def busy(link: Any) -> None:
        link.declare(SUMS_BEAT)
        party.beating(link, [ME], lambda: time.sleep(0.8))

    def silent(link: Any) -> None:
        link.declare(SUMS_BEAT)
        time.sleep(0.8)

    def waiting(link: Any) -> None:
        link.declare(SUMS_BEAT)
        party.await_beats(link, OTHER)

    run_threads({OTHER: busy, ME: waiting}, thread_links([OTHER, ME], 0.2))
    with pytest.raises(PeerLost):
        run_threads({OTHER: silent, ME: waiting}, thread_links([OTHER, ME], 0.2))


def test_names_of_columns_are_of_the_plan_alone() -> None:
    """A layout has no place for names: a peer can not call a column what it likes."""
    assert all(spec.dtype == torch.int64 for spec in protocol.layout_kind(fuzz_plan()).tensors.values())
    assert np.shape(GOOD["nodes"]) == (len(COLUMNS[OTHER]), 4)
