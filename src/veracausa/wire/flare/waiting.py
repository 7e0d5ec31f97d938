"""Whom a party waits for, told at once and then ever more rarely, and whether the serving member can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veracausa.wire.listening import not_reached

if TYPE_CHECKING:
    from veracausa.federation.members import Network

FIRST, LONGEST = 10.0, 300.0
"""Seconds until the same is told once more: at first, and at most."""
GRACE = 3.0
"""Seconds without the serving member's connection until it counts as out of reach: it is dialled again meanwhile."""
PROBE_S = 1.0

Notify = Callable[[Mapping[str, Any]], None]


class Waiting:
    """Tells of one meeting and of what follows it; `connected` says whether the serving member's cell is."""

    def __init__(
        self,
        me: str,
        network: Network,
        connected: Callable[[], bool],
        notify: Notify,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._me, self._network, self._connected, self._notify = me, network, connected, notify
        self._clock = clock
        self._start = self._gone = clock()
        self._key: tuple[str, ...] = ()
        self._next = self._pause = 0.0

    @property
    def address(self) -> str:
        """Where the serving member is dialled."""
        return str(self._network.members[self._network.server].address)

    def out_of_reach(self, peers: Sequence[str]) -> bool | None:
        """Whether peers cannot be reached because the serving member cannot; None: that will be seen soon."""
        server, now = self._network.server, self._clock()
        if self._me == server or self._connected():
            self._gone = now
            return False
        if not any(peer == server or self._network.relayed(self._me, peer) for peer in peers):
            return False
        return True if now - self._gone > GRACE else None

    def absent(self, peers: Sequence[str]) -> None:
        """These have not come yet."""
        out = self.out_of_reach(peers)
        if out:
            self._unreachable()
        elif out is False:
            since = self._clock() - self._start
            self._tell(("waiting", *peers), lambda: {"event": "waiting", "for": list(peers), "seconds": since})

    def under_way(self, peers: Sequence[str]) -> None:
        """All have come; what they say may still pass the serving member."""
        out = self.out_of_reach(peers)
        if out:
            self._unreachable()
        elif out is False and self._key[:1] == ("unreachable",):
            self._key = ()
            self._notify({"event": "reached", "member": self._network.server, "at": self.address})

    def _unreachable(self) -> None:
        self._tell(
            ("unreachable",),
            lambda: {
                "event": "unreachable",
                "member": self._network.server,
                "at": self.address,
                "why": not_reached(self.address, PROBE_S),
                "seconds": self._clock() - self._gone,
            },
        )

    def _tell(self, key: tuple[str, ...], event: Callable[[], Mapping[str, Any]]) -> None:
        now = self._clock()
        if key != self._key:
            self._key, self._pause = key, FIRST
        elif now < self._next:
            return
        else:
            self._pause = min(LONGEST, 2 * self._pause)
        self._next = now + self._pause
        self._notify(event())
