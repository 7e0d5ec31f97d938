"""What a party knows of each peer in an attempt, and how its frames go out to them.

Frames are numbered and kept until the peer has read them. A thread of its own sends large messages.
"""

from __future__ import annotations

import json
import logging
import queue
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from veracausa.errors import PeerLost, WireError
from veracausa.escaping import escaped
from veracausa.wire.codec import Layout
from veracausa.wire.flare.frames import HEADER, Assembly, Frame, FrameType, Header, Incoming, Outgoing
from veracausa.wire.flare.session import Session
from veracausa.wire.link import silent_party
from veracausa.wire.memory import copy_bytes

_WORDS = 1 << 14
_HELD = 64


@dataclass
class Peer:
    """The state of one peer in this attempt."""

    session: Session
    out: Outgoing
    incoming: Incoming
    assembly: Assembly
    inbox: deque[tuple[Tensor, int]] = field(default_factory=deque)
    """Whole messages as bytes, and how many frames have been read with each."""
    unacknowledged: int = 0
    """Frames that were read and not acknowledged yet."""
    freed: int = 0
    """Bytes of frames that were read as they came and not acknowledged yet."""
    suspected_at: float = 0.0
    """Since when a relay has claimed that it restarted; 0: it has not."""
    arrived_there: int = 0
    asked_at: float = 0.0
    moved_at: float = 0.0
    stuck: int = -1
    """How many frames had arrived there at the last probe."""
    probe: int = 0
    latency: float | None = None
    heard_at: float = 0.0
    finished: bool = False
    held: set[int] = field(default_factory=set)
    """Steps of which it has announced a checkpoint."""
    step: int = 0

    def acknowledge(self, header: Header) -> bool:
        """Take in how far the peer has read; whether that is further than before."""
        moved = self.out.was_read(header.read, header.arrived)
        if header.arrived > self.arrived_there:
            self.arrived_there = header.arrived
            moved = True
        if moved:
            self.moved_at = time.monotonic()
        return moved

    def holds(self, step: str) -> None:
        """Take in that it holds a checkpoint; only the newest are remembered."""
        if not step.isdecimal() or len(step) > 15:
            raise WireError("words", "hold no step")
        self.held = {*sorted(self.held)[-_HELD:], int(step)}


def read_control(body: memoryview) -> dict[str, str]:
    """A control message of a peer. It is refused unless it is a short map of texts."""
    try:
        if len(body) > _WORDS:
            raise ValueError
        words = json.loads(bytes(body))
        if not isinstance(words, dict) or not all(isinstance(word, str) for word in words.values()):
            raise ValueError
    except (ValueError, RecursionError):
        raise WireError("words", "cannot be read") from None
    return words


log = logging.getLogger(__name__)


class Peers:
    """All peers of an attempt, who is lost and who waits for whom; `changed` guards it and wakes those who wait."""

    def __init__(self, me: str, sessions: Mapping[str, Session], timeout: float, window: int, max_body: int) -> None:
        self.me, self.timeout, self.window = me, timeout, window
        now = time.monotonic()
        self.of = {
            peer: Peer(session, Outgoing(window), Incoming(window), Assembly(max_body), moved_at=now, heard_at=now)
            for peer, session in sessions.items()
        }
        self.changed = threading.Condition()
        self.lost: PeerLost | None = None
        self.waits: dict[str, str] = {}
        """For each party, whom it waits for as far as it has announced that."""
        self.refused: Counter[str] = Counter()
        """How often each peer sent something that could not be taken."""
        self.stale: Counter[str] = Counter()
        """How many stale frames of each peer came: repeated ones, or ones from before a restart."""
        self._last_refusal: dict[str, str] = {}
        self.step = 0
        """The furthest step that this party has sent something of."""

    def refuse(self, peer: str, error: WireError) -> None:
        """Count and log a refused frame. The party continues."""
        with self.changed:
            self.refused[peer] += 1
            count = self.refused[peer]
            self._last_refusal[peer] = problem = escaped(str(error).removeprefix("message refused: "))
        if count <= 20 or count % 1000 == 0:
            log.warning("refused from %s (%d so far): %s", peer, count, problem)

    def count_stale(self, peer: str) -> None:
        """Count a stale frame. A network that repeats frames, and an honest restart, bring such frames, too."""
        with self.changed:
            self.stale[peer] += 1

    def lose(self, peer: str, reason: str) -> None:
        """From now on every wait ends with this peer's loss."""
        with self.changed:
            self.lost = self.lost or PeerLost(peer, reason)
            self.changed.notify_all()

    def check_alive(self, peer: str) -> None:
        """Raises `PeerLost` where somebody is lost, or this peer has left."""
        if self.lost is not None:
            raise PeerLost(self.lost.peer, self.lost.reason)
        if self.of[peer].finished:
            raise PeerLost(peer, "it had already finished")

    def blamed_for(self, awaited: str) -> str:
        """Who keeps this party waiting: the last of the chain of those who wait for each other."""
        return silent_party(awaited, {**self.waits, self.me: awaited})

    def silence_of(self, lost: str) -> PeerLost:
        """The loss of a peer that was silent for too long, with what was refused of it."""
        why = f"silent for {self.timeout:g} s"
        if lost in self._last_refusal:
            why += f"; {self.refused[lost]} of its frames were refused, the last one: {self._last_refusal[lost]}"
        return PeerLost(lost, why)


Transmit = Callable[[str, Frame], bool]
"""Gives a frame to the engine for a peer; whether it took it. What it did not take is sent again."""

SMALL = 1 << 19
"""Bytes of a message that is sent at once; larger ones by a thread, while the party computes on."""
STEP = struct.Struct("<Q")
"""What a state and a probe say beside their head: the sender's step."""


class Sender:
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

    def send_message(self, peer: str, plan: Layout) -> None:
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

    def send_state(self, peer: str, frame_type: FrameType, number: int = 0) -> None:
        """Say how far this party has read, or ask the same."""
        own = self._peers.of[peer]
        with self._peers.changed:
            head = _head(own, frame_type, number)
        self._transmit(peer, head + own.session.note(head, STEP.pack(self._peers.step)))

    def probe(self, peer: str) -> None:
        """Ask a peer how far it has read."""
        own = self._peers.of[peer]
        with self._peers.changed:
            own.probe += 1
            own.asked_at = time.monotonic()
            number = own.probe
        self.send_state(peer, FrameType.PROBE, number)

    def send_control(self, peer: str, words: Mapping[str, str]) -> None:
        """Words arrive like messages do, but never wait for room."""
        text = json.dumps(words).encode()
        self._numbered(peer, FrameType.CONTROL, bytearray(HEADER.size) + text, wait=False)

    def announce_waiting(self, awaited: str) -> None:
        """Let everybody know whom this party waits for; nobody: an empty name."""
        for peer in self._peers.of:
            self.send_control(peer, {"awaits": awaited})

    def resend(self, peer: str, frames: Iterable[Frame]) -> None:
        """Send frames once more that may be lost."""
        for frame in frames:
            if not self._transmit(peer, frame):
                break

    def finish(self) -> None:
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

    def _numbered(self, peer: str, frame_type: FrameType, frame: bytearray | memoryview, wait: bool = True) -> None:
        """Number a frame whose head is still empty, keep it until it was read, and send it."""
        own = self._peers.of[peer]
        if wait:
            self._wait_for_room(own, peer, len(frame))
        with self._locks[peer]:
            with self._peers.changed:
                number = own.out.number()
                head = _head(own, frame_type, number)
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
        peers, start, announced = self._peers, time.monotonic(), False
        with peers.changed:
            peers.check_alive(peer)
            if own.out.has_room(size):
                return
        while True:
            with peers.changed:
                left = start + (peers.timeout if announced else peers.timeout / 2) - time.monotonic()
                room = peers.changed.wait_for(
                    lambda: own.out.has_room(size) or peers.lost or own.finished, max(0.0, left)
                )
                if room:
                    peers.check_alive(peer)
            if room:
                if announced:
                    self.announce_waiting("")
                return
            if announced:
                lost = peers.blamed_for(peer)
                raise (
                    PeerLost(peer, f"read nothing for {peers.timeout:g} s") if lost == peer else peers.silence_of(lost)
                )
            announced = True
            self.announce_waiting(peer)


def _head(own: Peer, frame_type: FrameType, number: int) -> bytes:
    """The head of a frame, which always says how far this party has read."""
    own.unacknowledged = own.freed = 0
    return Header(frame_type, own.session.id, number, own.incoming.read, own.incoming.arrived).pack()
