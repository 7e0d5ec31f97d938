"""FLARE's cell with a guard before everything that a peer could reach or fill."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver

STRAIGHT = "straight"
"""The header of a message that must not pass a relay."""
IN_WORK = 64 << 20
"""Bytes of one connection that may wait for a thread; then nothing more is read from it for a while."""
_COST = 1 << 10

Gate = Callable[[str, Any], bool]
"""Whether the engine may see a message that came over the connection of the cell named."""


class GuardedCell(CoreCell):  # type: ignore[misc, unused-ignore]
    """Connects to the cells of members only, shows the engine nothing that the gate refuses, and keeps no statistics.

    FLARE counts messages by channel and topic before any of its own filters is asked: whoever invents topics fills its
    memory.
    """

    def __init__(
        self, name: str, url: str, credentials: dict[str, str], members: Mapping[str, str], gate: Gate
    ) -> None:
        super().__init__(name, url, True, credentials, auth_identity=members[name], auth_identity_map=dict(members))
        self._gate = gate
        self.logger.setLevel(logging.CRITICAL)  # named after this class, it would speak for this package
        for pool in [attribute for attribute in vars(self) if attribute.endswith("_pool")]:
            setattr(self, pool, _NoStatistics())
        connections = self.communicator.conn_manager
        connections.identity_resolver = _MembersOnly(members)
        connections.process_frame = _Bounded(connections)

    def process_message(self, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
        if self._gate(str(endpoint.name), message):
            super().process_message(endpoint, connection, app_id, message)

    def _send_to_endpoint(self, to_endpoint: Any, message: Any) -> str:
        # When a direct connection is down FLARE goes over the server without a word.
        if message.get_header(STRAIGHT) and to_endpoint.name != message.get_header(MessageHeaderKey.DESTINATION):
            return str(ReturnCode.TARGET_UNREACHABLE)
        return str(super()._send_to_endpoint(to_endpoint, message))

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


class _NoStatistics:
    def record_value(self, category: str, value: float) -> None: ...

    def increment(self, category: str, counter_name: str, amount: int = 1) -> None: ...


class _Bounded:
    """Hands frames to the engine's threads, and holds up the connection that brings them faster than they are taken."""

    def __init__(self, connections: Any) -> None:
        self._connections = connections
        self._work = connections.process_frame_task
        self._changed = threading.Condition()

    def __call__(self, connection: Any, frame: Any) -> None:
        cost = len(frame) + _COST
        waiting = vars(connection)
        with self._changed:
            while waiting.setdefault("in_work", 0) > IN_WORK and not self._connections.stopped:
                self._changed.wait(1.0)
            waiting["in_work"] += cost
        try:
            self._connections.frame_mgr_executor.submit(self._run, connection, frame, cost)
        except RuntimeError:  # the engine has stopped
            self._done(connection, cost)

    def _run(self, connection: Any, frame: Any, cost: int) -> None:
        try:
            self._work(connection, frame)
        finally:
            self._done(connection, cost)

    def _done(self, connection: Any, cost: int) -> None:
        with self._changed:
            connection.in_work -= cost
            self._changed.notify_all()
