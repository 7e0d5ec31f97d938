"""The handshake of an attempt: every party makes a session with each of its peers.

Of two parties the one whose name comes first leads. The other asks for an offer. The leader offers a key, the other
answers with its own key and a proof, and the leader confirms with a proof. A relay could invent anything that comes
before a proof, so nothing that was proved is given up for it. `Waiting` reports whom a party waits for, and why.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from veracausa.errors import WireError
from veracausa.events import Event, Observer
from veracausa.wire.flare.frames import NO_SESSION, NUMBERED, FrameType, Header
from veracausa.wire.flare.link import FlareLink
from veracausa.wire.flare.session import Opening, Session, pack, unpack

if TYPE_CHECKING:
    from veracausa.wire.network import NetworkOptions


MAX_OFFERS = 3
"""Offers of one peer that are remembered: it may have come anew, or a relay may have made one up."""
OFFERS_APART = 0.1
"""Seconds between two different offers of one peer that are both answered: each costs a signature."""
MAX_EARLY = 16 << 20
"""Bytes of one peer that are kept until the last party is here; what is more will be sent again."""

Early = tuple[Header, memoryview, bytes]


@dataclass
class _PeerState:
    """How far the handshake with one peer has come."""

    opening: Opening
    """What is offered; no key is offered again once it was answered."""
    session: Session | None = None
    answer: bytes = b""
    """What the session was made of, where this party leads."""
    proof: bytes = b""
    confirmed: bool = False
    """Whether the peer is known to have the session, too."""
    offers: dict[bytes, tuple[Opening, bytes]] = field(default_factory=dict)
    """Where the peer leads: the keys that it offered, oldest first, with what was answered."""
    offered_at: float = 0.0
    early: list[Early] = field(default_factory=list)
    early_bytes: int = 0


class Handshake:
    """Makes sessions with all peers, whoever comes first."""

    def __init__(
        self,
        peers: Sequence[str],
        life: bytes,
        open_to: Callable[[str], Opening],
        send: Callable[[str, FrameType, bytes], None],
        transmit: Callable[[str, bytes], bool],
    ) -> None:
        self._life, self._open_to, self._send, self._transmit = life, open_to, send, transmit
        self._states = {peer: _PeerState(open_to(peer)) for peer in peers}
        self._changed = threading.Condition()
        self._link: FlareLink | None = None

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def sessions(self) -> dict[str, Session]:
        """With each peer that is known to have one, too."""
        with self._changed:
            return {peer: state.session for peer, state in self._states.items() if state.session and state.confirmed}

    def call(self, peer: str) -> None:
        """Try again to reach a peer with what comes next."""
        state = self._states[peer]
        if not state.opening.leads:
            self._send(peer, FrameType.POKE, pack(life=self._life))
        elif state.session is not None:
            self._send(peer, FrameType.CONFIRM, state.proof)
        else:
            self._send(peer, FrameType.OFFER, state.opening.offer())

    def take(self, peer: str, frame_type: FrameType, body: memoryview) -> None:
        state = self._states.get(peer)
        if state is None:
            raise WireError("session", f"{peer!r} has no part in this job")
        if state.opening.leads is (frame_type in (FrameType.OFFER, FrameType.CONFIRM)):
            raise WireError("session", f"{peer!r} sent the {frame_type.name.lower()} that is this party's to send")
        if frame_type is FrameType.POKE:
            self._poked(peer, state, unpack(body, ("life",))["life"])
        elif frame_type is FrameType.OFFER:
            self._offered(peer, state, unpack(body, ("key", "life")))
        elif frame_type is FrameType.ANSWER:
            self._answered(peer, state, bytes(body))
        else:
            self._confirmed(peer, state, bytes(body))

    def _poked(self, peer: str, state: _PeerState, life: bytes) -> None:
        with self._changed:
            known = state.session is not None and state.session.life == life and state.confirmed
            offer = state.opening.offer()
        if not known:
            self._send(peer, FrameType.OFFER, offer)

    def _offered(self, peer: str, state: _PeerState, offer: Mapping[str, bytes]) -> None:
        key, life = offer["key"], offer["life"]
        with self._changed:
            if key not in state.offers:
                now = time.monotonic()
                if now - state.offered_at < OFFERS_APART:
                    return  # a peer offers again and again
                state.offered_at = now
                opening = self._open_to(peer)
                state.offers[key] = (opening, opening.proof(key, life))
                while len(state.offers) > MAX_OFFERS:
                    del state.offers[next(iter(state.offers))]
            proof = state.offers[key][1]
        self._send(peer, FrameType.ANSWER, proof)

    def _answered(self, peer: str, state: _PeerState, answer: bytes) -> None:
        with self._changed:
            if answer != state.answer:
                fields = unpack(answer, ("key", "life", "pem", "signature"))
                session = state.opening.session(answer)
                state.proof = state.opening.proof(fields["key"], fields["life"])
                state.session, state.answer, state.confirmed = session, answer, False
                state.early, state.early_bytes = [], 0
                state.opening = self._open_to(peer)
            proof = state.proof
        self._send(peer, FrameType.CONFIRM, proof)

    def _confirmed(self, peer: str, state: _PeerState, proof: bytes) -> None:
        key = unpack(proof, ("key", "life", "pem", "signature"))["key"]
        with self._changed:
            if key not in state.offers:
                raise WireError("session", f"{peer!r} confirms what was not offered")
            session = state.offers[key][0].session(proof)
            if state.session is None or state.session.id != session.id:
                state.session, state.early, state.early_bytes = session, [], 0
            # What was offered before is over.
            for older in list(state.offers):
                if older == key:
                    break
                del state.offers[older]
            state.confirmed = True
            session = state.session
            self._changed.notify_all()
        head = Header(FrameType.STATE, session.id).pack()
        self._transmit(peer, head + session.note(head, bytes(8)))

    def knows(self, peer: str, session: bytes) -> bool:
        state = self._states.get(peer)
        return session != NO_SESSION and state is not None and state.session is not None and state.session.id == session

    def on_frame(self, peer: str, header: Header, body: memoryview, head: bytes, direct: bool) -> None:
        """A first frame of a session shows that the peer has it; what is more is kept until the link is there."""
        state = self._states[peer]
        with self._changed:
            if state.session is None or state.session.id != header.session:
                return
            if not direct and not state.session.sealed:
                raise WireError("frame", f"of {peer!r} came over a relay and is not sealed")
            state.confirmed = True
            self._changed.notify_all()
            link = self._link
            if link is None and header.type in NUMBERED and state.early_bytes + len(body) <= MAX_EARLY:
                state.early.append((header, body, head))
                state.early_bytes += len(body) + (1 << 10)
        if link is not None:
            link.on_frame(peer, header, body, head)

    def hand_over(self, link: FlareLink) -> None:
        """From now on the link hears everything, beginning with what came early."""
        with self._changed:
            self._link = link
            early = [(peer, *frame) for peer, state in self._states.items() for frame in state.early]
        for peer, header, body, head in early:
            link.on_frame(peer, header, body, head)


FIRST, LONGEST = 10.0, 300.0
"""Seconds until the same is reported once more: at first, and at most."""
GRACE = 3.0
"""Seconds without the serving member's connection until it counts as out of reach: it is dialled again meanwhile."""
PROBE_S = 1.0


class Waiting:
    """Tells of one meeting and of what follows it; `connected` says whether the serving member's cell is."""

    def __init__(
        self,
        me: str,
        network: NetworkOptions,
        connected: Callable[[], bool],
        notify: Observer,
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
            self._tell(("waiting", *peers), lambda: {"event": "waiting", "peers": list(peers), "seconds": since})

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

    def _tell(self, key: tuple[str, ...], event: Callable[[], Event]) -> None:
        now = self._clock()
        if key != self._key:
            self._key, self._pause = key, FIRST
        elif now < self._next:
            return
        else:
            self._pause = min(LONGEST, 2 * self._pause)
        self._next = now + self._pause
        self._notify(event())


_FIXES = {
    errno.EADDRINUSE: "another program has this port; stop it, or open another port with --listen HOST:PORT",
    errno.EACCES: "this user may not open it; take a port above 1023 with --listen HOST:PORT",
    errno.EADDRNOTAVAIL: "this machine does not have that address; give one that it has with --listen 0.0.0.0:PORT",
}


def not_opened(address: str, error: BaseException) -> str:
    """The sentence for a port that could not be opened."""
    if isinstance(error, socket.gaierror):
        return f"cannot listen at {address}: no such host; give an address of this machine with --listen HOST:PORT"
    number = getattr(error, "errno", None)
    fix = _FIXES.get(number) if number is not None else None
    return f"cannot listen at {address}: {fix or f'{error}; open another one with --listen HOST:PORT'}"


def not_reached(address: str, patience: float = 3.0) -> str:
    """Why a port cannot be dialled; where it can, that who listens there does not let this member in."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), patience).close()
    except socket.gaierror:
        return "no such host"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return str(error.strerror or error).lower()
    return "the port answers, but does not let this member in (its certificate may be revoked or expired there)"
