"""Frames come in any order, twice, cut off, or made up: what is in order comes out, and memory stays bounded."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import Field

from veracausa.errors import WireError
from veracausa.wire.codec import MAGIC, PREFIX, encode
from veracausa.wire.flare.frames import COST, HEADER, Assembly, FrameType, Header, Incoming, Outgoing, parse
from veracausa.wire.message import Message

WINDOW = 1 << 16


def numbers(incoming: Incoming, number: int, body: bytes = b"x") -> list[int]:
    return [header.number for header, _ in incoming.take(Header(FrameType.PIECE, number=number), memoryview(body))]


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_whatever_is_doubled_or_overtaken_comes_out_once_and_in_order(count: int, chance: random.Random) -> None:
    arriving = [number for number in range(count) for _ in range(chance.randint(1, 3))]
    chance.shuffle(arriving)
    incoming = Incoming(WINDOW)
    assert [number for arrived in arriving for number in numbers(incoming, arrived)] == list(range(count))
    assert incoming.arrived == count
    assert incoming.was_read(count) > 0
    assert incoming.nbytes == 0


@given(st.lists(st.integers(0, 1 << 63), max_size=300), st.integers(0, 3000))
def test_no_choice_of_numbers_fills_more_than_twice_the_window(chosen: list[int], size: int) -> None:
    incoming = Incoming(WINDOW)
    for number in chosen:
        try:
            numbers(incoming, number, bytes(size))
        except WireError:
            assert incoming.nbytes + size + COST > 2 * WINDOW
        assert incoming.nbytes <= 2 * WINDOW


def test_a_flood_in_order_is_refused_until_it_is_read() -> None:
    incoming = Incoming(WINDOW)
    while incoming.nbytes + 1000 + COST <= 2 * WINDOW:
        numbers(incoming, incoming.arrived, bytes(1000))
    arrived = incoming.arrived
    with pytest.raises(WireError, match="unread"):
        numbers(incoming, arrived, bytes(1000))
    assert 0 < arrived < 100
    incoming.was_read(arrived)
    assert numbers(incoming, arrived, bytes(1000)) == [arrived]


def test_one_frame_larger_than_the_window_still_passes() -> None:
    assert numbers(Incoming(10), 0, bytes(1000)) == [0]


def test_small_frames_are_not_cheaper_to_send_than_to_keep() -> None:
    outgoing = Outgoing(WINDOW)
    while outgoing.has_room(1):
        outgoing.keep(outgoing.number(), b"x")
    assert outgoing.next == WINDOW // (COST + 1)


@pytest.mark.parametrize(("read", "arrived"), [(4, 4), (0, 4), (2, 1), (1 << 63, 1 << 63)])
def test_an_absurd_acknowledgement_lets_nothing_go(read: int, arrived: int) -> None:
    outgoing = Outgoing(WINDOW)
    for _ in range(3):
        outgoing.keep(outgoing.number(), b"frame")
    with pytest.raises(WireError, check=Field("frame.read")):
        outgoing.was_read(read, arrived)
    assert len(outgoing.since(0)) == 3
    assert outgoing.was_read(2, 3)
    assert not outgoing.was_read(1, 1)  # an old one that was overtaken
    assert len(outgoing.since(0)) == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(HEADER.size - 1),
        bytes(HEADER.size),
        b"VCF2" + Header(FrameType.PIECE).pack()[4:],
        b"VCF1\x09" + Header(FrameType.PIECE).pack()[5:],
        b"VCF1\x00\x01" + Header(FrameType.PIECE).pack()[6:],
    ],
    ids=["empty", "cut off", "zeros", "another magic", "unknown sort", "set where zero belongs"],
)
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        parse(memoryview(frame))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_refused(content: bytes) -> None:
    try:
        header, body = parse(memoryview(content))
    except WireError:
        return
    assert header.pack() + bytes(body) == content


@given(st.integers(1, 5000), st.integers(1, 700))
def test_a_message_in_pieces_is_whole_again(length: int, piece: int) -> None:
    content = encode(Message("a", "b", "k", 0, {"x": torch.arange(length, dtype=torch.uint8)}))
    # The first piece holds at least the prefix, as every sender's does.
    step = max(piece, PREFIX.size)
    assembly = Assembly(1 << 20)
    whole = None
    for start in range(0, len(content), step):
        assert whole is None
        whole = assembly.add(memoryview(content[start : start + step]))
    assert whole is not None
    assert whole.numpy().tobytes() == content


def test_what_is_only_announced_is_refused_before_there_is_room_for_it() -> None:
    assembly = Assembly(1 << 20)
    with pytest.raises(WireError, match="announces"):
        assembly.add(memoryview(PREFIX.pack(MAGIC, 10, 1 << 62)))
    assert assembly.idle


@pytest.mark.parametrize("piece", [b"", b"VCW1", b"nonsense, and longer than a prefix"])
def test_a_piece_that_begins_no_message_is_refused(piece: bytes) -> None:
    with pytest.raises(WireError):
        Assembly(1 << 20).add(memoryview(piece))


def test_more_than_was_announced_is_refused_and_the_next_message_taken() -> None:
    assembly = Assembly(1 << 20)
    assert assembly.add(memoryview(PREFIX.pack(MAGIC, 10, 10))) is None
    with pytest.raises(WireError, match="more bytes"):
        assembly.add(memoryview(bytes(21)))
    content = encode(Message("a", "b", "k", 0, {}))
    whole = assembly.add(memoryview(content))
    assert whole is not None
    assert whole.numpy().tobytes() == content
