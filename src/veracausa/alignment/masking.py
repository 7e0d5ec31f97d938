"""Masked ids: an id as a point of Curve25519, multiplied by a secret exponent, in worker processes.

An id is hashed to the curve by the suite curve25519_XMD:SHA-512_ELL2_NU_ of RFC 9380. Of a point only its u-coordinate
is kept. X25519 multiplies it by a secret number that is a multiple of 8, so that whatever is not of the large prime
order vanishes, and a(bP) = b(aP). A worker process runs this module: it imports nothing that a worker does not need.
"""

from __future__ import annotations

import hashlib
import os
import secrets
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

import numpy as np
from numpy.typing import NDArray

from veracausa.errors import InputError, RunError

P = 2**255 - 19
A = 486662
UNIFORM = 48
"""Bytes that an id is expanded to before they become a point."""
POINT = 32
KEY = 32

_PADDING = hashlib.sha512(bytes(128))  # a whole block of the hash, as the expansion begins with

try:
    from gmpy2 import legendre, mpz
except ImportError:  # the same by Python's own integers, some twenty-five times slower
    mpz = int

    def legendre(value: int, prime: int) -> int:
        return -1 if pow(value, (prime - 1) // 2, prime) == prime - 1 else 1


_P = mpz(P)


class SmallOrder(ValueError):
    """A point that every exponent takes to zero: it hides nothing and matches every other such point."""


def expand(message: bytes, domain: bytes) -> bytes:
    """48 bytes that look random to whoever does not know the message; other domains give unrelated ones."""
    tag = domain + bytes([len(domain)])
    first = _PADDING.copy()
    first.update(message + UNIFORM.to_bytes(2, "big") + b"\0" + tag)
    return hashlib.sha512(first.digest() + b"\1" + tag).digest()[:UNIFORM]


def to_curve(uniform: bytes) -> bytes:
    """The u-coordinate, on the curve, of these 48 bytes: the map Elligator 2 with Z = 2."""
    t = mpz(int.from_bytes(uniform, "big")) % _P
    # 2t² = -1 has no solution, because 2 is no square modulo P and -1 is one: there is always an inverse.
    u = -A * pow(1 + 2 * t * t, -1, _P) % _P
    if legendre(u * (u * u + A * u + 1) % _P, _P) == -1:
        u = (-u - A) % _P
    return int(u).to_bytes(POINT, "little")


def new_key() -> bytes:
    """A secret exponent, from the system's generator."""
    return secrets.token_bytes(KEY)


def masking(key: bytes) -> Callable[[bytes], bytes]:
    """The map that multiplies a point by the secret exponent; `SmallOrder` where nothing would be left."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    except ImportError:
        raise InputError('alignment: cryptography is not installed; pip install "veracausa[federation]"') from None
    exchange, point = X25519PrivateKey.from_private_bytes(key).exchange, X25519PublicKey.from_public_bytes

    def mask(value: bytes) -> bytes:
        try:
            return exchange(point(value))
        except ValueError:
            raise SmallOrder("a point of small order") from None

    return mask


Points = NDArray[np.uint8]
"""(n, 32): u-coordinates, little-endian."""

SMALL_ORDER = tuple(
    value.to_bytes(POINT, "little")
    for value in (
        0,
        1,
        P - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
)
"""Of the curve and its twist, the points whose order divides 8: every exponent of X25519 takes them to zero."""

_SMALL = np.frombuffer(b"".join(SMALL_ORDER), dtype=np.uint8).reshape(-1, POINT)
_ONES = np.uint64(2**64 - 1)
_TOP = np.uint64(2**63 - 1)
_LOW = np.uint64(2**64 - 19)


def fault(points: Points) -> str | None:
    """What is wrong with points that a peer sent, in words; None where nothing is."""
    words = points.view("<u8")
    top = words[:, 3]
    beyond = (top == _TOP) & (words[:, 2] == _ONES) & (words[:, 1] == _ONES) & (words[:, 0] >= _LOW)
    if bool((beyond | (top > _TOP)).any()):
        return "holds a point that is not written in the one canonical way"
    if any(bool((points == small).all(axis=1).any()) for small in _SMALL):
        return "holds a point of small order"
    return None


def tags(points: Points) -> list[bytes]:
    """Every point as bytes, which can be compared and sorted."""
    whole = points.tobytes()
    return [whole[at : at + POINT] for at in range(0, len(whole), POINT)]


def shuffle(count: int) -> NDArray[np.int64]:
    """A secret order of `count` things, from the system's generator."""
    # Two keys of 64 bits alike keep their order: with a million rows, once in some thirty million shuffles.
    return np.argsort(np.frombuffer(os.urandom(8 * count), dtype=np.uint64), kind="stable").astype(np.int64)


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
