"""How a party's frames go out: numbered, kept until they were read, large messages by a thread of their own."""

from __future__ import annotations

import json
import queue
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from veracausa.errors import PeerLost
from veracausa.wire.codec import Layout
from veracausa.wire.flare.frames import HEADER, Frame, FrameType, Header
from veracausa.wire.flare.peers import Peer, Peers
from veracausa.wire.memory import copy_bytes

Transmit = Callable[[str, Frame], bool]
"""Gives a frame to the engine for a peer; whether it took it. What it did not take is sent again."""

SMALL = 1 << 19
"""Bytes of a message that is sent at once; larger ones by a thread, while the party computes on."""
STEP = struct.Struct("<Q")
"""What a state and a probe say beside their head: the sender's step."""


class Sending:
    """Messages, words and states to all peers of an attempt."""

    def __init__(self, peers: Peers, transmit: Transmit, chunk: int) -> None:
        self._peers, self._transmit, self._chunk = peers, transmit, chunk
        self._locks = {peer: threading.Lock() for peer in peers.of}
        self._large: queue.SimpleQueue[tuple[str, Tensor] | None] = queue.SimpleQueue()
        self._queued: Counter[str] = Counter()
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether every large message has gone out."""
        return not any(self._queued.values())

    def message(self, peer: str, plan: Layout) -> None:
        """Send a message, a large one in the background; one that follows a large one waits for its turn."""
        if plan.nbytes <= min(SMALL, self._chunk) and not self._queued[peer]:
            frame = torch.empty(HEADER.size + plan.nbytes, dtype=torch.uint8)
            plan.write(frame[HEADER.size :])
            self._numbered(peer, FrameType.PIECE, memoryview(frame.numpy()))  # type: ignore[arg-type]
            return
        whole = torch.empty(plan.nbytes, dtype=torch.uint8)
        plan.write(whole)
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_large, name=f"{self._peers.me} sends", daemon=True)
            self._thread.start()
        with self._peers.changed:
            self._queued[peer] += 1
        self._large.put((peer, whole))

    def tell(self, peer: str, sort: FrameType, number: int = 0) -> None:
        """Say how far this party has read, or ask the same."""
        own = self._peers.of[peer]
        with self._peers.changed:
            head = _head(own, sort, number)
        self._transmit(peer, head + own.session.note(head, STEP.pack(self._peers.step)))

    def ask(self, peer: str) -> None:
        """Ask a peer how far it has read."""
        own = self._peers.of[peer]
        with self._peers.changed:
            own.probe += 1
            own.asked_at = time.monotonic()
            number = own.probe
        self.tell(peer, FrameType.PROBE, number)

    def say(self, peer: str, words: Mapping[str, str]) -> None:
        """Words arrive like messages do, but never wait for room."""
        text = json.dumps(words).encode()
        self._numbered(peer, FrameType.WORDS, bytearray(HEADER.size) + text, wait=False)

    def whisper(self, awaited: str) -> None:
        """Let everybody know whom this party waits for; nobody: an empty name."""
        for peer in self._peers.of:
            self.say(peer, {"awaits": awaited})

    def again(self, peer: str, frames: Iterable[Frame]) -> None:
        """Send frames once more that may be lost."""
        for frame in frames:
            if not self._transmit(peer, frame):
                break

    def end(self) -> None:
        """The thread for large messages ends once it has sent what it has."""
        self._large.put(None)

    def _send_large(self) -> None:
        while (item := self._large.get()) is not None:
            peer, whole = item
            try:
                for start in range(0, len(whole), self._chunk):
                    piece = whole[start : start + self._chunk]
                    frame = torch.empty(HEADER.size + len(piece), dtype=torch.uint8)
                    copy_bytes(frame[HEADER.size :], piece)
                    self._numbered(peer, FrameType.PIECE, memoryview(frame.numpy()))  # type: ignore[arg-type]
            except PeerLost as lost:
                self._peers.lose(lost.peer, lost.reason)
            with self._peers.changed:
                self._queued[peer] -= 1
                self._peers.changed.notify_all()

    def _numbered(self, peer: str, sort: FrameType, frame: bytearray | memoryview, wait: bool = True) -> None:
        """Number a frame whose head is still empty, keep it until it was read, and send it."""
        own = self._peers.of[peer]
        if wait:
            self._wait_for_room(own, peer, len(frame))
        with self._locks[peer]:
            with self._peers.changed:
                number = own.out.number()
                head = _head(own, sort, number)
            if own.session.sealed:
                ready: Frame = own.session.seal_frame(number, head, memoryview(frame)[HEADER.size :])
            else:
                frame[: HEADER.size] = head
                ready = frame
            with self._peers.changed:
                if not own.out:
                    own.moved_at = time.monotonic()
                own.out.keep(number, ready)
        self._transmit(peer, ready)

    def _wait_for_room(self, own: Peer, peer: str, size: int) -> None:
        """Until the peer has read enough; nothing is locked meanwhile, so that words still go out."""
        peers, start, told = self._peers, time.monotonic(), False
        with peers.changed:
            peers.check_alive(peer)
            if own.out.has_room(size):
                return
        while True:
            with peers.changed:
                left = start + (peers.timeout if told else peers.timeout / 2) - time.monotonic()
                room = peers.changed.wait_for(
                    lambda: own.out.has_room(size) or peers.lost or own.finished, max(0.0, left)
                )
                if room:
                    peers.check_alive(peer)
            if room:
                if told:
                    self.whisper("")
                return
            if told:
                lost = peers.blamed_for(peer)
                raise (
                    PeerLost(peer, f"read nothing for {peers.timeout:g} s") if lost == peer else peers.silence_of(lost)
                )
            told = True
            self.whisper(peer)


def _head(own: Peer, sort: FrameType, number: int) -> bytes:
    """The head of a frame, which always says how far this party has read."""
    own.unsaid = own.freed = 0
    return Header(sort, own.session.id, number, own.incoming.read, own.incoming.arrived).pack()
