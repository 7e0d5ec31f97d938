"""FLARE's tcp and grpc transports with mutual TLS always on, the peer's name checked, and a door no one can block.

Three differences to the transports they extend. A handshake has a time limit and a thread of its own: FLARE's tcp
listener shakes hands inside `accept`, so that one client that connects and says nothing keeps everybody else out. TLS
cannot be switched off by a setting, also not for direct connections, which FLARE opens in plaintext by default. And a
grpc dialler asks for the member's name in the certificate, because FLARE does not see it there afterwards.
"""

from __future__ import annotations

import logging
import socket
from typing import Any

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context, get_tcp_urls
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler, SocketConnection
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

HANDSHAKE_S = 10.0
"""How long a connection and its handshake may take."""
SCHEMES = {"tcp": "vtcp", "grpc": "vgrpc"}
"""What federation.toml calls a transport -> the scheme of its URL."""
PEER = "peer"
"""The part of a URL's query that names the member to be reached."""
MAX_FRAME = 72 << 20
"""Bytes of a frame that are taken; FLARE would make room for two gigabytes that a peer only announces."""
_EXPECTED = "grpc.ssl_target_name_override"
_LIMIT = "grpc.max_receive_message_length"
_log = logging.getLogger(__name__)


def url(scheme: str, address: str, member: str) -> str:
    """Where a member is reached or listens, for FLARE; `scheme` as in federation.toml."""
    return f"{SCHEMES[scheme]}://{address}?{PEER}={member}"


def register() -> None:
    """Make the schemes known to FLARE; again does no harm."""
    for driver in (MutualTcpDriver, MutualGrpcDriver):
        if driver_mgr.find_driver_class(driver.supported_transports()[0]) is None:
            driver_mgr.register(driver)


def _with_mutual_tls(connector: ConnectorInfo) -> dict[str, Any]:
    """The connector's settings, whatever they said about TLS before; FLARE's own identity check reads them too."""
    params: dict[str, Any] = connector.params
    params[DriverParams.SECURE.value] = True
    params[DriverParams.CONNECTION_SECURITY.value] = "mtls"
    return params


class _Connection(SocketConnection):  # type: ignore[misc, unused-ignore]
    """A connection that makes room for no more than a frame may have."""

    def read_into(self, buffer: Any, offset: int, length: int) -> None:
        super().read_into(buffer, offset, length)
        if not offset and length == PREFIX_LEN and Prefix.from_bytes(buffer).length > MAX_FRAME:
            raise CommError(CommError.BAD_DATA, "the announced frame is too large")


class _Handler(ConnectionHandler):  # type: ignore[misc, unused-ignore]
    """One accepted connection, in a thread of its own."""

    def handle(self) -> None:
        self.request.settimeout(HANDSHAKE_S)
        try:
            self.request.do_handshake()
        except OSError as error:
            _log.info("a connection from %s was refused: %s", self.client_address, error)
            return
        self.request.settimeout(None)
        connection = _Connection(self.request, self.server.connector, True)
        self.server.driver.add_connection(connection)
        connection.read_loop()
        self.server.driver.close_connection(connection)


class _Listener(TcpStreamServer):  # type: ignore[misc, unused-ignore]
    daemon_threads = True

    def __init__(self, driver: TcpDriver, connector: ConnectorInfo) -> None:
        super().__init__(driver, connector)
        self.RequestHandlerClass = _Handler
        self.socket.do_handshake_on_connect = False


class MutualTcpDriver(TcpDriver):  # type: ignore[misc, unused-ignore]
    """TLS over TCP; FLARE compares the certificate's name with the claimed one on both sides."""

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEMES["tcp"]]

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        urls: tuple[str, str] = get_tcp_urls(scheme, resources)
        return urls

    def listen(self, connector: ConnectorInfo) -> None:
        _with_mutual_tls(connector)
        self.connector = connector
        self.server = _Listener(self, connector)
        self.server.serve_forever()

    def connect(self, connector: ConnectorInfo) -> None:
        params = _with_mutual_tls(connector)
        self.connector = connector
        address = (params[DriverParams.HOST.value], int(params[DriverParams.PORT.value]))
        context = get_ssl_context(params, ssl_server=False)
        with socket.create_connection(address, HANDSHAKE_S) as raw, context.wrap_socket(raw) as sock:
            sock.settimeout(None)
            connection = _Connection(sock, connector, True)
            self.add_connection(connection)
            connection.read_loop()
            self.close_connection(connection)


class MutualGrpcDriver(GrpcDriver):  # type: ignore[misc, unused-ignore]
    """gRPC streaming over TLS; the dialler verifies the member's name instead of the host's."""

    options: list[tuple[str, Any]] | None

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEMES["grpc"]]

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        urls: tuple[str, str] = get_tcp_urls(scheme, resources)
        return urls

    def listen(self, connector: ConnectorInfo) -> None:
        _with_mutual_tls(connector)
        self.options = self._options()
        super().listen(connector)

    def connect(self, connector: ConnectorInfo) -> None:
        params = _with_mutual_tls(connector)
        member = params.get(PEER)
        if not member:
            raise ValueError(f"a {SCHEMES['grpc']} address needs ?{PEER}=NAME: whom it should reach")
        self.options = [*self._options(), (_EXPECTED, member)]
        super().connect(connector)

    def _options(self) -> list[tuple[str, Any]]:
        others = [option for option in self.options or () if option[0] not in (_EXPECTED, _LIMIT)]
        return [*others, (_LIMIT, MAX_FRAME)]
