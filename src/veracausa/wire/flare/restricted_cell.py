"""FLARE's cell, restricted: it talks to members only, and reads frames only.

All else that cells could ask of each other is refused before the engine looks at it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgpack

from veracausa.wire.flare.engine import (
    FQCN,
    PREFIX_LEN,
    CellIdentityResolver,
    CellMessage,
    CoreCell,
    Encoding,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    Mode,
    Prefix,
    ReturnCode,
    SfmConnection,
    SfmFrameReceiver,
    StatsPoolManager,
    Types,
)

STRAIGHT = "straight"
"""The header of a message that must not pass a relay."""
IN_WORK = 64 << 20
"""Bytes of one connection that may wait for a thread; then nothing more is read from it for a while."""
_COST = 1 << 10

Gate = Callable[[str, Any], bool]
"""Whether the engine may see a message that came over the connection of the cell named."""
MessageHandler = Callable[[Any], None]
"""Takes a message that is for here."""


class RestrictedCell(CoreCell):  # type: ignore[misc, unused-ignore]
    """Connects to the cells of members only, shows the engine nothing that the gate refuses, and keeps no statistics.

    FLARE counts messages by channel and topic before any of its own filters is asked: whoever invents topics fills its
    memory.
    """

    def __init__(
        self,
        name: str,
        url: str,
        credentials: dict[str, str],
        members: Mapping[str, str],
        gate: Gate,
        on_message: MessageHandler,
        brief: Callable[[Any], bool],
    ) -> None:
        """`brief` says of a message that is for here whether taking it is short work in which nothing is sent."""
        super().__init__(name, url, True, credentials, auth_identity=members[name], auth_identity_map=dict(members))
        self._gate, self._on_message, self._brief = gate, on_message, brief
        self.logger.setLevel(logging.CRITICAL)  # named after this class, it would speak for this package
        for pool in [attribute for attribute in vars(self) if attribute.endswith("_pool")]:
            setattr(self, pool, _NoStatistics())
        StatsPoolManager.pools.clear()  # or no third cell of this name could be made in this process
        connections = self.communicator.conn_manager
        connections.identity_resolver = _MembersOnly(members)
        self._workers = connections.process_frame = _Workers(connections)
        connections.handle_new_connection = partial(_greet, connections)

    def process_message(self, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
        """In the thread that reads the connection: what is brief is done at once, the rest by the engine's threads.

        That thread must never send. Two parties that both wait for the other to read would stand still.
        """
        if not self._gate(str(endpoint.name), message):
            return
        message.set_prop(MessagePropKey.ENDPOINT, endpoint)
        size = len(message.payload)
        if message.get_header(MessageHeaderKey.DESTINATION) != self.my_info.fqcn:
            self._workers.add(connection, size, super().process_message, endpoint, connection, app_id, message)
        elif self._brief(message):
            self._on_message(message)
        else:
            self._workers.add(connection, size, self._on_message, message)

    def fire_and_forget(
        self, channel: str, topic: str, targets: str, message: Any, secure: bool = False, optional: bool = False
    ) -> dict[str, str]:
        """To one cell, over its own connection or the server's; FLARE's own does much that frames do not need."""
        agent = self.agents.get(targets) or self.agents.get(FQCN.ROOT_SERVER)
        # When a direct connection is down FLARE would go over the server without a word.
        if agent is None or (agent.endpoint.name != targets and message.get_header(STRAIGHT)):
            return {targets: str(ReturnCode.TARGET_UNREACHABLE)}
        me = self.my_info.fqcn
        message.add_headers(
            {
                MessageHeaderKey.CHANNEL: channel,
                MessageHeaderKey.TOPIC: topic,
                MessageHeaderKey.FROM_CELL: me,
                MessageHeaderKey.TO_CELL: agent.endpoint.name,
                MessageHeaderKey.ORIGIN: me,
                MessageHeaderKey.DESTINATION: targets,
                MessageHeaderKey.MSG_TYPE: MessageType.REQ,
                MessageHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES,
                MessageHeaderKey.ROUTE: [(me, time.time())],
            }
        )
        try:
            self.communicator.send(agent.endpoint, self.APP_ID, message)
        except Exception:  # the connection broke, of which there are many signs; the frame is sent again
            return {targets: str(ReturnCode.COMM_ERROR)}
        return {targets: ""}

    def stop(self) -> None:
        self.agents.clear()  # nobody is asked to answer a farewell: that the connection closes says it
        super().stop()


class _MembersOnly(CellIdentityResolver):  # type: ignore[misc, unused-ignore]
    """Knows the members' cells and no others; FLARE would also take any `member.anything`."""

    def __init__(self, members: Mapping[str, str]) -> None:
        super().__init__()
        self._members = dict(members)

    def resolve(self, fqcn: str) -> str | None:
        return self._members.get(fqcn)

    def require_match(self, fqcn: str, peer_cn: str, peer_desc: str) -> None:
        if not peer_cn or self._members.get(fqcn) != peer_cn:
            raise ValueError(f"{peer_desc} is not that of {fqcn!r}")


class _Parted(SfmConnection):  # type: ignore[misc, unused-ignore]
    """Sends the head of a frame and what it carries one after the other; FLARE makes one piece of them first."""

    def send_frame(self, prefix: Prefix, headers: dict[str, Any] | None, payload: Any) -> None:
        packed = msgpack.packb(headers) if headers else b""
        head = bytearray(PREFIX_LEN)
        prefix.header_len, prefix.sequence = len(packed), self.next_sequence()
        prefix.length = PREFIX_LEN + len(packed) + len(payload or b"")
        prefix.to_buffer(head, 0)
        head += packed
        send_parts = getattr(self.conn, "send_parts", None)
        with self.lock:  # or frames of two threads would be mixed
            with self.send_state_lock:
                self.send_started_at = time.monotonic()
            try:
                if send_parts is None or not payload:
                    self.conn.send_frame(b"".join((head, payload or b"")))
                else:
                    send_parts(head, memoryview(payload))
            finally:
                with self.send_state_lock:
                    self.send_started_at = 0.0


def _greet(connections: Any, connection: Any) -> None:
    """What FLARE does with a new connection, with frames in parts."""
    parted = _Parted(connection, connections.local_endpoint)
    with connections.lock:
        connections.sfm_conns[parted.get_name()] = parted
    connection.register_frame_receiver(SfmFrameReceiver(connections, parted))
    if connection.connector.mode == Mode.ACTIVE:
        parted.send_handshake(Types.HELLO)


def _headers(packed: memoryview) -> dict[str, Any] | None:
    """What a peer sent as headers; none where it cannot be read, which the gate refuses and counts."""
    try:
        headers = msgpack.unpackb(packed)
    except Exception:  # msgpack raises a family of its own on malformed bytes
        return None
    return headers if isinstance(headers, dict) else None


class _NoStatistics:
    def record_value(self, category: str, value: float) -> None: ...

    def increment(self, category: str, counter_name: str, amount: int = 1) -> None: ...


class _Workers:
    """Hands work to the engine's threads, and holds up the connection that brings it faster than it is done."""

    def __init__(self, connections: Any) -> None:
        self._connections = connections
        self._changed = threading.Condition()

    def __call__(self, connection: Any, frame: Any) -> None:
        """Every frame that was read; greetings at once, as what follows one belongs to whom it names."""
        view = memoryview(frame)  # its parts are then no copies
        prefix = Prefix.from_bytes(view)
        if prefix.type == Types.PING:
            self.add(connection, len(view), self._connections.process_frame_task, connection, view)
            return
        if prefix.type != Types.DATA:
            self._connections.process_frame_task(connection, view)
            return
        start = PREFIX_LEN + prefix.header_len
        receiver = self._connections.receivers.get(prefix.app_id)
        if receiver is not None and connection.sfm_endpoint is not None:
            message = CellMessage(_headers(view[PREFIX_LEN:start]), view[start:])
            receiver.process_message(connection.sfm_endpoint.endpoint, connection.conn, prefix.app_id, message)

    def add(self, connection: Any, size: int, work: Callable[..., object], *args: object) -> None:
        cost = size + _COST
        waiting = vars(connection)
        with self._changed:
            while waiting.setdefault("in_work", 0) > IN_WORK and not self._connections.stopped:
                self._changed.wait(1.0)
            waiting["in_work"] += cost
        try:
            self._connections.frame_mgr_executor.submit(self._run, connection, cost, work, args)
        except RuntimeError:  # the engine has stopped
            self._done(connection, cost)

    def _run(self, connection: Any, cost: int, work: Callable[..., object], args: tuple[object, ...]) -> None:
        try:
            work(*args)
        finally:
            self._done(connection, cost)

    def _done(self, connection: Any, cost: int) -> None:
        with self._changed:
            connection.in_work -= cost
            self._changed.notify_all()
