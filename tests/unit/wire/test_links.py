"""Every link keeps the same promises. Process links run here over real pipes and shared memory, but in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from refusals import Field, Peer

from veracausa.errors import PeerLost, WireError
from veracausa.wire.codec import encode
from veracausa.wire.link import Link, silent_party
from veracausa.wire.message import Kind, Message, TensorSpec
from veracausa.wire.processes import ProcessLink, make_wires
from veracausa.wire.threads import Turns, run_threads, thread_links

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None,))})
NOTE = Kind("note", meta={"n": int})
TIMEOUT = 0.4

Program = Callable[[Link], object]
Make = Callable[..., dict[str, Link]]


def by_threads(names: Sequence[str], timeout: float = 20.0, max_body: int = 1 << 30) -> dict[str, Link]:
    return dict(thread_links(names, timeout, max_body=max_body))


def by_processes(names: Sequence[str], timeout: float = 20.0, max_body: int = 1 << 30) -> dict[str, Link]:
    """Over an arena so small that the messages of these tests go in pieces and around the ring."""
    wires = make_wires(names, arena=1 << 16)
    return {name: ProcessLink(ends, None, timeout, max_body) for name, ends in wires.items()}


@pytest.fixture(params=[by_threads, by_processes], ids=["threads", "processes"])
def make(request: pytest.FixtureRequest) -> Make:
    def declared(names: Sequence[str], **options: float) -> dict[str, Link]:
        links = request.param(names, **options)
        for link in links.values():
            link.declare(FLOATS, NOTE)
        return links

    return declared


def play(links: Mapping[str, Link], programs: Mapping[str, Program]) -> dict[str, object]:
    """What each party returned or raised."""
    outcome: dict[str, object] = {}

    def run(name: str) -> None:
        try:
            outcome[name] = programs[name](links[name])
            links[name].close()
        except Exception as error:
            outcome[name] = error
            links[name].give_up(error)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a party stands still"
    return outcome


def lost(error: object) -> str:
    assert isinstance(error, PeerLost), repr(error)
    return error.peer


def field(error: object) -> str:
    assert isinstance(error, WireError), repr(error)
    return error.field


def x(size: int, value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"x": torch.full((size,), value)}


def test_who_waits_for_several_is_woken_once_all_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    links, woken = by_threads("abc"), []
    inbox, sleeping = links["a"]._inboxes["a"], threading.Event()
    wait_for = inbox._changed.wait_for

    def watched(ready: Callable[[], bool], timeout: float | None = None) -> bool:
        def looked() -> bool:
            woken.append(ready())
            sleeping.set()
            return woken[-1]

        return wait_for(looked, timeout)

    monkeypatch.setattr(inbox._changed, "wait_for", watched)

    def send(link: Link) -> None:
        assert sleeping.wait(20)
        link.send("a", FLOATS, 0, x(3))

    for link in links.values():
        link.declare(FLOATS)
    outcome = play(links, {"a": lambda link: link.gather(FLOATS, 0), "b": send, "c": send})
    heard = outcome["a"]
    assert isinstance(heard, dict), heard
    assert set(heard) == {"b", "c"}
    assert woken == [False, True]


def test_who_waits_for_several_hears_of_the_one_that_is_lost(make: Make) -> None:
    links = make("abc", timeout=TIMEOUT)

    def fail(link: Link) -> None:
        raise WireError("x", "is broken")

    def wait(link: Link) -> object:
        return link.gather(FLOATS, 0)

    assert lost(play(links, {"a": wait, "b": lambda link: time.sleep(0.1), "c": fail})["a"]) in ("b", "c")
    links = make("abc", timeout=TIMEOUT)
    outcome = play(
        links, {"a": wait, "b": lambda link: link.send("a", FLOATS, 0, x(1)), "c": lambda link: time.sleep(2)}
    )
    assert lost(outcome["a"]) == "c"


def test_messages_arrive_whole_and_in_order(make: Make) -> None:
    sizes = [0, 1, 3, 1000, 8000, 8190, 9000, 100_000, 7]  # 64 KiB of arena hold 16384 floats, a piece half of that

    def send(link: Link) -> None:
        for step, size in enumerate(sizes):
            link.send("b", FLOATS, step, {"x": torch.arange(size, dtype=torch.float32)})
            link.send("b", NOTE, step, n=size)

    def take(link: Link) -> bool:
        return all(
            torch.equal(link.receive("a", FLOATS, step).tensors["x"], torch.arange(size, dtype=torch.float32))
            and link.receive("a", NOTE, step).meta == {"n": size}
            for step, size in enumerate(sizes)
        )

    assert play(make("ab"), {"a": send, "b": take}) == {"a": None, "b": True}


def test_a_strided_tensor_arrives_contiguous(make: Make) -> None:
    square = Kind("square", {"x": TensorSpec(torch.float32, (3, 4))})
    before = torch.arange(12.0).reshape(4, 3).T
    links = make("ab")
    for link in links.values():
        link.declare(square)
    links["a"].send("b", square, 0, {"x": before})
    after = links["b"].receive("a", square, 0).tensors["x"]
    assert torch.equal(after, before)
    assert after.is_contiguous()


def test_sender_and_receiver_share_no_memory(make: Make) -> None:
    links = make("ab")
    mine = torch.zeros(4, requires_grad=True)
    links["a"].send("b", FLOATS, 0, {"x": mine * 1})
    kept = torch.zeros(4)
    links["a"].send("b", FLOATS, 1, {"x": kept})
    links["a"].send("b", FLOATS, 2, {"x": kept})
    kept += 1
    first, second, third = (links["b"].receive("a", FLOATS, step).tensors["x"] for step in range(3))
    assert not first.requires_grad
    assert second.tolist() == [0.0] * 4
    second += 5
    assert kept.tolist() == [1.0] * 4
    assert third.tolist() == [0.0] * 4


def test_the_ledger_counts_the_bytes_of_the_codec(make: Make) -> None:
    links = make("ab")
    links["a"].send("b", FLOATS, 3, x(10))
    links["a"].send("b", NOTE, 3, n=1)
    expected = [Message("a", "b", "floats", 3, x(10)), Message("a", "b", "note", 3, {}, {"n": 1})]
    assert links["a"].ledger.bytes_sent == sum(len(encode(message)) for message in expected)
    assert (links["a"].ledger.messages, links["b"].ledger.messages) == (2, 0)


def test_many_in_flight_both_ways(make: Make) -> None:
    """More than a pipe holds: a party that only sends must take in what the other sends."""

    def chatter(other: str) -> Program:
        def program(link: Link) -> int:
            for step in range(1000):
                link.send(other, NOTE, step, n=step)
            return sum(link.receive(other, NOTE, step).meta["n"] for step in range(1000))

        return program

    total = sum(range(1000))
    assert play(make("ab"), {"a": chatter("b"), "b": chatter("a")}) == {"a": total, "b": total}


def test_large_sends_both_ways_at_once(make: Make) -> None:
    def swap(other: str) -> Program:
        def program(link: Link) -> float:
            for step in range(3):
                link.send(other, FLOATS, step, x(200_000, float(step)))
            return float(sum(link.receive(other, FLOATS, step).tensors["x"].sum() for step in range(3)))

        return program

    assert play(make("ab"), {"a": swap("b"), "b": swap("a")}) == {"a": 600_000.0, "b": 600_000.0}


def test_broadcast_and_gather(make: Make) -> None:
    def active(link: Link) -> list[object]:
        link.broadcast(NOTE, 0, n=4)
        return [message.meta["n"] for message in link.gather(NOTE, 1).values()]

    def passive(add: int) -> Program:
        return lambda link: link.send("a", NOTE, 1, n=link.receive("a", NOTE, 0).meta["n"] + add)

    assert play(make("abc"), {"a": active, "c": passive(2), "b": passive(1)})["a"] == [5, 6]


def test_the_last_message_of_a_party_that_has_left_arrives(make: Make) -> None:
    links = make("ab")
    links["a"].send("b", NOTE, 0, n=1)
    links["a"].close()
    if isinstance(links["a"], ProcessLink):
        links["a"]._pipes["b"].close()  # as when its process ends
    assert links["b"].receive("a", NOTE, 0).meta == {"n": 1}
    with pytest.raises(PeerLost, match="already finished"):
        links["b"].receive("a", NOTE, 1)


def test_what_is_not_declared_does_not_leave(make: Make) -> None:
    links = make("ab")
    for bad in (
        lambda link: link.send("b", Kind("gossip"), 0),
        lambda link: link.send("b", Kind("floats", {"x": TensorSpec(torch.float64, (None,))}), 0, x(1)),
    ):
        with pytest.raises(WireError) as error:
            bad(links["a"])
        assert error.value.field == "kind"
    for tensors, meta, part in (
        ({}, {}, "floats.x"),
        ({**x(1), "y": torch.zeros(1)}, {}, "floats.y"),
        ({"x": torch.zeros(1, 1)}, {}, "floats.x"),
        ({"x": torch.zeros(1).double()}, {}, "floats.x"),
        (x(1), {"label": 3}, "floats.label"),
    ):
        with pytest.raises(WireError) as error:
            links["a"].send("b", FLOATS, 0, tensors, **meta)
        assert error.value.field == part
    with pytest.raises(WireError, check=Field("receiver")):
        links["a"].send("z", NOTE, 0, n=1)
    assert links["a"].ledger.messages == 0


def test_what_is_not_declared_is_not_taken(make: Make) -> None:
    links = make("ab")
    gossip = Kind("gossip")
    links["a"].declare(gossip)
    links["a"].send("b", gossip, 0)
    with pytest.raises(WireError, match="'a'") as error:
        links["b"].receive("a", gossip, 0)
    assert error.value.field == "kind"


def test_a_kind_is_declared_once() -> None:
    link = by_threads("ab")["a"]
    link.declare(NOTE)
    link.declare(NOTE)
    with pytest.raises(ValueError, match="differently"):
        link.declare(Kind("note", meta={"n": str}))


def test_another_step_or_kind_than_expected_is_refused(make: Make) -> None:
    links = make("ab")
    links["a"].send("b", NOTE, 0, n=1)
    links["a"].send("b", NOTE, 1, n=1)
    with pytest.raises(WireError) as error:
        links["b"].receive("a", NOTE, 1)
    assert error.value.field == "step"
    with pytest.raises(WireError) as error:
        links["b"].receive("a", FLOATS, 1)
    assert error.value.field == "kind"


def test_a_body_over_the_limit_does_not_leave(make: Make) -> None:
    links = make("ab", max_body=1 << 12)
    with pytest.raises(WireError) as error:
        links["a"].send("b", FLOATS, 0, x(2000))
    assert error.value.field == "body"


def test_a_silent_peer_is_named_at_the_time_out(make: Make) -> None:
    links = make("abc", timeout=TIMEOUT)
    start = time.monotonic()
    with pytest.raises(PeerLost, check=Peer("b")) as error:
        links["a"].receive("b", NOTE, 0)
    assert error.value.peer == "b"
    assert TIMEOUT <= time.monotonic() - start < TIMEOUT + 1


def test_everyone_names_the_party_that_is_silent(make: Make) -> None:
    """c waits for b, which waits for a: c began first, and must still not blame b."""

    def third(link: Link) -> None:
        link.receive("b", NOTE, 0)

    def second(link: Link) -> None:
        time.sleep(TIMEOUT / 8)
        link.receive("a", NOTE, 0)

    outcome = play(make("abc", timeout=TIMEOUT), {"b": second, "c": third})
    assert [lost(outcome[name]) for name in "bc"] == ["a", "a"]


def test_a_party_that_stops_waiting_can_be_blamed_again() -> None:
    links = by_processes("abc", timeout=TIMEOUT)
    for link in links.values():
        link.declare(NOTE)

    def first(link: Link) -> None:
        time.sleep(TIMEOUT * 0.7)
        link.send("b", NOTE, 0, n=1)

    def second(link: Link) -> None:
        link.receive("a", NOTE, 0)
        time.sleep(TIMEOUT * 2)  # hangs, no longer because of a

    def third(link: Link) -> None:
        time.sleep(TIMEOUT * 0.2)
        link.receive("b", NOTE, 0)

    assert lost(play(links, {"a": first, "b": second, "c": third})["c"]) == "b"


def test_parties_that_wait_for_each_other_name_each_other(make: Make) -> None:
    programs: dict[str, Program] = {
        "a": lambda link: link.receive("b", NOTE, 0),
        "b": lambda link: link.receive("a", NOTE, 0),
    }
    outcome = play(make("ab", timeout=TIMEOUT), programs)
    # Whoever times out first names the other; the other then hears that it is the one given up on.
    assert {lost(error) for error in outcome.values()} <= {"a", "b"}


def test_silent_party_follows_the_chain_and_not_a_circle() -> None:
    assert silent_party("b", {}) == "b"
    assert silent_party("b", {"b": "c", "c": "d"}) == "d"
    assert silent_party("b", {"b": "c", "c": "b"}) == "b"
    assert silent_party("b", {"a": "b", "b": "a"}) == "b"


def test_a_dying_party_is_named_by_everyone(make: Make) -> None:
    def dies(link: Link) -> None:
        raise RuntimeError("its secret must not travel")

    programs: dict[str, Program] = {
        "a": dies,
        "b": lambda link: link.receive("a", NOTE, 0),
        "c": lambda link: link.receive("b", NOTE, 0),  # waits for somebody else
    }
    start = time.monotonic()
    outcome = play(make("abc"), programs)
    assert time.monotonic() - start < 5  # not the time-out
    assert [lost(outcome[name]) for name in "bc"] == ["a", "a"]
    assert "RuntimeError" in str(outcome["b"])
    assert "secret" not in str(outcome["b"])


@pytest.mark.parametrize("reason", ["disk full", "磁盘已满🗄" * 400])
def test_the_reason_travels(make: Make, reason: str) -> None:
    links = make("ab")
    links["a"].abort(reason)
    with pytest.raises(PeerLost) as error:
        links["b"].receive("a", NOTE, 0)
    assert error.value.peer == "a"
    assert error.value.reason[:500] == reason[:500]


def test_what_arrived_before_the_end_is_still_delivered(make: Make) -> None:
    links = make("ab")
    links["a"].send("b", NOTE, 0, n=1)
    links["a"].abort("later")
    assert links["b"].receive("a", NOTE, 0).meta == {"n": 1}


@pytest.mark.parametrize("hung", ["a", "b"])
def test_with_turns_the_party_that_computes_without_end_is_named(hung: str) -> None:
    turns, done = Turns(), threading.Event()
    links = thread_links("abc", TIMEOUT, turns=turns)
    for link in links.values():
        link.declare(NOTE)

    def computes(link: Link) -> None:
        done.wait(20)

    def waits(link: Link) -> None:
        link.receive("c" if link.me != "c" else hung, NOTE, 0)

    programs = {name: computes if name == hung else waits for name in "abc"}
    start = time.monotonic()
    with pytest.raises(PeerLost) as error:
        run_threads(programs, links, turns)
    assert time.monotonic() - start < 4 * TIMEOUT
    done.set()
    assert error.value.peer == hung


def test_with_turns_one_party_computes_at_a_time() -> None:
    turns, inside, most = Turns(), [0], [0]
    links = thread_links("abc", 10, turns=turns)

    def program(link: Link) -> None:
        link.declare(NOTE)
        for step in range(20):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.0005)
            link.broadcast(NOTE, step, n=step)
            inside[0] -= 1
            link.gather(NOTE, step)

    run_threads(dict.fromkeys("abc", program), links, turns)
    assert most[0] == 1


def test_run_threads_raises_the_first_cause() -> None:
    links = thread_links("abc", 10)
    for link in links.values():
        link.declare(NOTE)

    def dies(link: Link) -> None:
        time.sleep(0.02)
        raise ZeroDivisionError

    def waits(link: Link) -> None:
        link.receive("b", NOTE, 0)

    with pytest.raises(ZeroDivisionError):
        run_threads({"a": waits, "b": dies, "c": waits}, links)
