"""One organisation's cell: it dials the serving member, keeps strangers out, and makes sessions with its peers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from veracausa.errors import InputError, PeerLost, WireError
from veracausa.wire.credentials import Credentials
from veracausa.wire.flare.frames import HEADER, NO_SESSION, Header, Sort, parse
from veracausa.wire.flare.link import FlareLink
from veracausa.wire.flare.session import Identity, Opening, Session, new_life, unpack

if TYPE_CHECKING:
    from veracausa.federation.members import Network

log = logging.getLogger(__name__)

CHANNEL, TOPIC = "veracausa", "frame"
TICK = 0.25
OFTEN, SELDOM = 0.2, 2.0
"""Seconds between two tries to reach a peer, at first and after a while."""
SLACK = 1 << 16
"""Bytes that a frame may have beyond a piece of a message."""


class FlareSite:
    """One member's place in the network.

    Only frames of members cross. A frame counts as its sender's if it came over the connection that the sender's
    certificate opened, or if it is sealed with the keys of a session.
    """

    def __init__(self, me: str, network: Network, credentials: Credentials, device: torch.device | None = None) -> None:
        self.me, self.network = me, network
        self.refused: Counter[str] = Counter()
        """Frames that could not be taken, by the cell that they came from."""
        self._credentials, self._device = credentials, device
        self._identity = Identity(me, credentials)
        self._max_frame = (network.wire.chunk_kib << 10) + SLACK
        self._link: FlareLink | None = None
        self._meeting: _Meeting | None = None
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._told_unknown: dict[str, float] = {}
        self._cell: Any = None

    # ---- the cell itself -------------------------------------------------------------------------------------------

    def open(self) -> FlareSite:
        """Listen or dial, as the network says."""
        try:
            from nvflare.fuel.f3.cellnet.core_cell import CoreCell
        except ImportError:
            raise InputError(
                'the package nvflare is missing, which carries messages: pip install "veracausa[federation]"'
            ) from None
        from veracausa.wire import tls_driver

        # Everything that the engine has to say of a peer is said by this class, in words for a person.
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)
        tls_driver.register()
        self._cell = CoreCell(
            self.network.cell(self.me),
            self._url(self.network.server, listen=self.me == self.network.server),
            secure=True,
            credentials=self._credentials.for_flare(),
            auth_identity=self.me,
            auth_identity_map={self.network.cell(self.network.server): self.network.server},
        )
        self._cell.add_incoming_filter("*", "*", self._gate)
        self._cell.register_request_cb(CHANNEL, TOPIC, self._hear)
        self._cell.start()
        if self.network.route == "direct":
            self._go_direct()
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

    def _url(self, member: str, listen: bool = False) -> str:
        from veracausa.wire import tls_driver

        host, port = str(self.network.members[member].address).rsplit(":", 1)
        if listen and host not in ("localhost", "127.0.0.1"):
            host = "0.0.0.0"  # others dial this port; who may is what the certificates say
        return tls_driver.url(self.network.scheme, f"{host}:{port}", member)

    def close(self) -> None:
        self._stopped.set()
        if self._cell is not None:
            with suppress(Exception):  # an engine that does not stop in good order is stopped all the same
                self._cell.stop()
            type(self._cell).ALL_CELLS.pop(self.network.cell(self.me), None)

    def here(self) -> list[str]:
        """The members whose cells are connected to this one."""
        return [self.network.member(cell) for cell in list(self._cell.agents) if self.network.member(cell) != self.me]

    def __enter__(self) -> FlareSite:
        return self.open()

    def __exit__(self, *unused: object) -> None:
        self.close()

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def _gate(self, message: Any) -> Any:
        """Stop everything but frames between members, before the engine looks inside. None lets it pass."""
        from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, Encoding, MessageHeaderKey, MessageType
        from nvflare.fuel.f3.message import Message

        stop = Message()
        came_from = self._came_from(message)
        header = message.get_header
        origin, to = header(MessageHeaderKey.ORIGIN), header(MessageHeaderKey.DESTINATION)
        channel, topic = header(MessageHeaderKey.CHANNEL), header(MessageHeaderKey.TOPIC)
        encoding = header(MessageHeaderKey.PAYLOAD_ENCODING)
        cells = {self.network.cell(name) for name in self.network.members}
        if channel == CellChannel.CELLNET and topic == CellChannelTopic.Bye and to == self.network.cell(self.me):
            # A cell that leaves says so; nothing is read from it, and nothing answered.
            return None if encoding == Encoding.NONE and origin == came_from and not message.payload else stop
        problem = ""
        if channel != CHANNEL or topic != TOPIC or header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
            problem = "is nothing that members send"
        elif encoding != Encoding.BYTES or header(MessageHeaderKey.SECURE) or header(MessageHeaderKey.REPLY_EXPECTED):
            problem = "is not plain bytes"
        elif header(MessageHeaderKey.CONN_URL):
            problem = "asks to be dialled elsewhere"
        elif origin not in cells or to not in cells or came_from not in cells:
            problem = "is not between members"
        elif len(message.payload or b"") > self._max_frame:
            problem = f"has {len(message.payload)} bytes, at most {self._max_frame} are taken"
        elif origin != came_from and (came_from != self.network.cell(self.network.server) or origin == to):
            problem = "claims another sender"
        elif to != self.network.cell(self.me) and self.me != self.network.server:
            problem = "is not for here"
        if problem:
            self._refuse(came_from, WireError("frame", f"from {came_from!r} {problem}"))
            return stop
        return None

    @staticmethod
    def _came_from(message: Any) -> str:
        """The cell at the other end of the connection; its certificate was checked when it was opened."""
        from nvflare.fuel.f3.cellnet.defs import MessagePropKey

        return str(message.get_prop(MessagePropKey.ENDPOINT).name)

    def _hear(self, message: Any) -> None:
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

        cell = message.get_header(MessageHeaderKey.ORIGIN)
        peer = self.network.member(cell)
        direct = self._came_from(message) == cell
        try:
            frame = memoryview(message.payload)
            header, body = parse(frame)
            self._dispatch(peer, direct, header, body, bytes(frame[: HEADER.size]))
        except WireError as error:
            self._refuse(peer, error)

    def _dispatch(self, peer: str, direct: bool, header: Header, body: memoryview, head: bytes) -> None:
        if header.sort in (Sort.POKE, Sort.OFFER, Sort.ANSWER, Sort.CONFIRM):
            self._meet(peer, header.sort, body)
            return
        link = self._link
        session = link.session_of(peer) if link is not None else None
        if header.sort is Sort.UNKNOWN:
            if link is not None and session is not None and bytes(body) == session.id:
                link.lose(peer, "it began anew")
            return
        if link is not None and session is not None and session.id == header.session:
            if not direct and not session.sealed:
                raise WireError("frame", f"of {peer!r} came over a relay and is not sealed")
            link.hear(peer, header, body, head)
            return
        meeting = self._meeting
        if meeting is not None and meeting.knows(peer, header.session):
            meeting.hear(peer, header, body, head, direct)
            return
        now = time.monotonic()
        if now - self._told_unknown.get(peer, 0.0) > 1.0:
            self._told_unknown[peer] = now
            self._transmit(peer, Header(Sort.UNKNOWN).pack() + header.session)

    def _refuse(self, came_from: str, error: WireError) -> None:
        link = self._link
        name = self.network.member(came_from)
        if link is not None and name in link.peers:
            link.refuse(name, error)
        else:
            self.refused[name] += 1
            if self.refused[name] <= 20 or self.refused[name] % 1000 == 0:
                log.warning("refused from %s (%d so far): %s", name, self.refused[name], error)

    def _transmit(self, peer: str, frame: bytes | bytearray) -> bool:
        from nvflare.fuel.f3.message import Message

        try:
            errors = self._cell.fire_and_forget(CHANNEL, TOPIC, self.network.cell(peer), Message(payload=frame))
        except RuntimeError:  # the cell was stopped meanwhile
            return False
        return not any(errors.values())

    def _tick(self) -> None:
        while not self._stopped.wait(TICK):
            link = self._link
            if link is not None:
                with suppress(Exception):
                    link.tick()

    # ---- sessions --------------------------------------------------------------------------------------------------

    def connect(
        self,
        peers: Sequence[str],
        purpose: str,
        patience: float | None = None,
        notify: Callable[[Mapping[str, Any]], None] = lambda event: None,
    ) -> FlareLink:
        """A link with a fresh session to every peer, once all are here; `PeerLost` names one that did not come."""
        patience = self.network.wire.return_s if patience is None else patience
        meeting = _Meeting(self, peers, f"{self.network.name}: {purpose}".encode())
        with self._lock:
            self._link, self._meeting = None, meeting
        deadline, told = time.monotonic() + patience, 0.0
        pause = OFTEN
        while absent := meeting.absent():
            now = time.monotonic()
            if now > deadline:
                raise PeerLost(absent[0], f"did not come within {patience:g} s")
            if now - told > 2.0:
                told = now
                notify({"event": "waiting", "for": absent})
            for peer in absent:
                meeting.call(peer)
            meeting.wait(pause)
            pause = min(SELDOM, pause * 1.3)
        wire = self.network.wire
        link = FlareLink(
            self.me,
            {peer: meeting.sessions[peer] for peer in peers},
            self._transmit,
            wire.patience_s,
            wire.max_message_mib << 20,
            wire.chunk_kib << 10,
            wire.window_mib << 20,
            device=self._device,
        )
        with self._lock:
            self._link, self._meeting = link, None
        for peer, header, body, head in meeting.early():
            link.hear(peer, header, body, head)
        for peer in peers:
            self._transmit(peer, Header(Sort.STATE, meeting.sessions[peer].id).pack() + bytes(8))
        return link

    def sealed(self, peer: str) -> bool:
        """Whether what goes to a peer is encrypted for it alone, inside TLS."""
        return self.network.wire.end_to_end == "always" or self.network.relayed(self.me, peer)

    def opening(self, peer: str, purpose: bytes, life: bytes) -> Opening:
        return Opening(self._identity, peer, purpose, self.sealed(peer), life)

    def send(self, peer: str, sort: Sort, body: bytes = b"") -> None:
        self._transmit(peer, Header(sort).pack() + body)

    def _meet(self, peer: str, sort: Sort, body: memoryview) -> None:
        with self._lock:
            meeting, link = self._meeting, self._link
        if meeting is not None:
            meeting.take(peer, sort, body)
        elif link is not None and (session := link.session_of(peer)) is not None and sort in (Sort.POKE, Sort.OFFER):
            # It has come anew: this attempt is over, and the next one will answer.
            names = ("life",) if sort is Sort.POKE else ("key", "life")
            if unpack(body, names)["life"] != session.life:
                link.lose(peer, "it began anew")


class _Meeting:
    """All parties come together: one session after the other is made."""

    def __init__(self, site: FlareSite, peers: Sequence[str], purpose: bytes) -> None:
        self.sessions: dict[str, Session] = {}
        self._site, self._purpose = site, purpose
        self._life = new_life()
        self._openings = {peer: site.opening(peer, purpose, self._life) for peer in peers}
        self._proofs: dict[str, bytes] = {}
        self._their_offers: dict[str, bytes] = {}
        self._sure: set[str] = set()
        """Peers that are known to have the session, too."""
        self._early: list[tuple[str, Header, memoryview, bytes]] = []
        self._changed = threading.Condition()

    def absent(self) -> list[str]:
        with self._changed:
            return [peer for peer in self._openings if peer not in self._sure]

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def call(self, peer: str) -> None:
        """Try again to reach a peer with what comes next."""
        opening = self._openings[peer]
        if not opening.leads:
            self._site.send(peer, Sort.POKE, _life(self._life))
        elif peer in self._proofs:
            self._site.send(peer, Sort.CONFIRM, self._proofs[peer])
        else:
            self._site.send(peer, Sort.OFFER, opening.offer())

    def take(self, peer: str, sort: Sort, body: memoryview) -> None:
        opening = self._openings.get(peer)
        if opening is None:
            raise WireError("session", f"{peer!r} has no part in this job")
        if sort is Sort.POKE:
            self._poked(peer, opening, unpack(body, ("life",))["life"])
        elif sort is Sort.OFFER and not opening.leads:
            self._offered(peer, unpack(body, ("key", "life")))
        elif sort is Sort.ANSWER and opening.leads:
            self._answered(peer, opening, bytes(body))
        elif sort is Sort.CONFIRM and not opening.leads:
            self._confirmed(peer, opening, bytes(body))

    def _poked(self, peer: str, opening: Opening, life: bytes) -> None:
        with self._changed:
            known = self.sessions.get(peer)
            if known is not None and known.life == life:
                return
            # It has come anew after it had answered: the key that was offered then is not used again.
            if known is not None:
                self._forget(peer)
        if opening.leads:
            self.call(peer)

    def _forget(self, peer: str) -> None:
        self.sessions.pop(peer, None)
        self._proofs.pop(peer, None)
        self._their_offers.pop(peer, None)
        self._sure.discard(peer)
        self._openings[peer] = self._site.opening(peer, self._purpose, self._life)

    def _offered(self, peer: str, offer: Mapping[str, bytes]) -> None:
        with self._changed:
            if self._their_offers.get(peer) != offer["key"]:
                self._forget(peer)
                self._their_offers[peer] = offer["key"]
                self._proofs[peer] = self._openings[peer].proof(offer["key"], offer["life"])
            proof = self._proofs[peer]
        self._site.send(peer, Sort.ANSWER, proof)

    def _answered(self, peer: str, opening: Opening, answer: bytes) -> None:
        with self._changed:
            if peer not in self.sessions:
                self.sessions[peer] = opening.session(answer)
                fields = unpack(answer, ("key", "life", "pem", "signature"))
                self._proofs[peer] = opening.proof(fields["key"], fields["life"])
            proof = self._proofs[peer]
        self._site.send(peer, Sort.CONFIRM, proof)

    def _confirmed(self, peer: str, opening: Opening, proof: bytes) -> None:
        with self._changed:
            if peer not in self.sessions:
                self.sessions[peer] = opening.session(proof)
            self._sure.add(peer)
            session = self.sessions[peer]
            self._changed.notify_all()
        self._site._transmit(peer, Header(Sort.STATE, session.id).pack() + bytes(8))

    def knows(self, peer: str, session: bytes) -> bool:
        return session != NO_SESSION and peer in self.sessions and self.sessions[peer].id == session

    def hear(self, peer: str, header: Header, body: memoryview, head: bytes, direct: bool) -> None:
        """A first frame of a session shows that the peer has it; what is more is kept until the link is there."""
        session = self.sessions[peer]
        if not direct and not session.sealed:
            raise WireError("frame", f"of {peer!r} came over a relay and is not sealed")
        with self._changed:
            self._sure.add(peer)
            if header.sort is not Sort.STATE and len(self._early) < 256:
                self._early.append((peer, header, body, head))
            self._changed.notify_all()

    def early(self) -> list[tuple[str, Header, memoryview, bytes]]:
        return self._early


def _life(life: bytes) -> bytes:
    import msgpack

    packed: bytes = msgpack.packb({"life": life})
    return packed
