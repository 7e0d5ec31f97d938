"""Process links: the ring, a peer that rings falsely, and real processes that die in every way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.errors import PeerLost, WireError
from veracausa.wire.codec import encode
from veracausa.wire.link import Link
from veracausa.wire.memory import SharedBytes, SharedTensor
from veracausa.wire.message import Kind, Message, TensorSpec
from veracausa.wire.processes import _BELL, _IN_FLIGHT, ProcessLink, Wires, _Outgoing, make_wires

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None,))})
NOTE = Kind("note", meta={"n": int})
TIMEOUT = 1.0
ARENA = 1 << 16


@given(st.integers(64, 400), st.lists(st.integers(1, 200) | st.none(), max_size=200))
@settings(max_examples=200, deadline=None)
def test_a_span_of_the_ring_is_never_written_before_it_was_read(capacity: int, actions: list[int | None]) -> None:
    """A number asks for so many bytes, None reads the oldest span."""
    ring = _Outgoing(torch.empty(capacity, dtype=torch.uint8))
    unread: list[tuple[int, int]] = []
    for size in actions:
        if size is None:
            if unread:
                unread.pop(0)
                ring.freed(1)
            continue
        place = ring.place(size)
        if place is None:
            assert unread or size > capacity, "an empty ring holds whatever fits"
            continue
        assert place % 8 == 0
        assert 0 <= place <= place + size <= capacity
        assert all(place + size <= begin or begin + length <= place for begin, length in unread)
        unread.append((place, size))


def test_the_ring_bounds_what_is_in_flight() -> None:
    ring = _Outgoing(torch.empty(1 << 20, dtype=torch.uint8))
    placed = [ring.place(8) for _ in range(_IN_FLIGHT + 1)]
    assert placed[-2:] == [8 * (_IN_FLIGHT - 1), None]
    ring.freed(1)
    assert ring.place(8) is not None


def test_an_acknowledgement_of_nothing_is_refused() -> None:
    with pytest.raises(WireError, match="never sent"):
        _Outgoing(torch.empty(64, dtype=torch.uint8)).freed(1)


def test_shared_memory_keeps_type_and_shape() -> None:
    for tensor in (torch.arange(6).reshape(2, 3), torch.zeros(0, 4), torch.tensor(2.5)):
        shared = SharedTensor(tensor).tensor()
        assert shared.dtype == tensor.dtype
        assert torch.equal(shared, tensor)


def test_shared_memory_gives_its_descriptor_back() -> None:
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        SharedBytes(64).tensor.fill_(1)
    assert len(os.listdir("/dev/fd")) == before


def test_an_arena_too_small_for_a_header_is_refused() -> None:
    with pytest.raises(ValueError, match="arena"):
        make_wires("ab", arena=64)


def note(**changes: object) -> bytes:
    fields = {"sender": "a", "receiver": "b", "kind": "note", "step": 0, "tensors": {}, "meta": {"n": 1}}
    return encode(Message(**{**fields, **changes}))


def bell(total: int, place: int, size: int, read: int = 0) -> bytes:
    return b"M" + _BELL.pack(total, place, size, read)


@pytest.mark.parametrize(
    ("frame", "written", "field"),
    [
        (b"", b"", "doorbell"),
        (b"?", b"", "doorbell"),
        (b"M", b"", "doorbell"),
        (b"A", b"", "doorbell"),
        (b"A\1\0\0\0", b"", "doorbell"),
        (bell(len(note()), 0, len(note()), 1), note(), "doorbell"),
        (b"X", b"", "doorbell"),
        (b"X{", b"", "doorbell"),
        (b"X[1]", b"", "doorbell"),
        (b"X5", b"", "doorbell"),
        (b"X" + b"[" * 10_000, b"", "doorbell"),
        (bell(1 << 62, 0, 64), b"", "body"),
        (bell(64, 0, 65), b"", "doorbell"),
        (bell(64, ARENA - 8, 64), b"", "doorbell"),
        (bell(64, 1 << 63, 64), b"", "doorbell"),
        (bell(64, 0, 0), b"", "doorbell"),
        (bell(len(note()) * 3, 0, len(note())), note(), "doorbell"),
        (bell(64, 0, 64), b"", "prefix"),
        (bell(len(note()) + 1, 0, len(note()) + 1), note(), "body"),
        (bell(len(note(sender="c")), 0, len(note(sender="c"))), note(sender="c"), "sender"),
        (bell(len(note(receiver="c")), 0, len(note(receiver="c"))), note(receiver="c"), "receiver"),
    ],
)
def test_a_peer_that_rings_falsely_is_refused(frame: bytes, written: bytes, field: str) -> None:
    wires = make_wires("ab", ARENA)
    link = ProcessLink(wires["b"], None, TIMEOUT)
    link.declare(NOTE)
    pipe, arena, _ = wires["a"].ends["b"]
    if written:
        arena.tensor[: len(written)] = torch.frombuffer(bytearray(written), dtype=torch.uint8)
    pipe.send_bytes(frame)
    with pytest.raises(WireError) as error:
        link.receive("a", NOTE, 0)
    assert error.value.field == field


def test_a_message_at_an_odd_place_is_read() -> None:
    wires = make_wires("ab", ARENA)
    link = ProcessLink(wires["b"], None, TIMEOUT)
    link.declare(FLOATS)
    pipe, arena, _ = wires["a"].ends["b"]
    data = encode(Message("a", "b", "floats", 0, {"x": torch.arange(5.0)}))
    arena.tensor[3 : 3 + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    pipe.send_bytes(bell(len(data), 3, len(data)))
    assert link.receive("a", FLOATS, 0).tensors["x"].tolist() == [0, 1, 2, 3, 4]


def test_a_peer_gone_in_the_middle_of_a_send_says_why() -> None:
    wires = make_wires("ab", ARENA)
    links = {name: ProcessLink(ends, None, TIMEOUT) for name, ends in wires.items()}
    links["a"].declare(NOTE)
    links["b"].abort("disk full")
    wires["b"].close()
    with pytest.raises(PeerLost, match="disk full"):
        links["a"].send("b", NOTE, 0, n=1)


def test_a_peer_that_never_reads_is_lost_to_the_one_that_only_sends() -> None:
    wires = make_wires("ab", ARENA)
    link = ProcessLink(wires["a"], None, 0.3)
    link.declare(NOTE)
    for step in range(_IN_FLIGHT):
        link.send("b", NOTE, step, n=step)
    with pytest.raises(PeerLost, match="silent") as error:
        link.send("b", NOTE, _IN_FLIGHT, n=0)
    assert error.value.peer == "b"


# Real processes. One start serves all scenes, for each process imports torch: scene by scene one of them dies.


def exchange(link: Link) -> str:
    """Order, copies, pieces and both directions at once, between processes."""
    others = link.peers
    mine = torch.arange(100_000.0)  # six arenas
    for step in range(3):
        link.broadcast(FLOATS, step, {"x": mine + step})
        link.broadcast(NOTE, step, n=step)
    mine.zero_()
    for step in range(3):
        for peer in others:
            got = link.receive(peer, FLOATS, step).tensors["x"]
            if not torch.equal(got, torch.arange(100_000.0) + step):
                return f"{peer}'s message {step} is another one"
            got.zero_()
            link.receive(peer, NOTE, step)
    for step in range(3, 500):
        link.broadcast(NOTE, step, n=step)
    for step in range(3, 500):
        for peer in others:
            link.receive(peer, NOTE, step)
    link.close()
    return "done"


def undeclared(link: Link) -> str:
    if link.me == "a":
        link.declare(Kind("gossip"))
        link.send("b", Kind("gossip"), 0)
    if link.me != "b":
        link.receive("b", NOTE, 0)
    link.receive("a", NOTE, 0)
    return "not refused"


def raises(link: Link) -> str:
    if link.me == "d":  # gives up and takes part in the next scene
        raise ZeroDivisionError
    link.receive("a" if link.me != "a" else "d", NOTE, 0)
    return "nobody died"


def killed(link: Link) -> str:
    if link.me == "d":
        os.kill(os.getpid(), signal.SIGKILL)
    link.receive("a" if link.me != "a" else "d", NOTE, 0)
    return "nobody died"


def stopped(link: Link) -> str:
    if link.me == "c":
        os.kill(os.getpid(), signal.SIGSTOP)
    link.receive("a" if link.me != "a" else "c", NOTE, 0)
    return "nobody stopped"


SCENES: list[tuple[Callable[[Link], str], str]] = [
    (exchange, "abc"),
    (undeclared, "abc"),
    (raises, "abcd"),
    (killed, "abcd"),
    (stopped, "abc"),
]


def perform(me: str, ends: list[Wires | None], report: Connection) -> None:
    for (scene, _), wires in zip(SCENES, ends, strict=True):
        if wires is None:
            continue
        link = ProcessLink(wires, None, TIMEOUT if scene is stopped else 20.0)
        link.declare(FLOATS, NOTE)
        report.send_bytes(b"ready")
        report.recv_bytes()  # all begin together, so that a scene measures the link and not the imports
        start = time.monotonic()
        try:
            outcome = {"says": scene(link)}
        except Exception as error:
            link.give_up(error)
            outcome = {"says": type(error).__name__, "peer": getattr(error, "peer", ""), "why": str(error)}
        report.send_bytes(json.dumps({**outcome, "seconds": time.monotonic() - start}).encode())


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, dict[str, dict[str, object]]]]:
    """What each process said, by scene and by party; a party that said nothing is not there."""
    names = "abcd"
    wires = [make_wires(cast, ARENA) for _, cast in SCENES]
    # As separate as spawned ones, but torch is imported once for all of them.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    reports, processes = {}, {}
    try:
        for name in names:
            reports[name], end = context.Pipe()
            args = (name, [scene.get(name) for scene in wires], end)
            processes[name] = context.Process(target=perform, args=args, daemon=True)
            processes[name].start()
            end.close()
        for scene in wires:
            for ends in scene.values():
                ends.close()
        said: dict[str, dict[str, dict[str, object]]] = {}
        for scene, cast in SCENES:
            for name in cast:
                assert reports[name].poll(60)
                assert reports[name].recv_bytes() == b"ready"
            for name in cast:
                reports[name].send_bytes(b"go")
            said[scene.__name__] = heard = {}
            for name in cast:
                try:
                    if reports[name].poll(30 if scene is not stopped or name != "c" else 0):
                        heard[name] = json.loads(reports[name].recv_bytes())
                except EOFError:
                    continue
        yield said
    finally:
        for process in processes.values():
            process.kill()
            process.join()


Outcomes = dict[str, dict[str, dict[str, object]]]


@pytest.mark.xdist_group("other process")
def test_messages_between_processes(outcomes: Outcomes) -> None:
    assert {name: outcome["says"] for name, outcome in outcomes["exchange"].items()} == dict.fromkeys("abc", "done")


@pytest.mark.xdist_group("other process")
def test_an_undeclared_kind_is_refused_in_the_other_process(outcomes: Outcomes) -> None:
    said = outcomes["undeclared"]
    assert said["b"]["says"] == "WireError"
    assert "'gossip' was not declared" in str(said["b"]["why"])
    assert [said[name]["peer"] for name in "ac"] == ["b", "b"]
    assert "gossip" in str(said["a"]["why"])  # why b gave up has travelled


@pytest.mark.parametrize(("scene", "victim"), [("raises", "d"), ("killed", "d"), ("stopped", "c")])
@pytest.mark.xdist_group("other process")
def test_every_process_names_the_one_that_is_gone(outcomes: Outcomes, scene: str, victim: str) -> None:
    said = {name: outcome for name, outcome in outcomes[scene].items() if name != victim}
    assert {name: outcome["peer"] for name, outcome in said.items()} == {
        name: victim for name in "abc" if name < victim
    }
    assert {outcome["says"] for outcome in said.values()} == {"PeerLost"}
    longest = TIMEOUT + 1 if scene == "stopped" else 5.0
    assert all(float(str(outcome["seconds"])) < longest for outcome in said.values())


@pytest.mark.xdist_group("other process")
def test_the_kind_of_a_failure_travels_but_not_its_words(outcomes: Outcomes) -> None:
    assert "ZeroDivisionError" in str(outcomes["raises"]["a"]["why"])
