"""Processes that send to each other at the bench's word: one asks and takes the time, the others answer.

This module stays light, because every process imports it. Its last part sends the same bytes without our layer: by
NVIDIA FLARE's CoreCell as it is, and by a bare gRPC stream, both with mutual TLS.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from veracausa.wire.credentials import Credentials

HOST = "localhost"
SMALL, LARGE = 256 << 10, 16 << 20
PATIENCE = 120.0
LEAVE = 5.0
"""Seconds that a process may take to start, and to end."""


@dataclass(frozen=True)
class Task:
    """Cross so often with so many bytes; they come back, or are acknowledged."""

    echo: bool
    count: int

    @property
    def nbytes(self) -> int:
        return SMALL if self.echo else LARGE


Station = Callable[[Connection], None]
"""What one process does; it can be pickled, says that it is ready, and ends when the pipe says so."""
Crossing = Callable[[Task], AbstractContextManager[Callable[[int], object]]]
"""For a task: what crosses once, given the number of the crossing."""


def take_orders(pipe: Connection, crossing: Crossing, beside: Sequence[float] = ()) -> None:
    """The asking process: does each task that comes, and reports the seconds of every crossing.

    `beside` are seconds that the crossings themselves write down.
    """
    pipe.send("ready")
    while (task := pipe.recv()) is not None:
        with crossing(task) as cross:
            seconds = [timed(partial(cross, step)) for step in range(task.count)]
        pipe.send((seconds, list(beside)))


def stand_by(pipe: Connection) -> None:
    """An answering process whose threads do the work: ready until it is told to end."""
    pipe.send("ready")
    pipe.recv()


class Way:
    """One way to cross between running processes; the first of them asks."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def measure(self, task: Task) -> tuple[list[float], list[float]]:
        """The seconds of every crossing, and those that stand beside them."""
        self._pipes[0].send(task)
        measured: tuple[list[float], list[float]] = self._pipes[0].recv()
        return measured

    def together(self) -> list[list[float]]:
        """Let every process begin at once; what each of them reports."""
        for pipe in self._pipes:
            pipe.send("go")
        return [pipe.recv() for pipe in self._pipes]

    def wait(self) -> None:
        """Until every process is ready."""
        for pipe in self._pipes:
            if not pipe.poll(PATIENCE) or pipe.recv() != "ready":
                raise RuntimeError(f"a process of the bench was not ready within {PATIENCE:g} s")

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)


@contextmanager
def running(*stations: Station, apart: bool = True) -> Iterator[Way]:
    """The processes, started at once; `wait` before they are measured. They end with the block.

    With `apart` the one that asks has half of the cores and the others have the other half.
    """
    context = multiprocessing.get_context("spawn")
    started = []
    for number, station in enumerate(stations):
        here, there = context.Pipe()
        args = (number, station, there) if apart else (there,)
        process = context.Process(target=_on_its_half if apart else station, args=args, daemon=True)
        process.start()
        there.close()
        started.append((process, here))
    try:
        way = Way([pipe for _, pipe in started])
        yield way
        way.end()
        for process, _ in started:
            process.join(LEAVE)
    finally:
        for process, _ in started:
            process.kill()


def _on_its_half(number: int, station: Station, pipe: Connection) -> None:
    """The process that asks has one half of the cores, those that answer the other, as if they were two machines.

    Otherwise a sender is at times on the core that its reader is woken on, and nobody knows how often.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2
        os.sched_setaffinity(0, (cores[half:] if number else cores[:half]) or cores)
    station(pipe)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    """Until somebody listens: FLARE would try again only after a pause that doubles each time."""
    for _ in range(int(PATIENCE / 0.05)):
        try:
            socket.create_connection((HOST, port), 1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nobody listened at port {port} within {PATIENCE:g} s")


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# ---- the same bytes without our layer -------------------------------------------------------------------------------

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


def cell_answers(cell: RawCell, pipe: Connection) -> None:
    if cell.name != "server":
        wait_for_port(cell.port)
    opened = cell.open()
    stand_by(pipe)
    opened.stop()


def cell_asks(cell: RawCell, target: str, pipe: Connection) -> None:
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.message import Message

    wait_for_port(cell.port)
    opened = cell.open()

    def ask(topic: str, payload: bytes, timeout: float = 60.0) -> Any:
        reply = opened.send_request(CHANNEL, topic, target, Message(payload=payload), timeout)
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


def stream_answers(port: int, credentials: Credentials, pipe: Connection) -> None:
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


def stream_asks(port: int, credentials: Credentials, pipe: Connection) -> None:
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
