"""What a party knows of one peer in an attempt, and how it reads the words that the peer says."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from veracausa.errors import PeerLost, WireError
from veracausa.escaping import escaped
from veracausa.wire.flare.frames import Assembly, Header, Incoming, Outgoing
from veracausa.wire.flare.session import Session
from veracausa.wire.link import silent_party

_WORDS = 1 << 14
_HELD = 64


@dataclass
class Peer:
    """All about one peer in this attempt."""

    session: Session
    out: Outgoing
    incoming: Incoming
    assembly: Assembly
    inbox: deque[tuple[Tensor, int]] = field(default_factory=deque)
    """Whole messages as bytes, and how many frames have been read with each."""
    unsaid: int = 0
    """Frames that were read and that the peer does not know to be."""
    freed: int = 0
    """Bytes of frames that were read as they came and that the peer does not know to be."""
    doubted: float = 0.0
    """Since when it is said to have begun anew."""
    arrived_there: int = 0
    asked_at: float = 0.0
    moved_at: float = 0.0
    stuck: int = -1
    """What had arrived there when it was asked last."""
    probe: int = 0
    latency: float | None = None
    heard_at: float = 0.0
    finished: bool = False
    held: set[int] = field(default_factory=set)
    """Steps of which it said that it holds a checkpoint."""
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


def read_words(body: memoryview) -> dict[str, str]:
    """What a peer says beside its messages; refused unless it is a short map of texts."""
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
        """For each party whom it has said to wait for."""
        self.refused: Counter[str] = Counter()
        """How often each peer sent something that could not be taken."""
        self.stale: Counter[str] = Counter()
        """How often something of each peer came that was true once: twice, or left over from before a restart."""
        self._last_refusal: dict[str, str] = {}
        self.step = 0
        """The furthest step that this party has sent something of."""

    def refuse(self, peer: str, error: WireError) -> None:
        """Count and log what was not taken; the party goes on."""
        with self.changed:
            self.refused[peer] += 1
            count = self.refused[peer]
            self._last_refusal[peer] = problem = escaped(str(error).removeprefix("message refused: "))
        if count <= 20 or count % 1000 == 0:
            log.warning("refused from %s (%d so far): %s", peer, count, problem)

    def pass_over(self, peer: str) -> None:
        """Count what was true once; a network that doubles and an honest restart bring such frames, too."""
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
        """The loss of a peer that said nothing in time, with what it said that was refused."""
        why = f"silent for {self.timeout:g} s"
        if lost in self._last_refusal:
            why += f"; {self.refused[lost]} of its frames were refused, the last one: {self._last_refusal[lost]}"
        return PeerLost(lost, why)
