"""The same bytes without our layer: NVIDIA FLARE's CoreCell as it is, and a bare gRPC stream, both with mutual TLS."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from veracausa.bench.wire_stations import HOST, LARGE, Station, Task, stand_by, take_orders, wait_for_port
from veracausa.wire.credentials import Credentials

CHANNEL = "bench"
FRAME = 2 << 20
"""Bytes of one message of the gRPC stream."""
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@dataclass(frozen=True)
class RawCell:
    """One cell of three: the server, and the parties a and b. `port` is the server's."""

    name: str
    scheme: str
    port: int
    credentials: Credentials
    identity: str
    server_identity: str

    def open(self) -> Any:
        from nvflare.fuel.f3.cellnet.core_cell import CoreCell
        from nvflare.fuel.f3.message import Message

        from veracausa.wire.flare import tls_driver

        logging.getLogger("nvflare").setLevel(logging.CRITICAL)
        tls_driver.register()
        cell = CoreCell(
            self.name,
            f"{self.scheme}://{HOST}:{self.port}?{tls_driver.PEER}={self.server_identity}",
            secure=True,
            credentials=self.credentials.for_flare(),
            auth_identity=self.identity,
            auth_identity_map={"server": self.server_identity},
        )
        cell.register_request_cb(CHANNEL, "echo", lambda request: Message(payload=_array(request.payload).tobytes()))
        cell.register_request_cb(
            CHANNEL, "load", lambda request: Message(payload=b"" if len(_array(request.payload)) else None)
        )
        cell.start()
        return cell


def cell_answers(cell: RawCell) -> Station:
    return partial(_cell_answers, cell)


def cell_asks(cell: RawCell, target: str, secure: bool = False) -> Station:
    """With `secure` FLARE encrypts for the target alone."""
    return partial(_cell_asks, cell, target, secure)


def _cell_answers(cell: RawCell, pipe: Connection) -> None:
    if cell.name != "server":
        wait_for_port(cell.port)
    opened = cell.open()
    stand_by(pipe)
    opened.stop()


def _cell_asks(cell: RawCell, target: str, secure: bool, pipe: Connection) -> None:
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.message import Message

    wait_for_port(cell.port)
    opened = cell.open()

    def ask(topic: str, payload: bytes, timeout: float = 60.0) -> Any:
        reply = opened.send_request(CHANNEL, topic, target, Message(payload=payload), timeout, secure)
        return reply if reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK else None

    @contextmanager
    def crossing(task: Task) -> Iterator[Callable[[int], object]]:
        array = np.random.default_rng(0).random(task.nbytes // 4, dtype=np.float32)

        def cross(step: int) -> None:
            reply = ask("echo" if task.echo else "load", array.tobytes())
            if reply is None or (task.echo and len(_array(reply.payload)) != len(array)):
                raise RuntimeError(f"{target} did not answer as it should")

        yield cross

    while ask("echo", bytes(4), 1.0) is None:
        time.sleep(0.1)
    take_orders(pipe, crossing)
    opened.stop()


def stream_answers(port: int, credentials: Credentials) -> Station:
    return partial(_stream_answers, port, credentials)


def stream_asks(port: int, credentials: Credentials) -> Station:
    return partial(_stream_asks, port, credentials)


def _stream_answers(port: int, credentials: Credentials, pipe: Connection) -> None:
    import grpc

    def echo(frames: Iterator[bytes], context: object) -> Iterator[bytes]:
        for frame in frames:
            yield _array(frame).tobytes()

    def load(frames: Iterator[bytes], context: object) -> Iterator[bytes]:
        whole, filled = bytearray(LARGE), 0
        for frame in frames:
            whole[filled : filled + len(frame)] = frame
            filled += len(frame)
            if filled == LARGE:
                whole, filled = bytearray(LARGE), 0
                yield b""

    handlers = {
        "echo": grpc.stream_stream_rpc_method_handler(echo),
        "load": grpc.stream_stream_rpc_method_handler(load),
    }
    server = grpc.server(ThreadPoolExecutor(4), options=_UNLIMITED)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(CHANNEL, handlers),))
    root, certificate, key = _pems(credentials)
    server.add_secure_port(f"{HOST}:{port}", grpc.ssl_server_credentials([(key, certificate)], root, True))
    server.start()
    stand_by(pipe)
    server.stop(None)


def _stream_asks(port: int, credentials: Credentials, pipe: Connection) -> None:
    import grpc

    root, certificate, key = _pems(credentials)
    channel = grpc.secure_channel(
        f"{HOST}:{port}", grpc.ssl_channel_credentials(root, key, certificate), options=_UNLIMITED
    )

    @contextmanager
    def crossing(task: Task) -> Iterator[Callable[[int], object]]:
        array = np.random.default_rng(0).random(task.nbytes // 4, dtype=np.float32)
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        method = f"/{CHANNEL}/{'echo' if task.echo else 'load'}"
        replies = channel.stream_stream(method)(iter(outgoing.get, None), wait_for_ready=True)

        def cross(step: int) -> None:
            for part in np.array_split(array, max(1, task.nbytes // FRAME)):
                outgoing.put(part.tobytes())
            reply = next(replies)
            if task.echo and len(_array(reply)) != len(array):
                raise RuntimeError("the stream did not answer as it should")

        yield cross
        outgoing.put(None)
        list(replies)

    take_orders(pipe, crossing)
    channel.close()


def _array(content: bytes | bytearray) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(content, np.float32)


def _pems(credentials: Credentials) -> tuple[bytes, bytes, bytes]:
    return credentials.root.read_bytes(), credentials.certificate.read_bytes(), credentials.key.read_bytes()
