"""To say a name at a live port and see whether it is believed: the engine's first words, spoken by hand.

Not with a whole cell: a second cell of a member's name would push the member's own connection out. What is asked for
after the handshake is only a sign of life, which the engine gives to those alone whose name it believed.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from enum import Enum

from veracausa.wire.credentials import Credentials

PATIENCE_S = 5.0
_PAUSE_S = 0.2
_DOCTOR = "doctor"
"""A cell beside a member's own, under the member's name: it takes nothing from the member."""


class Answer(Enum):
    """What became of a claim."""

    believed = "was believed"
    closed = "was refused, the connection closed"
    silent = "was neither believed nor refused"


def beside(member: str) -> str:
    """A name that a member can say while its own cell is connected; whether it is believed is the cell's affair."""
    return f"{member}.{_DOCTOR}"


def hello(name: str) -> bytes:
    """The engine's first words."""
    from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types

    return _frame(Types.HELLO, {HandshakeKeys.ENDPOINT_NAME: name, HandshakeKeys.TIMESTAMP: time.time()})


def claim_over_tcp(connection: ssl.SSLSocket, name: str | None, patience: float = PATIENCE_S) -> Answer:
    """Say a name on an open TLS connection; None: say none, and ask for signs of life all the same."""
    from nvflare.fuel.f3.sfm.constants import Types

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
                    return Answer.closed
                heard += came
            except TimeoutError:
                # Again and again: the engine may look at this before it has looked at the name.
                connection.sendall(_frame(Types.PING, None))
            if Types.PONG in _types(heard):
                return Answer.believed
    except OSError:
        return Answer.closed
    return Answer.silent


def claim_over_grpc(
    address: str, member: str, own: Credentials, name: str | None, patience: float = PATIENCE_S
) -> Answer:
    """The same over gRPC, to the port of `member`."""
    import grpc
    from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
    from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub
    from nvflare.fuel.f3.sfm.constants import Types

    over = threading.Event()

    def words() -> Iterator[Frame]:
        if name is not None:
            yield Frame(seq=1, data=hello(name))
        number = 1
        while not over.wait(_PAUSE_S):
            number += 1
            yield Frame(seq=number, data=_frame(Types.PING, None))

    try:
        with grpc_channel(address, member, own) as channel:
            for frame in StreamerStub(channel).Stream(words(), timeout=patience):
                if Types.PONG in _types(frame.data):
                    return Answer.believed
            return Answer.closed
    except grpc.RpcError as error:
        return Answer.silent if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else Answer.closed
    finally:
        over.set()


def grpc_refusal(address: str, member: str, own: Credentials) -> str | None:
    """Why a gRPC dialler that expects `member` does not talk to this port; None: it does."""
    import grpc
    from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
    from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub

    try:
        with grpc_channel(address, member, own) as channel:
            first = Frame(seq=1, data=hello(beside(own.common_name)))
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
    from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

    payload = msgpack.packb(content)
    head = bytearray(PREFIX_LEN)
    Prefix(length=PREFIX_LEN + len(payload), type=kind, stream_id=1).to_buffer(head, 0)
    return bytes(head) + bytes(payload)


def _types(heard: bytes) -> list[int]:
    """The kinds of the whole frames at the start of what was heard."""
    from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

    found, at = [], 0
    while len(heard) - at >= PREFIX_LEN:
        prefix = Prefix.from_bytes(heard[at:])
        if prefix.length < PREFIX_LEN:
            break
        found.append(prefix.type)
        at += prefix.length
    return found
