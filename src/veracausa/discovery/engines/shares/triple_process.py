"""A workshop in a process of its own: triples are made while the steps run, and the key never leaves it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from veracausa import errors
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.triples import Parts
from veracausa.discovery.engines.shares.triple_generator import GeneratorRound, TripleBatch, TripleGenerator, TripleSpec
from veracausa.errors import RunError, VeracausaError, WireError


class TripleGeneratorProcess:
    """A `TripleGenerator` whose `submit` returns at once. What crosses here stays on this party's machine."""

    def __init__(self, order: TripleSpec) -> None:
        here, there = socket.socketpair()
        # Not by multiprocessing: a party that is itself a child of a run may not have children of that kind.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        there.close()
        self._pipe = Connection(here.detach())
        self._say(order)

    def public_key(self, seed: bytes) -> Bytes:
        key: Bytes = self._ask("public_key", seed)
        return key

    def columns(self) -> dict[str, Parts]:
        encrypted: dict[str, Parts] = self._ask("columns")
        return encrypted

    def accept(self, keys: Mapping[str, Bytes], columns: Mapping[str, Parts]) -> None:
        self._ask("accept", keys, columns)

    def submit(self, turn: GeneratorRound, received: Mapping[str, Parts]) -> None:
        self._say(("work", (turn, received)))

    def collect(self) -> tuple[dict[str, Parts], TripleBatch | None]:
        """What came of the turn that was submitted."""
        result: tuple[dict[str, Parts], TripleBatch | None] = self._hear()
        return result

    def close(self) -> None:
        self._pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:  # in the middle of a turn that nobody wants any more
            self._process.kill()
            self._process.wait()

    def _ask(self, method: str, *arguments: Any) -> Any:
        self._say((method, arguments))
        return self._hear()

    def _say(self, what: Any) -> None:
        try:
            self._pipe.send(what)
        except OSError:
            raise self._ended() from None

    def _hear(self) -> Any:
        try:
            failed, result = self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if failed:
            raise _rebuilt(*result)
        return result

    def _ended(self) -> RunError:
        return RunError(f"the process that prepares triples ended ({self._process.poll()}); resume the run")


def _rebuilt(kind: str, field: str, message: str) -> VeracausaError:
    if kind == "WireError":
        return WireError(field, message.removeprefix(f"message refused: {field}: "))
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, VeracausaError):
        return known(message)
    return RunError(f"preparing triples failed: {kind}: {message}")


def serve(pipe: Connection) -> None:
    """The whole life of the process: it ends when its party does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its party decides what an interrupt means
    try:
        workshop = TripleGenerator(pipe.recv())
        while True:
            method, arguments = pipe.recv()
            try:
                pipe.send((False, getattr(workshop, method)(*arguments)))
            except Exception as error:  # its party must hear of it, whatever it was
                pipe.send((True, (type(error).__name__, getattr(error, "field", ""), str(error))))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
