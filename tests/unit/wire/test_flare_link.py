"""A link between organisations: nothing that is lost, doubled, changed or made up reaches the program or stops it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federation.joined import (
    FLOATS,
    NOTE,
    Frame,
    Pipes,
    identities,
    in_thread,
    send_all,
    still_works,
    took_all,
    two,
    wait_until,
)
from veracausa.errors import PeerLost, WireError
from veracausa.wire.codec import MAGIC, PREFIX, encode
from veracausa.wire.flare import link as links
from veracausa.wire.flare.frames import FrameType, Header
from veracausa.wire.flare.session import PeerIdentity
from veracausa.wire.message import Kind, Message, TensorSpec

Who = dict[str, PeerIdentity]
COUNT = 12


@pytest.fixture(scope="module")
def who(tmp_path_factory: pytest.TempPathFactory) -> Who:
    return identities(tmp_path_factory.mktemp("who"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tick asks: what a second brings about in earnest comes at once."""
    monkeypatch.setattr(links, "IMPATIENT", -1.0)


# ---- the network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False])
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chance=st.randoms(use_true_random=False), sizes=st.lists(st.sampled_from([0, 3, 900, 1100, 5000]), max_size=COUNT)
)
def test_exactly_what_was_sent_arrives_in_order(
    who: Who, sealed: bool, chance: random.Random, sizes: list[int]
) -> None:
    """Frames are lost, doubled and shuffled, those that acknowledge and resend, too."""
    pipes = two(who, sealed=sealed)
    pipes.open = False
    pipes.alter = lambda frame: [frame] * chance.choice([0, 1, 1, 2])
    send_all(pipes, sizes)
    for _ in range(40):
        chance.shuffle(pipes.frames)
        pipes.tick()
    pipes.alter = lambda frame: [frame]
    pipes.tick(4)
    took_all(pipes, sizes)
    assert not pipes.links["lab"].refused
    assert not pipes.links["bank"].refused


def test_after_a_cut_everything_arrives_by_itself(who: Who) -> None:
    pipes = two(who)
    sizes = [100, 3000, 5] * 3
    pipes.alter = lambda frame: []
    send_all(pipes, sizes)
    pipes.tick(3)
    assert not pipes.links["lab"]._of["bank"].inbox
    pipes.alter = lambda frame: [frame]
    pipes.tick(4)
    took_all(pipes, sizes)


def test_what_was_read_is_let_go_and_not_sent_again(who: Who) -> None:
    pipes = two(who)
    send_all(pipes, [10] * 5)
    took_all(pipes, [10] * 5)
    pipes.tick(2)
    assert not pipes.links["bank"]._of["lab"].out
    pieces = [frame for frame in pipes.sent if frame[2][4] == FrameType.PIECE]
    assert len(pieces) == 5


def test_replayed_frames_bring_nothing_and_are_no_fault(who: Who) -> None:
    pipes = two(who)
    send_all(pipes, [10] * 5)
    pipes.tick(2)
    captured = list(pipes.sent)
    took_all(pipes, [10] * 5)
    for frame in captured * 3:
        pipes.hand(frame)
    assert not pipes.links["lab"]._of["bank"].inbox
    assert not pipes.links["lab"].refused
    still_works(pipes)


@pytest.mark.parametrize("at", [4, 24, 32, 40, 48, -1])
def test_a_changed_frame_is_refused_and_comes_again(who: Who, caplog: pytest.LogCaptureFixture, at: int) -> None:
    """Whichever byte: the head is sealed with the body."""
    pipes = two(who)

    def change(frame: Frame) -> list[Frame]:
        changed = bytearray(frame[2])
        if changed[4] == FrameType.PIECE:
            changed[at] ^= 1
        return [(*frame[:2], bytes(changed))]

    pipes.alter = change
    send_all(pipes, [10])
    assert pipes.links["lab"].refused == {"bank": 1}
    assert "refused from bank" in caplog.text
    assert "changed on its way" in caplog.text
    pipes.alter = lambda frame: [frame]
    pipes.tick(4)
    took_all(pipes, [10])


@pytest.mark.parametrize("length", [48, 49, 63, 70, -1])
def test_a_truncated_frame_is_refused_and_comes_again(who: Who, length: int) -> None:
    pipes = two(who)
    pipes.alter = lambda frame: [(*frame[:2], frame[2][:length])] if frame[2][4] == FrameType.PIECE else [frame]
    send_all(pipes, [100])
    assert pipes.links["lab"].refused["bank"] == 1
    pipes.alter = lambda frame: [frame]
    pipes.tick(4)
    took_all(pipes, [100])


# ---- a peer that has the keys, and does not keep to the rules ------------------------------------------------------


def message(**changed: object) -> bytes:
    fields = {"sender": "bank", "receiver": "lab", "kind": "floats", "step": 0, "tensors": {"x": torch.ones(3)}}
    return encode(Message(**{**fields, **changed}))  # type: ignore[arg-type]


BAD_MESSAGES = {
    "undeclared kind": message(kind="labels"),
    "another shape": message(tensors={"x": torch.ones(3, 3)}),
    "another type": message(tensors={"x": torch.ones(3, dtype=torch.float64)}),
    "another tensor": message(tensors={"x": torch.ones(3), "y": torch.ones(3)}),
    "no tensor": message(tensors={}),
    "not a number": message(tensors={"x": torch.tensor([1.0, torch.nan])}),
    "infinite": message(tensors={"x": torch.tensor([torch.inf])}),
    "another sender": message(sender="hospital"),
    "another receiver": message(receiver="bank"),
    "another step": message(step=7),
    "another field": message(meta={"n": 1}),
    "no message": b"nonsense that is longer than a prefix",
    "more than may cross": PREFIX.pack(MAGIC, 10, 1 << 40),
    "a header that is too long": PREFIX.pack(MAGIC, 1 << 31, 10),
    "nothing": b"",
    "text where bytes belong": PREFIX.pack(MAGIC, 4, 0) + b"\xa3abc",
}


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_bad_message_is_refused_and_the_next_one_taken(
    who: Who, sealed: bool, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipes = two(who, sealed=sealed)
    pipes.hand(pipes.forge("bank", "lab", FrameType.PIECE, BAD_MESSAGES[name], number=0))
    pipes.hand(pipes.forge("bank", "lab", FrameType.PIECE, message(), number=1))
    assert torch.equal(pipes.links["lab"].receive("bank", FLOATS, 0).tensors["x"], torch.ones(3))
    assert pipes.links["lab"].refused == {"bank": 1}
    assert "refused from bank" in caplog.text


BAD_FRAMES: dict[str, Callable[[Pipes], Frame | None]] = {
    "reads more than was sent": lambda pipes: pipes.forge("bank", "lab", FrameType.STATE, bytes(8), read=9, arrived=9),
    "reads more than arrived": lambda pipes: pipes.forge("bank", "lab", FrameType.STATE, bytes(8), read=1, arrived=0),
    "a state that says nothing": lambda pipes: pipes.forge("bank", "lab", FrameType.STATE, b""),
    "a probe that says too much": lambda pipes: pipes.forge("bank", "lab", FrameType.PROBE, bytes(100)),
    "an offer inside a session": lambda pipes: pipes.forge("bank", "lab", FrameType.OFFER, bytes(40)),
    "words that are no words": lambda pipes: pipes.force("bank", "lab", FrameType.CONTROL, b"\xff"),
    "words in a list": lambda pipes: pipes.force("bank", "lab", FrameType.CONTROL, b"[1]"),
    "words that hold numbers": lambda pipes: pipes.force("bank", "lab", FrameType.CONTROL, b'{"lost": 1}'),
    "words without an end": lambda pipes: pipes.force("bank", "lab", FrameType.CONTROL, b"[" * 10000),
    "words that are too many": lambda pipes: pipes.force("bank", "lab", FrameType.CONTROL, b" " * (1 << 15)),
    "holds no step": lambda pipes: pipes.force("bank", "lab", FrameType.CONTROL, b'{"holds": "-1"}'),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_refused_and_nothing_else_happens(who: Who, name: str) -> None:
    pipes = two(who)
    if (frame := BAD_FRAMES[name](pipes)) is not None:
        pipes.hand(frame)
    assert pipes.links["lab"].refused == {"bank": 1}
    pipes.links["lab"].send("bank", NOTE, 0, n=1)
    assert pipes.links["bank"].receive("lab", NOTE, 0).meta == {"n": 1}


def test_a_relay_can_not_say_what_was_read(who: Who) -> None:
    """Or it could make the sender let go of what never arrived."""
    pipes = two(who)
    pipes.alter = lambda frame: []
    send_all(pipes, [10])
    head = Header(FrameType.STATE, pipes.sessions["bank"]["lab"].id, read=1, arrived=1).pack()
    for body in (bytes(8), b"", bytes(32)):
        pipes.hand(("lab", "bank", head + body))
    assert pipes.links["bank"].refused == {"lab": 3}
    pipes.alter = lambda frame: [frame]
    pipes.tick(4)
    took_all(pipes, [10])


def test_who_blames_a_stranger_or_paints_the_screen_is_named_itself(who: Who) -> None:
    pipes = two(who)
    words = b'{"lost": "\\u001b[2J", "reason": "\\u001b[31mpay\\nhere"}'
    pipes.hand(pipes.forge("bank", "lab", FrameType.CONTROL, words))
    with pytest.raises(PeerLost) as lost:
        pipes.links["lab"].receive("bank", NOTE, 0)
    assert lost.value.peer == "bank"
    assert str(lost.value).isprintable()


@pytest.mark.parametrize("early", [True, False])
def test_a_flood_is_bounded_and_honest_traffic_goes_on(who: Who, early: bool) -> None:
    pipes = two(who, window=1 << 16)
    for number in range(400):
        if early:
            pipes.hand(pipes.forge("bank", "lab", FrameType.PIECE, message(), number=number + 1))
        else:
            pipes.force("bank", "lab", FrameType.PIECE, message())
    held = pipes.links["lab"]._of["bank"]
    assert pipes.links["lab"].refused["bank"] > 200
    assert held.incoming.nbytes <= 2 << 16
    assert len(held.inbox) < 200
    pipes.links["lab"].send("bank", NOTE, 0, n=1)
    assert pipes.links["bank"].receive("lab", NOTE, 0).meta == {"n": 1}


def test_a_flood_of_refusals_does_not_fill_the_log(who: Who, caplog: pytest.LogCaptureFixture) -> None:
    pipes = two(who)
    bad = pipes.forge("bank", "lab", FrameType.PIECE, message(), number=0)
    for _ in range(2500):
        pipes.hand((*bad[:2], bad[2][:-1]))
    assert pipes.links["lab"].refused == {"bank": 2500}
    assert len(caplog.records) == 22
    assert "2000 so far" in caplog.text
    still_works(pipes)


def test_a_peer_that_sends_only_nonsense_can_not_keep_a_party_waiting(who: Who) -> None:
    pipes = two(who, timeout=0.3)
    stop = threading.Event()

    def flood() -> None:
        number = 0
        while not stop.is_set():
            pipes.hand(pipes.forge("bank", "lab", FrameType.PIECE, BAD_MESSAGES["not a number"], number=number))
            number += 1

    in_thread(flood)
    with pytest.raises(PeerLost) as lost:
        pipes.links["lab"].receive("bank", FLOATS, 0)
    stop.set()
    assert lost.value.peer == "bank"
    assert "of its frames were refused, the last one: " in str(lost.value)


# ---- what may not leave --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "tensors"),
    [
        (Kind("labels", {"y": TensorSpec(torch.int64, (None,))}), {"y": torch.zeros(3, dtype=torch.int64)}),
        (Kind("floats", {"x": TensorSpec(torch.float32, (None, None))}), {"x": torch.zeros(3, 4)}),
        (FLOATS, {"x": torch.zeros(3, 4)}),
        (FLOATS, {"x": torch.zeros(3), "raw": torch.zeros(3)}),
        (FLOATS, {"x": torch.zeros(3, dtype=torch.float64)}),
    ],
    ids=["an undeclared kind", "a kind declared otherwise", "a shape", "one tensor more", "a type"],
)
def test_what_was_not_declared_does_not_leave(who: Who, kind: Kind, tensors: dict[str, torch.Tensor]) -> None:
    pipes = two(who)
    with pytest.raises(WireError):
        pipes.links["bank"].send("lab", kind, 0, tensors)
    assert not pipes.sent
    assert pipes.links["bank"].ledger.messages == 0


def test_who_carries_a_sealed_session_sees_nothing_of_it(who: Who) -> None:
    x = torch.rand(2000)
    seen = {}
    for sealed in (True, False):
        pipes = two(who, sealed=sealed)
        pipes.links["bank"].send("lab", FLOATS, 0, {"x": x})
        wait_until(lambda pipes=pipes: len(pipes.links["lab"]._of["bank"].inbox) == 1)  # type: ignore[misc]
        carried = b"".join(content for _, _, content in pipes.sent)
        seen[sealed] = (
            any(x[at : at + 4].numpy().tobytes() in carried for at in range(0, 2000, 4)),
            b"floats" in carried,
        )
    assert seen == {True: (False, False), False: (True, True)}


@pytest.mark.parametrize("sort", [FrameType.STATE, FrameType.PROBE])
def test_what_a_relay_replays_without_a_number_is_taken_once(who: Who, sort: FrameType) -> None:
    """A thousand times: no answer goes out, the peer does not count as heard, and its step does not go back."""
    pipes = two(who)
    old = pipes.forge("lab", "bank", sort, (3).to_bytes(8, "little"), number=7)
    new = pipes.forge("lab", "bank", FrameType.STATE, (9).to_bytes(8, "little"))
    pipes.hand(old)
    pipes.hand(new)
    own = pipes.links["bank"]._of["lab"]
    heard, sent = own.heard_at, len(pipes.sent)
    for _ in range(1000):
        pipes.hand(old)
    assert (own.heard_at, own.step, len(pipes.sent)) == (heard, 9, sent)
    assert pipes.links["bank"].stale == {"lab": 1000}
    assert pipes.links["bank"].seen()["lab"]["stale"] == 1000
    assert not pipes.links["bank"].refused
    still_works(pipes)
