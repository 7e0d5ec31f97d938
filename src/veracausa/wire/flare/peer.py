"""What a party knows of one peer in an attempt, and how it reads the words that the peer says."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field

from torch import Tensor

from veracausa.errors import WireError
from veracausa.wire.flare.frames import Assembly, Header, Incoming, Outgoing
from veracausa.wire.flare.session import Session

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
