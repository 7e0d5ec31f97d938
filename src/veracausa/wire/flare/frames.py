"""What travels between two cells: numbered frames, kept until the other side has read them.

    4 bytes  magic "VCF1"
    1 byte   type of frame, 3 bytes zero
    16 bytes session
    8 bytes  number of this frame in its session (of a probe: its own number)
    8 bytes  how many frames of the peer were read by the program
    8 bytes  how many frames of the peer have arrived in order
    body

A connection may break and come back, and the engine hands frames to many threads. So frames can be lost, repeated, or
overtake each other. Their numbers restore the order and reveal replays.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from veracausa.errors import WireError
from veracausa.wire.codec import ALIGNMENT, PREFIX, check_prefix
from veracausa.wire.memory import copy_bytes

if TYPE_CHECKING:
    from veracausa.wire.network import NetworkOptions

Frame = bytes | bytearray | memoryview
MAGIC = b"VCF1"
HEADER = struct.Struct("<4sB3x16sQQQ")
NO_SESSION = bytes(16)
COST = 1 << 10
"""Bytes that a frame counts beyond its own, so that many small ones are not cheaper to send than to keep."""


class FrameType(IntEnum):
    """What a frame is."""

    PIECE = 0
    """The next part of a message."""
    CONTROL = 1
    """A party gives up, has finished, announces a checkpoint, or announces whom it waits for."""
    STATE = 2
    """How far it has read."""
    PROBE = 3
    """The same, and asks for the other's."""
    UNKNOWN = 4
    """Answers a frame of a session that this party does not have."""
    POKE = 5
    """A party is there and asks for an offer of a session."""
    OFFER = 6
    ANSWER = 7
    CONFIRM = 8


class StaleFrame(WireError):
    """A frame of an earlier session, or a repeated one. It is dropped and counted."""


_TYPES = {int(frame_type): frame_type for frame_type in FrameType}
NUMBERED = (FrameType.PIECE, FrameType.CONTROL)
OF_A_SESSION = (*NUMBERED, FrameType.STATE, FrameType.PROBE)


class Header(NamedTuple):
    """The head of a frame."""

    type: FrameType
    session: bytes = NO_SESSION
    number: int = 0
    read: int = 0
    arrived: int = 0

    def pack(self) -> bytes:
        return HEADER.pack(MAGIC, self.type, self.session, self.number, self.read, self.arrived)


def parse(frame: memoryview) -> tuple[Header, memoryview]:
    """The head of a frame and its body."""
    if len(frame) < HEADER.size:
        raise WireError("frame", f"{len(frame)} bytes, less than a header")
    magic, frame_type, session, number, read, arrived = HEADER.unpack_from(frame)
    if magic != MAGIC or bytes(frame[5:8]) != bytes(3):
        raise WireError("frame", "is not one of ours")
    if frame_type not in _TYPES:
        raise WireError("frame", f"is of the unknown type {frame_type}")
    return Header(_TYPES[frame_type], session, number, read, arrived), frame[HEADER.size :]


class Outgoing:
    """Numbered frames to one peer, kept until it has read them."""

    def __init__(self, window: int) -> None:
        self.next = 0
        self.nbytes = 0
        self._window = window
        self._unread: deque[tuple[int, Frame]] = deque()

    def has_room(self, size: int) -> bool:
        return not self._unread or self.nbytes + size + COST <= self._window

    def number(self) -> int:
        """The number of the frame that comes next."""
        self.next += 1
        return self.next - 1

    def keep(self, number: int, frame: Frame) -> None:
        self._unread.append((number, frame))
        self.nbytes += len(frame) + COST

    def was_read(self, count: int, arrived: int) -> bool:
        """Let go of the first `count` frames of those that arrived; whether any was new."""
        if not count <= arrived <= self.next:
            raise WireError("frame.read", f"says that {count} of {arrived} frames were read, {self.next} were sent")
        before = len(self._unread)
        while self._unread and self._unread[0][0] < count:
            self.nbytes -= len(self._unread.popleft()[1]) + COST
        return len(self._unread) < before

    def since(self, number: int) -> list[Frame]:
        """The frames from a number on."""
        return [frame for at, frame in self._unread if at >= number]

    def __bool__(self) -> bool:
        return bool(self._unread)


class Incoming:
    """Numbered frames of one peer, put back in order; what it may fill before they are read is bounded."""

    def __init__(self, window: int) -> None:
        self.arrived = 0
        self.read = 0
        self.nbytes = 0
        # A peer that keeps to the window may still have sent a few words beyond it.
        self._limit = 2 * window
        self._early: dict[int, tuple[Header, memoryview]] = {}
        self._unread: deque[tuple[int, int]] = deque()

    def take(self, header: Header, body: memoryview) -> Iterator[tuple[Header, memoryview]]:
        """The frames that are next now that this one is here; a repeated one brings none."""
        if header.number < self.arrived or header.number in self._early:
            return
        cost = len(body) + COST
        if self.nbytes and self.nbytes + cost > self._limit:
            raise WireError("frame", f"number {header.number} comes while {self.nbytes} bytes are unread")
        self.nbytes += cost
        if header.number > self.arrived:
            self._early[header.number] = (header, body)
            return
        held: tuple[Header, memoryview] | None = (header, body)
        while held is not None:
            self._unread.append((self.arrived, len(held[1]) + COST))
            self.arrived += 1
            yield held
            held = self._early.pop(self.arrived, None)

    def was_read(self, count: int) -> int:
        """The program has read the first `count` frames; how many bytes that makes free."""
        self.read, before = count, self.nbytes
        while self._unread and self._unread[0][0] < count:
            self.nbytes -= self._unread.popleft()[1]
        return before - self.nbytes


def room(size: int) -> Tensor:
    """Bytes that end where the memory of a tensor could begin: a tensor at the end of a message is aligned, too."""
    start = -size % ALIGNMENT
    return torch.empty(size + start, dtype=torch.uint8)[start:]


def _writable(piece: memoryview) -> Tensor:
    """A copy: a tensor must not be made of bytes that nobody may write."""
    copied = room(len(piece))
    memoryview(copied.numpy())[:] = piece  # type: ignore[arg-type]
    return copied


class Assembly:
    """The pieces of one message after the other."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._whole: Tensor | None = None
        self._filled = 0

    @property
    def idle(self) -> bool:
        return self._whole is None

    def add(self, piece: memoryview) -> Tensor | None:
        """The whole message once its last piece is here; refused before anything of its size is allocated."""
        if not len(piece):
            raise WireError("frame", "is a piece of nothing")
        part = _writable(piece) if piece.readonly else torch.frombuffer(piece, dtype=torch.uint8)
        if self._whole is None:
            total = check_prefix(bytes(piece[: PREFIX.size]), self._max_body)
            if len(part) > total:
                raise WireError("body", f"{len(part)} bytes, {total} were announced")
            if len(part) == total:
                return part
            self._whole, self._filled = room(total), 0
        if self._filled + len(part) > len(self._whole):
            self._whole = None
            raise WireError("body", "has more bytes than were announced")
        copy_bytes(self._whole[self._filled : self._filled + len(part)], part)
        self._filled += len(part)
        if self._filled < len(self._whole):
            return None
        whole, self._whole = self._whole, None
        return whole


CHANNEL, TOPIC = "veracausa", "frame"
SLACK = 1 << 16
"""Bytes that a frame may have beyond a piece of a message."""


class FrameGate:
    """Says what is wrong with a message that came over the connection of a cell."""

    def __init__(self, me: str, network: NetworkOptions) -> None:
        self._me, self._network = me, network
        self._max_frame = (network.wire.chunk_kib << 10) + SLACK
        self.cells = {network.cell(name) for name in network.members}

    def problem(self, came_from: str, message: Any) -> str:
        """Why the message is not let through; empty: it is a frame between members."""
        parts = flare_names()
        key, header = parts.MessageHeaderKey, message.get_header
        origin, to = header(key.ORIGIN), header(key.DESTINATION)
        size = len(message.payload or b"")
        if header(key.CHANNEL) != CHANNEL or header(key.TOPIC) != TOPIC:
            return "is nothing that members send"
        if header(key.MSG_TYPE) != parts.MessageType.REQ or header(key.REPLY_EXPECTED):
            return "asks for a reply or is one"
        if header(key.PAYLOAD_ENCODING) != parts.Encoding.BYTES or header(key.SECURE):
            return "is not plain bytes"
        if header(key.CONN_URL):
            return "asks to be dialled elsewhere"
        if not {origin, to, came_from} <= self.cells or origin == to:
            return "is not between members"
        if not HEADER.size <= size <= self._max_frame:
            return f"has {size} bytes, {HEADER.size} to {self._max_frame} are taken"
        if origin != came_from and came_from != self._network.cell(self._network.server):
            return "claims another sender"
        if to != self._network.cell(self._me) and self._me != self._network.server:
            return "is not for here"
        return ""


@cache
def flare_names() -> Any:
    """FLARE's names of the parts of a message. It need not be installed to import this module."""
    from veracausa.wire.flare import engine

    return engine
