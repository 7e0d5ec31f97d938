"""FLARE's tcp and grpc transports with mutual TLS always on, the peer's name checked, and a port that nobody can block.

Five differences to the transports they extend. A handshake has a time limit and a thread of its own: FLARE's tcp
listener shakes hands inside `accept`, so that one client that connects and says nothing keeps everybody else out. TLS
cannot be switched off by a setting, also not for direct connections, which FLARE opens in plaintext by default. And a
grpc dialler asks for the member's name in the certificate, because FLARE does not see it there afterwards. A
certificate on the deny list is refused before a byte of its holder is read. And a listener says whether its port was
opened: FLARE tries again and again without a word, and two grpc listeners would share one port.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from veracausa.escaping import escaped
from veracausa.wire.credentials import DENIED, DenyList, PeerCertificate
from veracausa.wire.flare.engine import (
    PREFIX_LEN,
    QQ,
    CommError,
    ConnectionHandler,
    ConnectorInfo,
    DriverParams,
    GrpcDriver,
    Mode,
    Prefix,
    Server,
    Servicer,
    SocketConnection,
    TcpDriver,
    TcpStreamServer,
    add_StreamerServicer_to_server,
    driver_mgr,
    get_address,
    get_grpc_server_credentials,
    get_ssl_context,
    get_tcp_urls,
)

HANDSHAKE_S = 10.0
"""How long a connection and its handshake may take."""
SCHEMES = {"tcp": "vtcp", "grpc": "vgrpc"}
"""What federation.toml calls a transport -> the scheme of its URL."""
PEER = "peer"
"""The part of a URL's query that names the member to be reached."""
MAX_FRAME = 72 << 20
"""Bytes of a frame that are taken; FLARE would make room for two gigabytes that a peer only announces."""
MAX_WAITING = 64 << 20
"""Bytes that may wait to be sent on one grpc connection; FLARE's queue has no end."""
SEND_S = 30.0
"""How long a frame may wait for that; as long as FLARE lets it wait on a tcp connection."""
_ALIGNMENT = 64
_RECORD = 1 << 14
"""Bytes of the largest record of TLS."""
_EXPECTED = "grpc.ssl_target_name_override"
_LIMIT = "grpc.max_receive_message_length"
_SHARED = "grpc.so_reuseport"
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


def _host_and_port(params: dict[str, Any]) -> tuple[str, int]:
    return str(params[DriverParams.HOST.value]), int(params[DriverParams.PORT.value])


def try_to_bind(host: str, port: int) -> None:
    """Raise what the system says against listening there; the engine below may not say it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


class ListeningDriver:
    """What both transports have in common: whether the port was opened, and who is let in there no more."""

    failure: BaseException | None = None
    """Why the port was not opened."""
    deny_list: DenyList | None = None
    revoked_refused = 0
    """How often; who dials again and again must not fill the log."""

    def __init__(self) -> None:
        super().__init__()
        self.settled = threading.Event()

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        urls: tuple[str, str] = get_tcp_urls(scheme, resources)
        return urls

    def wait_until_open(self, patience: float) -> BaseException | None:
        """Why the port could not be opened; None: it was."""
        if not self.settled.wait(patience):
            return TimeoutError(f"nothing came of it in {patience:g} s")
        return self.failure

    def _settle(self, failure: BaseException | None) -> None:
        self.failure = failure
        self.settled.set()

    def read_deny_list(self, params: dict[str, Any]) -> None:
        """The list that the member's credentials name."""
        path = params.get(DENIED)
        self.deny_list = DenyList(Path(path) if path else None)

    def admit(self, der: bytes | None, where: object) -> PeerCertificate:
        """What the peer has shown, or a refusal: nothing of it is read then."""
        if not der:
            raise CommError(CommError.BAD_DATA, f"{where} showed no certificate")
        shown = PeerCertificate(der)
        refused = self.deny_list.refuses(shown) if self.deny_list is not None else None
        if refused is not None:
            self.revoked_refused += 1
            if self.revoked_refused <= 20 or self.revoked_refused % 1000 == 0:
                _log.warning("a connection from %s was refused: its certificate was revoked (%s)", where, refused)
            raise CommError(CommError.BAD_DATA, f"the certificate of {where} was revoked")
        return shown


class _Connection(SocketConnection):  # type: ignore[misc, unused-ignore]
    """A connection that makes room for no more than a frame may have, and copies none."""

    shown: PeerCertificate | None = None
    """The certificate at its other end."""

    def read_frame(self) -> Any:
        head = bytearray(PREFIX_LEN)
        self.read_into(head, 0, PREFIX_LEN)
        length = Prefix.from_bytes(head).length
        if not PREFIX_LEN <= length <= MAX_FRAME:
            raise CommError(CommError.BAD_DATA, "the announced frame is too small or too large")
        # Not filled with zeros first, and its end aligned: there is a tensor's, which then needs no copy.
        space = np.empty(length + _ALIGNMENT, np.uint8)
        start = -(space.ctypes.data + length) % _ALIGNMENT
        frame = memoryview(space)[start : start + length]  # type: ignore[arg-type, unused-ignore]
        frame[:PREFIX_LEN] = head
        self.read_into(frame, PREFIX_LEN, length - PREFIX_LEN)
        return frame

    def send_parts(self, head: bytearray, body: memoryview) -> None:
        """A frame in two; the first part fills a record of TLS."""
        share = max(0, _RECORD - len(head))
        self.send_frame(head + body[:share])
        if len(body) > share:
            self.send_frame(body[share:])


class _Handler(ConnectionHandler):  # type: ignore[misc, unused-ignore]
    """One accepted connection, in a thread of its own."""

    def handle(self) -> None:
        self.request.settimeout(HANDSHAKE_S)
        try:
            self.request.do_handshake()
        except OSError as error:
            _log.info("a connection from %s was refused: %s", self.client_address, escaped(str(error)))
            return
        self.request.settimeout(None)
        try:
            shown = self.server.driver.admit(self.request.getpeercert(True), self.client_address)
        except CommError:
            return
        connection = _Connection(self.request, self.server.connector, True)
        connection.shown = shown
        self.server.driver.add_connection(connection)
        connection.read_loop()
        self.server.driver.close_connection(connection)


class _Listener(TcpStreamServer):  # type: ignore[misc, unused-ignore]
    daemon_threads = True

    def __init__(self, driver: TcpDriver, connector: ConnectorInfo) -> None:
        super().__init__(driver, connector)
        self.RequestHandlerClass = _Handler
        self.socket.do_handshake_on_connect = False


def _close_if_silent(driver: Any, connection: Any) -> None:
    """Close a connection on which nobody has said who it is."""
    known = driver.conn_monitor.sfm_conns.get(connection.name)
    if known is not None and known.sfm_endpoint is None:
        _log.info("a connection from %s was closed: it said nothing", escaped(str(connection.get_conn_properties())))
        connection.close()


def _watch(driver: Any, connection: Any) -> None:
    timer = threading.Timer(HANDSHAKE_S, _close_if_silent, (driver, connection))
    timer.daemon = True
    timer.start()


class MutualTcpDriver(ListeningDriver, TcpDriver):  # type: ignore[misc, unused-ignore]
    """TLS over TCP; FLARE compares the certificate's name with the claimed one on both sides."""

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEMES["tcp"]]

    def listen(self, connector: ConnectorInfo) -> None:
        params = _with_mutual_tls(connector)
        self.connector = connector
        try:
            self.read_deny_list(params)
            self.server = _Listener(self, connector)
        except Exception as error:
            self._settle(error)
            raise
        self._settle(None)
        try:
            self.server.serve_forever()
        finally:
            self.server.server_close()  # FLARE leaves the port open as long as the process lasts

    def connect(self, connector: ConnectorInfo) -> None:
        params = _with_mutual_tls(connector)
        self.connector = connector
        address = _host_and_port(params)
        self.read_deny_list(params)
        context = get_ssl_context(params, ssl_server=False)
        with socket.create_connection(address, HANDSHAKE_S) as raw, context.wrap_socket(raw) as sock:
            sock.settimeout(None)
            connection = _Connection(sock, connector, True)
            if connection.conn_props.get(DriverParams.PEER_CN.value) != params.get(PEER):
                raise CommError(CommError.BAD_DATA, f"who answers at {address} is not {params.get(PEER)!r}")
            connection.shown = self.admit(sock.getpeercert(True), address)
            self.add_connection(connection)
            connection.read_loop()
            self.close_connection(connection)

    def add_connection(self, conn: Any) -> None:
        super().add_connection(conn)
        _watch(self, conn)


class _Queue(QQ):  # type: ignore[misc, unused-ignore]
    """Frames that wait to be sent, no more of them than a slow peer may cost."""

    def __init__(self) -> None:
        super().__init__()
        self._nbytes = 0
        self._changed = threading.Condition()

    def append(self, i: Any) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.closed or self._nbytes <= MAX_WAITING, SEND_S):
                raise CommError(CommError.TIMEOUT, f"nothing was taken for {SEND_S:g} s")
            self._nbytes += len(i.data)
        super().append(i)

    def __next__(self) -> Any:
        item = super().__next__()
        with self._changed:
            self._nbytes -= len(item.data)
            self._changed.notify_all()
        return item

    def close(self) -> None:
        super().close()
        with self._changed:
            self._changed.notify_all()


def _end(context: Any, close: Callable[[], None]) -> None:
    """Close a connection that was dialled; FLARE waits until the dialler has said one thing more."""
    context.cancel()
    close()


class _GrpcServer(Server):  # type: ignore[misc, unused-ignore]
    """FLARE's, without its beginning, which swallows that the port could not be opened."""

    def __init__(self, driver: Any, connector: ConnectorInfo, max_workers: int, options: list[tuple[str, Any]]) -> None:
        self.driver, self.connector, self.logger = driver, connector, _log
        try_to_bind(*_host_and_port(connector.params))
        self.grpc_server = grpc.server(futures.ThreadPoolExecutor(max_workers), options=options)
        add_StreamerServicer_to_server(Servicer(self), self.grpc_server)
        credentials = get_grpc_server_credentials(connector.params)
        self.grpc_server.add_secure_port(get_address(connector.params), server_credentials=credentials)
        self.grpc_server.start()


def _der(context: Any) -> bytes | None:
    """The certificate of who dialled over grpc."""
    shown = context.auth_context().get("x509_pem_cert")
    return ssl.PEM_cert_to_DER_cert(shown[0].decode()) if shown else None


class MutualGrpcDriver(ListeningDriver, GrpcDriver):  # type: ignore[misc, unused-ignore]
    """gRPC streaming over TLS; the dialler verifies the member's name instead of the host's."""

    options: list[tuple[str, Any]] | None

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEMES["grpc"]]

    def listen(self, connector: ConnectorInfo) -> None:
        params = _with_mutual_tls(connector)
        self.connector = connector
        try:
            self.read_deny_list(params)
            self.server = _GrpcServer(self, connector, self.max_workers, self._options())
        except Exception as error:
            self._settle(error)
            raise
        engine = self.server.grpc_server  # gone from there once it is told to stop
        self._settle(None)
        engine.wait_for_termination()

    def connect(self, connector: ConnectorInfo) -> None:
        params = _with_mutual_tls(connector)
        member = params.get(PEER)
        if not member:
            raise ValueError(f"a {SCHEMES['grpc']} address needs ?{PEER}=NAME: whom it should reach")
        self.read_deny_list(params)
        self.options = [*self._options(), (_EXPECTED, member)]
        super().connect(connector)

    def add_connection(self, conn: Any) -> None:
        conn.oq = _Queue()
        if conn.context is not None:
            # FLARE ends the stream on what this raises.
            conn.shown = self.admit(_der(conn.context), conn.conn_props.get(DriverParams.PEER_ADDR.value))
            conn.close = partial(_end, conn.context, conn.close)
        if conn.connector.mode == Mode.ACTIVE:
            # TLS has compared the names; FLARE is told so that it holds the peer to what it calls itself.
            conn.conn_props[DriverParams.PEER_CN.value] = conn.connector.params[PEER]
        super().add_connection(conn)
        _watch(self, conn)

    def _options(self) -> list[tuple[str, Any]]:
        others = [option for option in self.options or () if option[0] not in (_EXPECTED, _LIMIT, _SHARED)]
        return [*others, (_LIMIT, MAX_FRAME), (_SHARED, 0)]
