"""Checks of mutual TLS at live ports: who must not get in is tried, after a member was seen to get in.

An identity probe claims a name at a port and sees whether it is accepted. It speaks the engine's first frames by hand,
because a second cell of a member's name would push the member's own connection out. After the handshake it asks for a
heartbeat only, which the engine sends to those alone whose name it accepted.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from veracausa.wire.credentials import Credentials, common_name, fingerprint
from veracausa.wire.network import NetworkOptions

PATIENCE_S = 5.0
_PAUSE_S = 0.2
_DOCTOR = "doctor"
"""A cell beside a member's own, under the member's name: it takes nothing from the member."""


class ProbeResult(Enum):
    """What became of a claimed name."""

    accepted = "was accepted"
    closed = "was refused, the connection closed"
    silent = "was neither accepted nor refused"


def beside(member: str) -> str:
    """A name that a member can claim while its own cell is connected. The cell decides whether to accept it."""
    return f"{member}.{_DOCTOR}"


def hello(name: str) -> bytes:
    """The engine's first frame."""
    from veracausa.wire.flare.engine import HandshakeKeys, Types

    return _frame(Types.HELLO, {HandshakeKeys.ENDPOINT_NAME: name, HandshakeKeys.TIMESTAMP: time.time()})


def probe_identity_over_tcp(connection: ssl.SSLSocket, name: str | None, patience: float = PATIENCE_S) -> ProbeResult:
    """Claim a name on an open TLS connection; None: claim none, and ask for heartbeats all the same."""
    from veracausa.wire.flare.engine import Types

    end = time.monotonic() + patience
    connection.settimeout(_PAUSE_S)
    heard = b""
    try:
        if name is not None:
            connection.sendall(hello(name))
        while time.monotonic() < end:
            try:
                came = connection.recv(65536)
                if not came:
                    return ProbeResult.closed
                heard += came
            except TimeoutError:
                # Again and again: the engine may look at this before it has looked at the name.
                connection.sendall(_frame(Types.PING, None))
            if Types.PONG in _types(heard):
                return ProbeResult.accepted
    except OSError:
        return ProbeResult.closed
    return ProbeResult.silent


def probe_identity_over_grpc(
    address: str, member: str, own: Credentials, name: str | None, patience: float = PATIENCE_S
) -> ProbeResult:
    """The same over gRPC, to the port of `member`."""
    import grpc

    from veracausa.wire.flare.engine import GrpcFrame, StreamerStub, Types

    over = threading.Event()

    def words() -> Iterator[GrpcFrame]:
        if name is not None:
            yield GrpcFrame(seq=1, data=hello(name))
        number = 1
        while not over.wait(_PAUSE_S):
            number += 1
            yield GrpcFrame(seq=number, data=_frame(Types.PING, None))

    try:
        with grpc_channel(address, member, own) as channel:
            for frame in StreamerStub(channel).Stream(words(), timeout=patience):
                if Types.PONG in _types(frame.data):
                    return ProbeResult.accepted
            return ProbeResult.closed
    except grpc.RpcError as error:
        return ProbeResult.silent if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else ProbeResult.closed
    finally:
        over.set()


def grpc_refusal(address: str, member: str, own: Credentials) -> str | None:
    """Why a gRPC dialler that expects `member` does not talk to this port; None: it does."""
    import grpc

    from veracausa.wire.flare.engine import GrpcFrame, StreamerStub

    try:
        with grpc_channel(address, member, own) as channel:
            first = GrpcFrame(seq=1, data=hello(beside(own.common_name)))
            next(StreamerStub(channel).Stream(iter((first,)), timeout=PATIENCE_S), None)
        return None
    except grpc.RpcError as error:
        # What the other side says once it was reached is no refusal of ours.
        return str(error.details()) if error.code() == grpc.StatusCode.UNAVAILABLE else None


def grpc_channel(address: str, member: str, own: Credentials):  # type: ignore[no-untyped-def]  # grpc has no types
    """A channel as the federation's own dialler opens it."""
    import grpc

    identity = grpc.ssl_channel_credentials(
        own.root.read_bytes(), private_key=own.key.read_bytes(), certificate_chain=own.certificate.read_bytes()
    )
    return grpc.secure_channel(address, identity, options=[("grpc.ssl_target_name_override", member)])


def _frame(kind: int, content: dict[str, object] | None) -> bytes:
    import msgpack

    from veracausa.wire.flare.engine import PREFIX_LEN, Prefix

    payload = msgpack.packb(content)
    head = bytearray(PREFIX_LEN)
    Prefix(length=PREFIX_LEN + len(payload), type=kind, stream_id=1).to_buffer(head, 0)
    return bytes(head) + bytes(payload)


def _types(heard: bytes) -> list[int]:
    """The kinds of the whole frames at the start of what was heard."""
    from veracausa.wire.flare.engine import PREFIX_LEN, Prefix

    found, at = [], 0
    while len(heard) - at >= PREFIX_LEN:
        prefix = Prefix.from_bytes(heard[at:])
        if prefix.length < PREFIX_LEN:
            break
        found.append(prefix.type)
        at += prefix.length
    return found


_ALERT = b"\x15\x03"
"""The first bytes of a TLS alert: a refusal, not an answer."""
_ALERT_S = 1.0
"""How long to listen for it before saying anything."""
_NAMELESS_S = 2.0
"""How long a connection without a name has to stay open; one with a wrong name is closed in milliseconds."""
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first words of a gRPC dialler: the preface and empty settings."""


@dataclass(frozen=True)
class TlsProof:
    """One thing that was tried."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class Port:
    """Where a member listens."""

    member: str
    host: str
    number: int
    scheme: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.number}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.number), PATIENCE_S)

    def first_words(self, member: str) -> bytes:
        return _HTTP2 if self.scheme == "grpc" else hello(beside(member))


def ports(network: NetworkOptions) -> list[Port]:
    """Every address that the federation's members have, the serving member's first."""
    found = []
    for name in (network.server, *(name for name in network.members if name != network.server)):
        address = network.members[name].address
        if address is not None:
            host, _, number = address.rpartition(":")
            found.append(Port(name, host, int(number), network.scheme))
    return found


def unreachable(port: Port) -> str | None:
    """Why nothing can be proved at a port; None: someone listens."""
    try:
        port.connect().close()
        return None
    except OSError as error:
        return str(error.strerror or error)


def prove(port: Port, network: NetworkOptions, own: Credentials) -> Iterator[TlsProof]:
    """Try the port as a member, and then as those who must be kept out."""
    me = own.common_name
    session = _Session.open(port, own)
    if isinstance(session, str):
        # Whatever is refused at such a port is refused for a reason of its own, and proves nothing.
        yield TlsProof("a member's certificate is let in", False, f"{session}; nothing else can be proved here")
        yield _plaintext(port, me)
        return
    yield TlsProof("a member's certificate is let in", True, f"as {me}")
    refusal = _refuses_old_tls(port, own)
    older = f"; older versions: {refusal}" if refusal else ", but TLS 1.0 or 1.1 is spoken too"
    yield TlsProof("TLS 1.2 or later", refusal is not None, f"{session.version}, {session.cipher}{older}")
    yield _plaintext(port, me)
    yield _stranger("no certificate is refused", port, _context(port, None), me)
    with tempfile.TemporaryDirectory() as scratch:
        forged = _forge(Path(scratch), network.name, me)
        yield _stranger("another authority's certificate is refused", port, _context(port, forged), me)
    named = session.peer == port.member
    yield TlsProof("its certificate is the member's", named, f"{session.peer}: {session.fingerprint}")
    yield from _names(port, network, own)
    yield _silence(port, own)


def _names(port: Port, network: NetworkOptions, own: Credentials) -> Iterator[TlsProof]:
    """Whether names are accepted of their owners alone, in both directions."""
    me = own.common_name
    other = _another(network, me, port.member)
    # Nobody's connection must be one that stays open: else it is not the name that closes another's. One's own name
    # would show more, and push the member's own connection out.
    nameless = _probe_identity(port, own, None, _NAMELESS_S)
    answer = _probe_identity(port, own, other)
    refused = answer is ProbeResult.closed and nameless is ProbeResult.silent
    found = f"{me} as {other} {answer.value}"
    if nameless is not ProbeResult.silent:
        found += f"; one without a name {nameless.value}, too"
    yield TlsProof("another member's name is refused", refused, found)
    if port.scheme == "grpc":
        other = _another(network, port.member)
        right = grpc_refusal(port.address, port.member, own)
        wrong = grpc_refusal(port.address, other, own)
        found = f"whoever dials {other} here " + ("does not talk to it" if wrong else f"talks to {port.member} instead")
        yield TlsProof("a grpc dialler verifies the name", right is None and wrong is not None, right or found)


def _another(network: NetworkOptions, *not_these: str) -> str:
    """A member's name that is none of these; where there is no third, one that is at least not the first."""
    free = [name for name in network.members if name not in not_these] + [*not_these[1:], "nobody"]
    return next(name for name in free if name != not_these[0])


def _probe_identity(port: Port, own: Credentials, name: str | None, patience: float = PATIENCE_S) -> ProbeResult:
    if port.scheme == "grpc":
        return probe_identity_over_grpc(port.address, port.member, own, name, patience)
    try:
        with port.connect() as raw, _context(port, own).wrap_socket(raw) as connection:
            return probe_identity_over_tcp(connection, name, patience)
    except OSError:
        return ProbeResult.closed


@dataclass(frozen=True)
class _Session:
    """What a handshake with one's own certificate agreed on."""

    version: str
    cipher: str
    peer: str
    fingerprint: str

    @classmethod
    def open(cls, port: Port, own: Credentials) -> _Session | str:
        """The session; or why there is none."""
        from cryptography import x509

        context = _context(port, own)
        context.load_verify_locations(own.root)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            with port.connect() as raw, context.wrap_socket(raw) as connection:
                connection.sendall(port.first_words(own.common_name))
                if not connection.recv(1):
                    return "the connection was closed"
                shown = x509.load_der_x509_certificate(connection.getpeercert(True) or b"")
                cipher = connection.cipher()
                return cls(
                    connection.version() or "", cipher[0] if cipher else "", common_name(shown), fingerprint(shown)
                )
        except OSError as error:
            return _words(error)


def _refuses_old_tls(port: Port, own: Credentials) -> str | None:
    """How the port refuses TLS 1.0 and 1.1; None: it does not."""
    context = _context(port, own)
    with warnings.catch_warnings():
        # Python warns of these versions, as it should; here they are offered to be refused.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    try:
        with port.connect() as raw, context.wrap_socket(raw):
            return None
    except OSError as error:
        return _words(error)


def _plaintext(port: Port, me: str) -> TlsProof:
    """What a port answers to someone who does not speak TLS."""
    name = "plaintext gets nothing"
    try:
        with port.connect() as connection:
            connection.sendall(port.first_words(me))
            answer = connection.recv(64)
    except TimeoutError:
        return TlsProof(name, False, "the port neither answered nor closed")
    except OSError:
        return TlsProof(name, True, "the connection was closed")
    if answer and not answer.startswith(_ALERT):
        return TlsProof(name, False, f"the port answered in plaintext ({len(answer)} bytes)")
    return TlsProof(name, True, "a TLS alert" if answer else "the connection was closed")


def _stranger(name: str, port: Port, context: ssl.SSLContext, me: str) -> TlsProof:
    """A TLS 1.3 client is done before the server has looked at it: what counts is what comes after."""
    try:
        with port.connect() as raw, context.wrap_socket(raw) as connection:
            with suppress(TimeoutError):
                connection.settimeout(_ALERT_S)
                connection.recv(1)
            connection.settimeout(PATIENCE_S)
            connection.sendall(port.first_words(me))
            answer = connection.recv(1)
    except TimeoutError:
        return TlsProof(name, False, "it was not refused")
    except OSError as error:
        return TlsProof(name, True, _words(error))
    return TlsProof(name, not answer, "it was let in and answered" if answer else "the connection was closed")


def _silence(port: Port, own: Credentials) -> TlsProof:
    """Whether others are let in while someone is connected who says nothing."""
    with port.connect():
        session = _Session.open(port, own)
    let_in = not isinstance(session, str)
    return TlsProof("a silent client keeps nobody out", let_in, "others are let in" if let_in else str(session))


def _context(port: Port, identity: Credentials | None) -> ssl.SSLContext:
    """A client that accepts any server: what refuses is then the server, not this side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if port.scheme == "grpc":
        context.set_alpn_protocols(["h2"])
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    return context


def _forge(folder: Path, federation: str, member: str) -> Credentials:
    """An identity that is right in every word and signed by an authority of the same name: only the key is another."""
    from veracausa.federation.identity import MEMBER_DAYS, make_authority, make_key, sign

    authority = make_authority(folder / "authority", federation)
    request = make_key(folder / "identity", member)
    forged = Credentials(authority.root, folder / "identity" / "certificate.pem", folder / "identity" / "key.pem")
    forged.certificate.write_bytes(sign(authority, request, member, (), MEMBER_DAYS))
    return forged


def _words(error: OSError) -> str:
    """What TLS said, without the file and line of its source."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return "the connection was closed"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return "no answer" if isinstance(error, TimeoutError) else str(error.strerror or error)
