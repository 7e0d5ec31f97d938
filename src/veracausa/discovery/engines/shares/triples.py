"""All that a party does with encryption: it has the key, and makes the triples that the steps use up.

Triples of a phase take three rounds, with messages in between: masks are drawn and asked with, what was asked is
opened and products of both holders' masks are returned, and these are opened.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa import errors
from veracausa.crypto import ring
from veracausa.crypto.backends import make_encryption
from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption
from veracausa.crypto.backends.none import NoEncryption, NoEncryptionBySeeds
from veracausa.crypto.randomness import Toss, make_draws
from veracausa.crypto.ring import Ring, Small
from veracausa.crypto.triples import Needs, Parts, Shape, SourceTriples, TargetTriples, ask, open_asked, part
from veracausa.errors import RunError, VeracausaError, WireError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Pairing:
    """What one party and each of its peers must be able to multiply."""

    asks: dict[str, Shape]
    """Products of a peer's rows with numbers of this party."""
    asked: dict[str, Shape]
    """Products of this party's rows with numbers of a peer."""
    blocks: int
    """So many blocks W[i, j] this party has a share of."""
    h: int
    begins: dict[str, Indices]
    """Which of them also the peer has a share of, where this party is the one that encrypts its mask."""
    joins: dict[str, Indices]
    """The same, where the peer does; in the peer's order."""


@dataclass(frozen=True)
class TripleSpec:
    """What a generator must know to begin; the key is not in it, because a generator makes its own."""

    party: str
    encryption: str
    pairing: Pairing
    batches: list[Small]
    seed: int | None
    restart_index: int
    """How often this run was started before: masks of one start are never those of another."""


@dataclass(frozen=True)
class GeneratorRound:
    """The phases whose triples are moved on, each by one of the three rounds."""

    ask: int | None = None
    needs: Needs = field(default_factory=Needs)
    """Of the phase that is asked for."""
    answer: int | None = None
    finish: int | None = None


@dataclass
class TripleBatch:
    """One phase's triples of a party."""

    needs: Needs
    target: dict[str, TargetTriples] = field(default_factory=dict)
    source: dict[str, SourceTriples] = field(default_factory=dict)
    square_masks: Ring = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.int64))
    """(squares, blocks, h): what hides this party's share when norms are opened."""
    squares: Ring = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """(squares, blocks): a share of the squared norm of all holders' masks together."""


class TripleGenerator:
    """One party's key, its encrypted columns at the others, and theirs here."""

    def __init__(self, order: TripleSpec) -> None:
        self.order, self.pairing = order, order.pairing
        self.encryption: Encryption
        self.draws = make_draws(order.seed, order.party)
        self.rows: dict[str, tuple[EncryptedRows, EncryptedRows]] = {}
        """A peer's rows, to be multiplied by weights and by gradients."""
        self._making: dict[int, TripleBatch] = {}

    def public_key(self, seed: bytes) -> Bytes:
        """Of a new key, by the seed that all parties tossed."""
        self.encryption = make_encryption(self.order.encryption, Toss(seed), self.order.party)
        if isinstance(self.encryption, NoEncryption):
            self.encryption = NoEncryptionBySeeds()
        return self.encryption.public_key()

    def columns(self) -> dict[str, Parts]:
        """This party's rows for every peer, encrypted."""
        encrypted = {}
        for peer, shape in self.pairing.asked.items():
            encrypted[peer] = {"rows": self.encryption.encrypt_rows(peer, self.order.batches, shape.gradient_width)}
            if shape.width != shape.gradient_width:
                encrypted[peer]["wide"] = self.encryption.encrypt_rows(peer, self.order.batches, shape.width)
        return encrypted

    def accept(self, keys: Mapping[str, Bytes], columns: Mapping[str, Parts]) -> None:
        """Take in the others' keys and rows."""
        for peer, shape in self.pairing.asks.items():
            self.encryption.meet(peer, keys[peer])
            rows = self._open_rows(peer, part(columns[peer], "rows", "columns"), shape.gradient_width)
            wide = rows
            if shape.width != shape.gradient_width:
                wide = self._open_rows(peer, part(columns[peer], "wide", "columns"), shape.width)
            self.rows[peer] = (wide, rows)

    def _open_rows(self, peer: str, encrypted: Bytes, width: int) -> EncryptedRows:
        shape = self.pairing.asks[peer]
        return self.encryption.open_rows(peer, encrypted, shape.sizes, shape.columns, width)

    def work(self, this: GeneratorRound, received: Mapping[str, Parts]) -> tuple[dict[str, Parts], TripleBatch | None]:
        """One round of up to three phases, given what the peers' last one sent: what to send, and what is ready."""
        sent: dict[str, Parts] = {peer: {} for peer in self.pairing.asks}
        ready = None if this.finish is None else self._finish(this.finish, received)
        if this.answer is not None:
            self._answer(this.answer, received, sent)
        if this.ask is not None:
            self._ask(this.ask, this.needs, sent)
        return sent, ready

    def _ask(self, phase: int, needs: Needs, sent: dict[str, Parts]) -> None:
        restart_index = self.order.restart_index
        made = self._making[phase] = TripleBatch(needs)
        for peer, shape in self.pairing.asks.items():
            masks = self.draws.masks("triples", restart_index, phase, peer)
            made.target[peer], parts = ask(shape, *self.rows[peer], needs, masks)
            sent[peer].update(parts)
        if not needs.squares:
            return
        masks = self.draws.masks("squares", restart_index, phase)
        made.square_masks = masks.uniform(needs.squares, self.pairing.blocks, self.pairing.h)
        made.squares = ring.total(ring.multiply(made.square_masks, made.square_masks), 2)
        for peer, blocks in self.pairing.begins.items():
            if len(blocks):
                sent[peer]["factors"] = self.encryption.encrypt(peer, phase, made.square_masks[:, blocks])

    def _answer(self, phase: int, received: Mapping[str, Parts], sent: dict[str, Parts]) -> None:
        made = self._making[phase]
        for peer, shape in self.pairing.asked.items():
            made.source[peer] = open_asked(shape, self.encryption, made.needs, received[peer])
        for peer, blocks in self.pairing.joins.items():
            if made.needs.squares and len(blocks):
                mine = made.square_masks[:, blocks]
                masks = self.draws.masks("products", self.order.restart_index, phase, peer)
                asked = part(received[peer], "factors")
                sent[peer]["products"], kept = self.encryption.products(peer, phase, asked, mine, masks)
                self._add_products(made, blocks, kept)

    def _finish(self, phase: int, received: Mapping[str, Parts]) -> TripleBatch:
        made = self._making.pop(phase)
        for peer, blocks in self.pairing.begins.items():
            if made.needs.squares and len(blocks):
                shape = made.square_masks[:, blocks].shape
                opened = self.encryption.decrypt_products(part(received[peer], "products"), shape)
                self._add_products(made, blocks, opened)
        return made

    @staticmethod
    def _add_products(made: TripleBatch, blocks: np.ndarray, products: Ring) -> None:
        # (A + B)² = A² + B² + 2·A·B, with the last one shared.
        made.squares[:, blocks] = ring.add_scaled(made.squares[:, blocks], ring.total(products, 2), 2)


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
        self._submitted: deque[int] = deque()
        """The searches whose rounds it works on, in their order."""
        self._done: dict[int, tuple[dict[str, Parts], TripleBatch | None]] = {}
        self._say(order)

    def public_key(self, seed: bytes) -> Bytes:
        key: Bytes = self._ask("public_key", seed)
        return key

    def columns(self) -> dict[str, Parts]:
        encrypted: dict[str, Parts] = self._ask("columns")
        return encrypted

    def accept(self, keys: Mapping[str, Bytes], columns: Mapping[str, Parts]) -> None:
        self._ask("accept", keys, columns)

    def submit(self, search: int, this: GeneratorRound, received: Mapping[str, Parts]) -> None:
        self._submitted.append(search)
        self._say(("work", (this, received)))

    def collect(self, search: int) -> tuple[dict[str, Parts], TripleBatch | None]:
        """What came of the round that was submitted for a search; those of other searches may come before it."""
        while search not in self._done:
            self._done[self._submitted.popleft()] = self._hear()
        return self._done.pop(search)

    def close(self) -> None:
        self._pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:  # in the middle of a round that nobody wants any more
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
    """All that the process does: it ends when its party does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its party decides what an interrupt means
    try:
        generator = TripleGenerator(pipe.recv())
        while True:
            method, arguments = pipe.recv()
            try:
                pipe.send((False, getattr(generator, method)(*arguments)))
            except Exception as error:  # its party must hear of it, whatever it was
                pipe.send((True, (type(error).__name__, getattr(error, "field", ""), str(error))))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    # Classes of `__main__` have no home that the party could find: what is sent must come from the module itself.
    from veracausa.discovery.engines.shares import triples

    triples.serve(Connection(int(sys.argv[1])))
