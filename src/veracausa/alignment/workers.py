"""The exponentiations of one party, spread over processes of its own; none holds the interpreter for another."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import BinaryIO

from veracausa.alignment.curve import KEY, POINT, UNIFORM, SmallOrder, masking, to_curve
from veracausa.errors import RunError

_REQUEST = struct.Struct("<II")  # bytes of one value, number of values
_ANSWER = struct.Struct("<?")  # whether all could be masked


def mask_all(mask: Callable[[bytes], bytes], values: bytes, width: int) -> bytes:
    """Every value masked: points as they are, expanded ids after they were put on the curve."""
    pieces = (values[at : at + width] for at in range(0, len(values), width))
    return b"".join([mask(to_curve(piece)) if width == UNIFORM else mask(piece) for piece in pieces])


class Workers:
    """Masks with one secret exponent. With a count of 0 this process does it itself."""

    def __init__(self, key: bytes, count: int, done: Callable[[int], None] = lambda values: None) -> None:
        self._mask = masking(key)  # also here: what is not installed should be said before a process starts
        self._done = done
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._all = [_start(key) for _ in range(count)]
        for process in self._all:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(count, "masking") if count else None

    def mask(self, chunks: Iterable[bytes], width: int) -> Iterator[bytes]:
        """The chunks masked, in order; with processes, a few later ones are under way while the first is used."""
        ahead: deque[Future[bytes]] = deque()
        for chunk in chunks:
            if self._threads is None or not chunk:
                # Nothing to do is done at once, but not before what came earlier.
                ahead.append(Future())
                ahead[-1].set_result(mask_all(self._mask, chunk, width))
            else:
                ahead.append(self._threads.submit(self._in_process, chunk, width))
            if len(ahead) > 2 * len(self._all):
                yield self._next(ahead)
        while ahead:
            yield self._next(ahead)

    def _next(self, ahead: deque[Future[bytes]]) -> bytes:
        masked = ahead.popleft().result()
        self._done(len(masked) // POINT)
        return masked

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._all:
            process.kill()  # a key lives there; nobody waits for a chunk that is not wanted any more
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.wait()
            for pipe in _pipes(process):
                with suppress(OSError):
                    pipe.close()

    def _in_process(self, chunk: bytes, width: int) -> bytes:
        process = self._free.get()
        try:
            stdin, stdout = _pipes(process)
            stdin.write(_REQUEST.pack(width, len(chunk) // width) + chunk)
            stdin.flush()
            (good,) = _ANSWER.unpack(_read(stdout, _ANSWER.size))
            if not good:
                raise SmallOrder("a point of small order")
            return _read(stdout, len(chunk) // width * POINT)
        except (OSError, EOFError, ValueError) as error:
            if isinstance(error, SmallOrder):
                raise
            raise RunError(f"a process that masks ids ended ({process.poll()}); align again") from None
        finally:
            self._free.put(process)


def _start(key: bytes) -> subprocess.Popen[bytes]:
    # Not by multiprocessing: a party that is itself a child of a run may not have children of that kind.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    stdin, _ = _pipes(process)
    stdin.write(key)  # not as an argument: those are seen by every user of the machine
    return process


def _pipes(process: subprocess.Popen[bytes]) -> tuple[BinaryIO, BinaryIO]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout  # type: ignore[return-value]


def _read(stream: BinaryIO, size: int) -> bytes:
    if len(data := stream.read(size)) < size:
        raise EOFError
    return data


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """The whole life of a worker: it ends when its party closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its party decides what an interrupt means
    try:
        mask = masking(_read(stdin, KEY))
        while True:
            width, count = _REQUEST.unpack(_read(stdin, _REQUEST.size))
            values = _read(stdin, width * count)
            try:
                masked = mask_all(mask, values, width)
            except SmallOrder:
                stdout.write(_ANSWER.pack(False))
            else:
                stdout.write(_ANSWER.pack(True) + masked)
            stdout.flush()
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # what could not be written to a party that is gone must not be tried, and complained of, once more
