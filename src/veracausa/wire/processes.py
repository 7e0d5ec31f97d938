"""Parties as processes of one machine: messages in shared memory, a pipe as the doorbell."""

from __future__ import annotations

import json
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait

import torch
from torch import Tensor

from veracausa.errors import PeerLost, WireError
from veracausa.wire.codec import DEFAULT_MAX_BODY, MAX_HEADER, PREFIX, Layout, check_prefix, decode
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link
from veracausa.wire.memory import SharedBytes
from veracausa.wire.message import Message

ARENA = 64 << 20
"""Bytes of shared memory for each direction between two parties; larger messages go in pieces."""

_BELL = struct.Struct("<QQQ")  # length of the whole message, place and length of this piece
_MAX_FRAME = 4096


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

    def freed(self) -> None:
        if not self._spans:
            raise WireError("doorbell", "acknowledges a message that was never sent")
        self._spans.popleft()


class _Incoming:
    """The arena a peer writes, and the pieces of the message that is arriving."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.whole: Tensor | None = None
        self.filled = 0


class ProcessLink(Link):
    """A link between processes: one copy into shared memory, one copy out of it."""

    def __init__(self, wires: Wires, ledger: Ledger | None = None, timeout: float = 120.0,
                 max_body: int = DEFAULT_MAX_BODY, device: torch.device | None = None) -> None:
        super().__init__(wires.me, list(wires.ends), ledger, timeout, max_body)
        self._device = device
        if device is not None and device.type == "cuda":
            for _, forth, back in wires.ends.values():
                forth.pin()
                back.pin()
        self._arenas = [arena for _, *arenas in wires.ends.values() for arena in arenas]  # keeps the memory mapped
        self._pipes = {peer: end[0] for peer, end in wires.ends.items()}
        self._peer_of = {id(pipe): peer for peer, pipe in self._pipes.items()}
        self._out = {peer: _Outgoing(end[1].tensor) for peer, end in wires.ends.items()}
        self._in = {peer: _Incoming(end[2].tensor) for peer, end in wires.ends.items()}
        self._arrived: dict[str, deque[Message]] = {peer: deque() for peer in self.peers}
        self._finished: set[str] = set()

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
            out.memory[place : place + len(part)] = part
            self._ring(message.receiver, plan.nbytes, place, len(part))

    def _room(self, peer: str, size: int) -> int:
        deadline = time.monotonic() + self.timeout
        while (place := self._out[peer].place(size)) is None:
            self._hear(peer, deadline)
        return place

    def _ring(self, peer: str, total: int, place: int, size: int) -> None:
        self._say(peer, b"M" + _BELL.pack(total, place, size))

    def _say(self, peer: str, frame: bytes) -> None:
        try:
            self._pipes[peer].send_bytes(frame)
        except OSError:
            self._gone(peer)

    def _collect(self, sender: str) -> Message:
        deadline = time.monotonic() + self.timeout
        while not self._arrived[sender]:
            if sender in self._finished:
                raise PeerLost(sender, "it had already finished")
            self._hear(sender, deadline)
        return self._arrived[sender].popleft()

    def _hear(self, awaited: str, deadline: float) -> None:
        """Take in what any peer says; whoever dies or gives up meanwhile, this party hears of it."""
        listening = [pipe for peer, pipe in self._pipes.items() if peer not in self._finished]
        ready = wait(listening, max(0.0, deadline - time.monotonic()))
        if not ready:
            raise PeerLost(awaited, f"silent for {self.timeout:g} s")
        for pipe in ready:
            peer = self._peer_of[id(pipe)]
            try:
                frame = self._pipes[peer].recv_bytes(_MAX_FRAME)
            except (EOFError, OSError):
                self._gone(peer)
            self._take_in(peer, frame)

    def _gone(self, peer: str) -> None:
        raise PeerLost(peer, "its process ended without a word")

    def _take_in(self, peer: str, frame: bytes) -> None:
        match frame[:1]:
            case b"A":
                self._out[peer].freed()
            case b"M":
                self._read(peer, frame[1:])
            case b"Q":
                self._finished.add(peer)
            case b"X":
                lost, reason = json.loads(frame[1:])
                raise PeerLost(str(lost), str(reason))
            case _:
                raise WireError("doorbell", f"{peer!r} rang in an unknown way")

    def _read(self, peer: str, bell: bytes) -> None:
        if len(bell) != _BELL.size:
            raise WireError("doorbell", f"{peer!r} rang with {len(bell)} bytes")
        total, place, size = _BELL.unpack(bell)
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
            check_prefix(bytes(whole[: PREFIX.size].numpy()), self.max_body)
            message = decode(whole, self.kinds[peer], self.max_body, self._device)
            if message.sender != peer:
                raise WireError("sender", f"is {message.sender!r} on the wire of {peer!r}")
            self._arrived[peer].append(message)
        self._say(peer, b"A")

    def _piece(self, peer: str, arena: _Incoming, piece: Tensor, total: int) -> Tensor | None:
        if arena.whole is None:
            check_prefix(bytes(piece[: PREFIX.size].numpy()), self.max_body)
            arena.whole, arena.filled = torch.empty(total, dtype=torch.uint8), 0
        if len(arena.whole) != total or arena.filled + len(piece) > total:
            raise WireError("doorbell", f"{peer!r} sent pieces of different messages")
        arena.whole[arena.filled : arena.filled + len(piece)] = piece
        arena.filled += len(piece)
        if arena.filled < total:
            return None
        whole, arena.whole = arena.whole, None
        return whole

    def abort(self, reason: str, lost: str | None = None) -> None:
        frame = b"X" + json.dumps([lost or self.me, reason[:1000]]).encode()
        for peer in self.peers:
            try:
                self._pipes[peer].send_bytes(frame)
            except OSError:
                continue  # that peer is gone already

    def close(self) -> None:
        super().close()
        for peer in self.peers:
            try:
                self._pipes[peer].send_bytes(b"Q")
            except OSError:
                continue


def process_links(wires: Mapping[str, Wires]) -> dict[str, ProcessLink]:
    """Links over the same wires inside one process, for tests and benchmarks."""
    return {name: ProcessLink(ends) for name, ends in wires.items()}
