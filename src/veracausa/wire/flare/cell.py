"""One organisation's cell: it dials the serving member, refuses strangers, and makes sessions with its peers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from veracausa.errors import InputError, PeerLost, WireError
from veracausa.escaping import escaped
from veracausa.events import Observer
from veracausa.wire.credentials import RELOAD_S, Credentials, DenyList
from veracausa.wire.flare.frames import (
    CHANNEL,
    HEADER,
    OF_A_SESSION,
    TOPIC,
    Frame,
    FrameGate,
    FrameType,
    Header,
    StaleFrame,
    flare_names,
    parse,
)
from veracausa.wire.flare.handshake import Handshake, Waiting, not_opened
from veracausa.wire.flare.link import FlareLink
from veracausa.wire.flare.session import Opening, PeerIdentity, new_life, unpack

if TYPE_CHECKING:
    from veracausa.wire.network import NetworkOptions

log = logging.getLogger(__name__)

TICK = 0.25
OFTEN, SELDOM = 0.2, 2.0
"""Seconds between two tries to reach a peer, at first and after a while."""
BRIEF = 1 << 19
"""Bytes of a frame that the thread which reads a connection takes itself; it is read on meanwhile while larger ones
are taken by others."""
OPEN_S = 20.0
"""Seconds in which the engine must have tried to open a port."""
EARLIER = 8
"""Sessions of before a restart that are remembered for each peer."""


class FlareSite:
    """One member's place in the network.

    Only frames of members cross. A frame counts as its sender's if it came over the connection that the sender's
    certificate opened, or if it is sealed with the keys of a session.
    """

    def __init__(
        self,
        me: str,
        network: NetworkOptions,
        credentials: Credentials,
        listen: str | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.me, self.network = me, network
        self.listen = listen
        """`host:port` to open here, where the address that the others dial is forwarded to it."""
        self.refused: Counter[str] = Counter()
        """Frames that could not be taken, by the cell that they came from."""
        self.stale: Counter[str] = Counter()
        """Frames of sessions from before a restart, by the member that they came from: no harm is meant by them."""
        self._earlier: dict[str, deque[bytes]] = {name: deque(maxlen=EARLIER) for name in network.members}
        self._credentials, self._device = credentials, device
        self._identity = PeerIdentity(me, credentials)
        self._link: FlareLink | None = None
        self._meeting: Handshake | None = None
        self._frames = FrameGate(me, network)
        self._deny_list, self._looked = DenyList(credentials.denied), 0.0
        self._waiting: Waiting | None = None
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._told_unknown: dict[str, float] = {}
        self._cell: Any = None

    # ---- the cell itself -------------------------------------------------------------------------------------------

    def open(self) -> FlareSite:
        """Listen or dial, as the network says."""
        try:
            from veracausa.wire.flare.restricted_cell import RestrictedCell
        except ImportError:
            raise InputError(
                'the package nvflare is missing, which carries messages: pip install "veracausa[federation]"'
            ) from None
        from veracausa.wire.flare import tls_driver

        # This class reports what concerns a peer, as sentences for a person.
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)
        tls_driver.register()
        self._cell = RestrictedCell(
            self.network.cell(self.me),
            self._url(self.network.server, listen=self.me == self.network.server),
            self._credentials.for_flare(),
            {self.network.cell(name): name for name in self.network.members},
            self._gate,
            self._on_message,
            self._brief,
        )
        self._cell.start()
        if self.network.route == "direct":
            self._go_direct()
        self._check_open()
        threading.Thread(target=self._tick, name=f"{self.me} ticks", daemon=True).start()
        return self

    def _go_direct(self) -> None:
        """Listen for and dial the others without the relay; the engine is told to demand TLS of both."""
        if self.me == self.network.server:
            return  # it is dialled by all already
        connectors = self._cell.connector_manager
        own = self.network.members[self.me].address
        if own is not None:
            connectors.get_external_listener(self._url(self.me, listen=True), adhoc=False)
        for name, member in self.network.members.items():
            # Of two that both listen one dials.
            if name not in (self.me, self.network.server) and member.address and (own is None or self.me < name):
                connectors.get_external_connector(self._url(name), adhoc=False)

    def _check_open(self) -> None:
        """Refuse to go on where a port of this member could not be opened; the engine would try again for ever."""
        from veracausa.wire.flare.engine import Mode

        for connector in list(self._cell.communicator.conn_manager.connectors.values()):
            if connector.mode != Mode.PASSIVE:
                continue
            failure = connector.driver.wait_until_open(OPEN_S)
            if failure is not None:
                self.close()
                raise InputError(not_opened(f"{connector.params['host']}:{connector.params['port']}", failure))

    def _url(self, member: str, listen: bool = False) -> str:
        from veracausa.wire.flare import tls_driver

        own = self.listen if listen else None
        host, port = (own or str(self.network.members[member].address)).rsplit(":", 1)
        if listen and own is None and host not in ("localhost", "127.0.0.1"):
            host = "0.0.0.0"  # others dial this port; who may is what the certificates say
        return tls_driver.url(self.network.scheme, f"{host}:{port}", member)

    def close(self) -> None:
        self._stopped.set()
        if self._cell is not None:
            with suppress(Exception):  # an engine that does not stop in good order is stopped all the same
                self._cell.stop()
            type(self._cell).ALL_CELLS.pop(self.network.cell(self.me), None)

    def _connected_to_server(self) -> bool:
        return self.network.cell(self.network.server) in self._cell.agents

    def here(self) -> list[str]:
        """The members whose cells are connected to this one."""
        return [self.network.member(cell) for cell in list(self._cell.agents) if self.network.member(cell) != self.me]

    def __enter__(self) -> FlareSite:
        return self.open()

    def __exit__(self, *unused: object) -> None:
        self.close()

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def _gate(self, came_from: str, message: Any) -> bool:
        """Whether the engine may look at a message that came over the connection of a cell: only frames of members."""
        try:
            problem = self._frames.problem(came_from, message)
        except Exception as error:  # the headers are a peer's, and may be anything
            problem = f"cannot be read ({type(error).__name__})"
        if problem:
            known = came_from in self._frames.cells
            self._refuse(self.network.member(came_from) if known else "a stranger", WireError("frame", problem))
        return not problem

    @staticmethod
    def _came_from(message: Any) -> str:
        """The cell at the other end of the connection; its certificate was checked when it was opened."""
        return str(message.get_prop(flare_names().MessagePropKey.ENDPOINT).name)

    def _brief(self, message: Any) -> bool:
        """Whether to take a message costs less than to hand it to another thread, and nothing is sent by it.

        That is so of small pieces of messages, in a session that is open; others are answered.
        """
        payload, link = message.payload, self._link
        if link is None or len(payload) > BRIEF or payload[4] != FrameType.PIECE:
            return False
        session = link.session_of(self.network.member(message.get_header(flare_names().MessageHeaderKey.ORIGIN)))
        return session is not None and payload[8:24] == session.id

    def _on_message(self, message: Any) -> None:
        cell = message.get_header(flare_names().MessageHeaderKey.ORIGIN)
        peer = self.network.member(cell)
        direct = self._came_from(message) == cell
        try:
            frame = memoryview(message.payload)
            header, body = parse(frame)
            self._dispatch(peer, direct, header, body, bytes(frame[: HEADER.size]))
        except StaleFrame:
            self._count_stale(peer)
        except WireError as error:
            self._refuse(peer, error)
        except Exception as error:  # whatever a peer's bytes bring about must not go on unseen
            self._refuse(peer, WireError("frame", f"cannot be taken ({type(error).__name__})"))

    def _dispatch(self, peer: str, direct: bool, header: Header, body: memoryview, head: bytes) -> None:
        if header.type in (FrameType.POKE, FrameType.OFFER, FrameType.ANSWER, FrameType.CONFIRM):
            self._meet(peer, direct, header.type, body)
            return
        link = self._link
        session = link.session_of(peer) if link is not None else None
        if header.type is FrameType.UNKNOWN:
            if link is not None and session is not None and body == session.id:
                self._came_anew(link, peer, direct)
            return
        if link is not None and session is not None and session.id == header.session:
            if not direct and not session.sealed:
                raise WireError("frame", f"of {peer!r} came over a relay and is not sealed")
            link.on_frame(peer, header, body, head)
            return
        meeting = self._meeting
        if meeting is not None and meeting.knows(peer, header.session):
            meeting.on_frame(peer, header, body, head, direct)
            return
        now = time.monotonic()
        if now - self._told_unknown.get(peer, 0.0) > 1.0:
            self._told_unknown[peer] = now
            self._transmit(peer, Header(FrameType.UNKNOWN).pack() + header.session)
        if link is None and header.session not in self._earlier[peer]:
            # Nobody is met yet: this party was started anew, and the peer does not know it.
            self._earlier[peer].append(header.session)
        if header.session in self._earlier[peer]:
            raise StaleFrame("frame", f"of {peer!r} is left over from before a restart")
        raise WireError("frame", f"of {peer!r} is of a session that is not open here")

    def _count_stale(self, peer: str) -> None:
        link = self._link
        if link is not None and peer in link.peers:
            link.count_stale(peer)
        else:
            with self._lock:
                self.stale[peer] += 1

    def _refuse(self, name: str, error: WireError) -> None:
        link = self._link
        if link is not None and name in link.peers:
            link.refuse(name, error)
        else:
            with self._lock:
                self.refused[name] += 1
                count = self.refused[name]
            if count <= 20 or count % 1000 == 0:
                log.warning("refused from %s (%d so far): %s", escaped(name), count, escaped(str(error)))

    def _transmit(self, peer: str, frame: Frame) -> bool:
        from veracausa.wire.flare.engine import CellMessage
        from veracausa.wire.flare.restricted_cell import STRAIGHT

        try:
            headers = {STRAIGHT: True} if frame[4] in OF_A_SESSION and not self.sealed(peer) else {}
            errors = self._cell.fire_and_forget(CHANNEL, TOPIC, self.network.cell(peer), CellMessage(headers, frame))
        except RuntimeError:  # the cell was stopped meanwhile
            return False
        return not any(errors.values())

    def _tick(self) -> None:
        while not self._stopped.wait(TICK):
            link = self._link
            with suppress(Exception):
                if link is not None:
                    link.tick()
                    if self._waiting is not None:
                        self._waiting.under_way(link.peers)
            now = time.monotonic()
            if now - self._looked > RELOAD_S:
                self._looked = now
                with suppress(Exception):
                    self._keep_out()

    def _keep_out(self) -> None:
        """Part with who is connected, or has a session, by a certificate that was revoked since."""
        if not self._deny_list.now():
            return
        link = self._link
        for peer, session in link.sessions.items() if link is not None else ():
            if session.shown is not None and self._deny_list.refuses(session.shown) is not None and link is not None:
                link.lose(peer, f"its certificate was revoked ({session.fingerprint})")
        for connection in list(self._cell.communicator.conn_manager.sfm_conns.values()):
            shown = getattr(connection.conn, "shown", None)
            refused = self._deny_list.refuses(shown) if shown is not None else None
            if refused is not None:
                log.warning("a connection was closed: its certificate was revoked (%s)", refused)
                connection.conn.close()

    # ---- sessions --------------------------------------------------------------------------------------------------

    def connect(
        self,
        peers: Sequence[str],
        purpose: str,
        patience: float | None = None,
        notify: Observer = lambda event: None,
    ) -> FlareLink:
        """A link with a fresh session to every peer, once all are here; `PeerLost` names one that did not come."""
        patience = self.network.wire.return_s if patience is None else patience
        life, text = new_life(), f"{self.network.name}: {purpose}".encode()
        meeting = Handshake(peers, life, lambda peer: self.opening(peer, text, life), self.send, self._transmit)
        with self._lock:
            for peer, session in self._link.sessions.items() if self._link is not None else ():
                self._earlier[peer].append(session.id)
            self._link, self._meeting = None, meeting
            self._waiting = waiting = Waiting(self.me, self.network, self._connected_to_server, notify)
        deadline = time.monotonic() + patience
        pause = OFTEN
        while len(sessions := meeting.sessions()) < len(peers):
            absent, now = [peer for peer in peers if peer not in sessions], time.monotonic()
            if now > deadline:
                if waiting.out_of_reach(absent):
                    raise PeerLost(self.network.server, f"could not be reached at {waiting.address}")
                raise PeerLost(absent[0], f"did not come within {patience:g} s")
            waiting.absent(absent)
            for peer in absent:
                meeting.call(peer)
            meeting.wait(pause)
            pause = min(SELDOM, pause * 1.3)
        wire = self.network.wire
        link = FlareLink(
            self.me,
            sessions,
            self._transmit,
            wire.patience_s,
            wire.max_message_mib << 20,
            wire.chunk_kib << 10,
            wire.window_mib << 20,
            device=self._device,
        )
        with self._lock:
            self._link, self._meeting = link, None
        meeting.hand_over(link)
        link.greet()
        return link

    def sealed(self, peer: str) -> bool:
        """Whether what goes to a peer is encrypted for it alone, inside TLS."""
        return self.network.wire.end_to_end == "always" or self.network.relayed(self.me, peer)

    def opening(self, peer: str, purpose: bytes, life: bytes) -> Opening:
        return Opening(self._identity, peer, purpose, self.sealed(peer), life)

    def send(self, peer: str, frame_type: FrameType, body: bytes = b"") -> None:
        self._transmit(peer, Header(frame_type).pack() + body)

    @staticmethod
    def _came_anew(link: FlareLink, peer: str, direct: bool) -> None:
        """This attempt is over, and the next one will answer; a relay's word for it is not enough."""
        if direct:
            link.lose(peer, "it began anew")
        else:
            link.suspect_restart(peer)

    def _meet(self, peer: str, direct: bool, frame_type: FrameType, body: memoryview) -> None:
        with self._lock:
            meeting, link = self._meeting, self._link
        if meeting is not None:
            meeting.take(peer, frame_type, body)
        elif link is not None:
            session = link.session_of(peer)
            if session is None:
                raise WireError("session", f"{peer!r} has no part in this job")
            if frame_type in (FrameType.POKE, FrameType.OFFER):
                names = ("life",) if frame_type is FrameType.POKE else ("key", "life")
                if unpack(body, names)["life"] != session.life:
                    self._came_anew(link, peer, direct)
