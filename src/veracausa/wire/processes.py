"""Parties as processes of one machine: messages lie in shared memory, and a pipe announces them."""

from __future__ import annotations

import json
import selectors
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from veracausa.errors import PeerLost, WireError
from veracausa.escaping import escaped
from veracausa.wire.codec import DEFAULT_MAX_BODY, MAX_HEADER, PREFIX, Layout, check_prefix, decode
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link, silent_party
from veracausa.wire.memory import SharedBytes, copy_bytes
from veracausa.wire.message import Message, shown

ARENA = 64 << 20
"""Bytes of shared memory for each direction between two parties; larger messages go in pieces."""

_BELL = struct.Struct("<QQQI")  # length of the whole message, place and length of this piece, pieces read
_COUNT = struct.Struct("<I")
_MAX_FRAME = 1 << 14
_SMALLEST_ARENA = 4096
_IN_FLIGHT = 64
"""Unread messages per peer. A pipe holds a few hundred frames; two parties that fill each other's would stand still."""

_LARGE = 1 << 20
"""Bytes of a piece whose room the peer may need at once."""

T = TypeVar("T")


class Wires:
    """One party's ends, made before the processes start: per peer a pipe, an arena to write and one to read."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.ends: dict[str, tuple[Connection, SharedBytes, SharedBytes]] = {}

    def close(self) -> None:
        for connection, _, _ in self.ends.values():
            connection.close()


def make_wires(names: Sequence[str], arena: int = ARENA) -> dict[str, Wires]:
    """Ends for every party, each connected to all the others. An arena takes memory only as it is used."""
    if arena < _SMALLEST_ARENA:
        raise ValueError(f"an arena of {arena} bytes; at least {_SMALLEST_ARENA} are needed")
    wires = {name: Wires(name) for name in names}
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            here, there = Pipe(duplex=True)
            forth, back = SharedBytes(arena), SharedBytes(arena)
            wires[first].ends[second] = (here, forth, back)
            wires[second].ends[first] = (there, back, forth)
    return wires


class _Outgoing:
    """The arena a party writes for one peer, used as a ring; a span is free again once the peer has read it."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self._spans: deque[tuple[int, int]] = deque()
        self._head = 0

    def place(self, size: int) -> int | None:
        """Where `size` bytes fit now, on an 8-byte boundary, or None while the peer has to read first."""
        if len(self._spans) >= _IN_FLIGHT:
            return None
        capacity = self.memory.numel()
        if not self._spans:
            self._head = 0
        tail = self._spans[0][0] if self._spans else 0
        if self._spans and self._head <= tail:
            fits = self._head + size <= tail
        else:
            fits = self._head + size <= capacity
            if not fits and self._spans and size <= tail:
                self._head, fits = 0, True
        if not fits:
            return None
        offset = self._head
        self._spans.append((offset, size))
        self._head = (offset + size + 7) & ~7
        return offset

    def freed(self, count: int) -> None:
        if count > len(self._spans):
            raise WireError("doorbell", "acknowledges a message that was never sent")
        for _ in range(count):
            self._spans.popleft()


class _Incoming:
    """The arena a peer writes, and the pieces of the message that is arriving."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.whole: Tensor | None = None
        self.filled = 0
        self.read = 0  # pieces that the peer does not know yet to be read


class ProcessLink(Link):
    """A link between processes: one copy into shared memory, one copy out of it."""

    def __init__(
        self,
        wires: Wires,
        ledger: Ledger | None = None,
        timeout: float = 120.0,
        max_body: int = DEFAULT_MAX_BODY,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(wires.me, list(wires.ends), ledger, timeout, max_body)
        self._device = device
        if device is not None and device.type == "cuda":
            for _, forth, back in wires.ends.values():
                forth.pin()
                back.pin()
        self._arenas = [arena for _, *arenas in wires.ends.values() for arena in arenas]  # keeps the memory mapped
        self._pipes = {peer: end[0] for peer, end in wires.ends.items()}
        self._listening = selectors.DefaultSelector()
        for peer, pipe in self._pipes.items():
            self._listening.register(pipe, selectors.EVENT_READ, peer)
        self._out = {peer: _Outgoing(end[1].tensor) for peer, end in wires.ends.items()}
        self._in = {peer: _Incoming(end[2].tensor) for peer, end in wires.ends.items()}
        self._arrived: dict[str, deque[Message]] = {peer: deque() for peer in self.peers}
        self._finished: set[str] = set()
        self._waits: dict[str, str] = {}

    def _deliver(self, message: Message, plan: Layout) -> None:
        out = self._out[message.receiver]
        piece = out.memory.numel() // 2
        if plan.nbytes <= piece:
            place = self._room(message.receiver, plan.nbytes)
            plan.write(out.memory[place : place + plan.nbytes])
            self._ring(message.receiver, plan.nbytes, place, plan.nbytes)
            return
        whole = torch.empty(plan.nbytes, dtype=torch.uint8)
        plan.write(whole)
        for start in range(0, plan.nbytes, piece):
            part = whole[start : start + piece]
            place = self._room(message.receiver, len(part))
            copy_bytes(out.memory[place : place + len(part)], part)
            self._ring(message.receiver, plan.nbytes, place, len(part))

    def _room(self, peer: str, size: int) -> int:
        return self._until(peer, lambda: self._out[peer].place(size))

    def _ring(self, peer: str, total: int, place: int, size: int) -> None:
        try:
            self._pipes[peer].send_bytes(b"M" + _BELL.pack(total, place, size, self._in[peer].read))
        except OSError:
            self._gone(peer)
        self._in[peer].read = 0

    def _acknowledge(self, peer: str) -> None:
        if read := self._in[peer].read:
            # A peer may have finished and gone once its last message is in the arena: nobody needs the answer then.
            self._tell([peer], b"A" + _COUNT.pack(read))
            self._in[peer].read = 0

    def _tell(self, peers: Sequence[str], frame: bytes) -> None:
        for peer in peers:
            try:
                self._pipes[peer].send_bytes(frame)
            except OSError:
                continue  # it is gone already; its last words are still to be read

    def _collect(self, sender: str) -> Message:
        arrived = self._arrived[sender]
        return self._until(sender, lambda: arrived.popleft() if arrived else None)

    def _until(self, peer: str, ready: Callable[[], T | None]) -> T:
        """Take in what any peer says until `ready`; whoever dies or gives up meanwhile, this party hears of it.

        Half-way to the time-out it tells the others whom it waits for, so that at the time-out nobody blames a party
        that only waits itself.
        """
        start, announced = time.monotonic(), False
        while (result := ready()) is None:
            if peer in self._finished:
                raise PeerLost(peer, "it had already finished")
            waited = time.monotonic() - start
            if waited >= self.timeout:
                lost = silent_party(peer, {**self._waits, self.me: peer})
                raise PeerLost(lost, f"silent for {self.timeout:g} s")
            if not announced and waited >= self.timeout / 2:
                announced = True
                self._tell(self.peers, b"W" + peer.encode())
            for other in self.peers:
                self._acknowledge(other)
            self._hear((self.timeout if announced else self.timeout / 2) - waited)
        if announced:
            self._tell(self.peers, b"W")
        return result

    def _hear(self, timeout: float) -> None:
        for key, _ in self._listening.select(timeout):
            self._hear_one(key.data)

    def _hear_one(self, peer: str) -> None:
        try:
            frame = self._pipes[peer].recv_bytes(_MAX_FRAME)
        except (EOFError, OSError):
            raise PeerLost(peer, "its process ended without a word") from None
        self._take_in(peer, frame)

    def _gone(self, peer: str) -> NoReturn:
        """Nothing can be told to this peer any more: what it said last tells why."""
        while peer not in self._finished:
            self._hear_one(peer)
        raise PeerLost(peer, "it had already finished")

    def _take_in(self, peer: str, frame: bytes) -> None:
        match frame[:1]:
            case b"A" if len(frame) == 1 + _COUNT.size:
                self._out[peer].freed(_COUNT.unpack(frame[1:])[0])
            case b"M":
                self._read(peer, frame[1:])
            case b"Q":
                self._finished.add(peer)
                self._listening.unregister(self._pipes[peer])
            case b"W":
                self._waits.pop(peer, None)
                if (awaited := frame[1:].decode(errors="replace")) in (self.me, *self.peers):
                    self._waits[peer] = awaited
            case b"X":
                raise _last_words(peer, frame[1:])
            case _:
                raise WireError("doorbell", f"{peer!r} rang in an unknown way")

    def _read(self, peer: str, bell: bytes) -> None:
        if len(bell) != _BELL.size:
            raise WireError("doorbell", f"{peer!r} rang with {len(bell)} bytes")
        total, place, size, read = _BELL.unpack(bell)
        self._out[peer].freed(read)
        arena = self._in[peer]
        if total > PREFIX.size + MAX_HEADER + self.max_body:
            raise WireError("body", f"{peer!r} announces {total} bytes, at most {self.max_body} are taken")
        if not 0 < size <= total or place + size > arena.memory.numel():
            raise WireError("doorbell", f"{peer!r} points outside its memory")
        piece = arena.memory[place : place + size]
        if size == total:
            whole: Tensor | None = piece
        else:
            whole = self._piece(peer, arena, piece, total)
        if whole is not None:
            try:
                message = decode(whole, self.kinds[peer], self.max_body, self._device)
            except WireError as error:
                problem = str(error).removeprefix(f"message refused: {error.field}: ")
                raise WireError(error.field, f"{problem} (from {peer!r})") from None
            if message.sender != peer:
                raise WireError("sender", f"is {shown(message.sender)!r} on the wire of {peer!r}")
            self._arrived[peer].append(message)
        # What answers a small message also acknowledges it: a frame of its own would wake the peer once more.
        arena.read += 1
        if size > _LARGE or arena.read >= _IN_FLIGHT // 4:
            self._acknowledge(peer)

    def _piece(self, peer: str, arena: _Incoming, piece: Tensor, total: int) -> Tensor | None:
        if arena.whole is None:
            if check_prefix(bytes(piece[: PREFIX.size].numpy()), self.max_body) != total:
                raise WireError("doorbell", f"{peer!r} announces another length than its message")
            arena.whole, arena.filled = torch.empty(total, dtype=torch.uint8), 0
        if len(arena.whole) != total or arena.filled + len(piece) > total:
            raise WireError("doorbell", f"{peer!r} sent pieces of different messages")
        copy_bytes(arena.whole[arena.filled : arena.filled + len(piece)], piece)
        arena.filled += len(piece)
        if arena.filled < total:
            return None
        whole, arena.whole = arena.whole, None
        return whole

    def abort(self, reason: str, lost: str | None = None) -> None:
        # Escaped, a character takes up to twelve bytes, and the frame must be one that the peers accept.
        words = json.dumps([(lost or self.me)[:60], reason[:1000]]).encode()
        self._tell(self.peers, b"X" + words)

    def close(self) -> None:
        super().close()
        self._tell(self.peers, b"Q")


def _last_words(peer: str, words: bytes) -> PeerLost | WireError:
    try:
        lost, reason = json.loads(words)
    except (ValueError, TypeError, RecursionError):
        return WireError("doorbell", f"{peer!r} gave up in an unknown way")
    return PeerLost(escaped(str(lost)), escaped(str(reason)))
