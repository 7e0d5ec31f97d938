"""What the engine may look at: frames between members, and nothing else that FLARE's cells could send each other."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from veracausa.wire.flare.frames import HEADER

if TYPE_CHECKING:
    from veracausa.federation.members import Network

CHANNEL, TOPIC = "veracausa", "frame"
SLACK = 1 << 16
"""Bytes that a frame may have beyond a piece of a message."""


class FrameGate:
    """Says what is wrong with a message that came over the connection of a cell."""

    def __init__(self, me: str, network: Network) -> None:
        self._me, self._network = me, network
        self._max_frame = (network.wire.chunk_kib << 10) + SLACK
        self.cells = {network.cell(name) for name in network.members}

    def problem(self, came_from: str, message: Any) -> str:
        """Why the message is not let through; empty: it is a frame between members."""
        parts = engine()
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
def engine() -> Any:
    """What FLARE calls the parts of a message; not there in every installation, and looked up for every frame."""
    from nvflare.fuel.f3.cellnet import defs

    return defs
