"""The book of a passive party: which rows it has answered for, and for which head.

A head is a set of linear questions about a row, and a second head asks more of them. A row that was scored for one head
is therefore not scored for another, unless the party's own settings allow it. The book holds keyed hashes: without the
key nobody can look up an id in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from veracausa.atomic import atomic_write
from veracausa.crypto.randomness import KEY, subkey
from veracausa.errors import InputError, RunError

HASH = 16
"""Bytes of an id's hash, and of a head's."""
RECORD = 2 * HASH
KEY_FILE, RECORDS_FILE, RELEASES_FILE = "key", "answered", "releases.json"


class AnswerBook:
    """Answered rows in a file that only grows: what stands in it was answered, or was about to be."""

    def __init__(self, path: Path | None, key: bytes, second_head: bool = False) -> None:
        """`path` is the file; None: nothing is kept, for a simulation without a folder."""
        self._path, self._key, self._second_head = path, subkey(key, "blind book 1"), second_head
        self._heads: dict[bytes, set[bytes]] = {}
        if path is not None and path.is_file():
            content = path.read_bytes()
            for at in range(0, len(content) - RECORD + 1, RECORD):
                self._add(content[at : at + HASH], content[at + HASH : at + RECORD])

    def __len__(self) -> int:
        return len(self._heads)

    def _add(self, row: bytes, head: bytes) -> bool:
        heads = self._heads.setdefault(row, set())
        if head in heads:
            return False
        heads.add(head)
        return True

    def enter(self, rows: Sequence[bytes], name: bytes, party: str) -> None:
        """Write these rows down before they are answered; refused where another head had an answer for one of them.

        `name` is the head's: the hash of the ciphertexts that the party keeps.
        """
        head = subkey(self._key, "head", memoryview(name))[:HASH]
        hashed = [subkey(self._key, "row", memoryview(row))[:HASH] for row in rows]
        other = sum(bool(self._heads.get(row, set()) - {head}) for row in hashed)
        if other and not self._second_head:
            raise RunError(
                f"party {party!r} has answered for {other} of these {len(rows)} rows with another head, and a second "
                "one would tell more of them; predict other rows, or let that party set second_head = true"
            )
        fresh = b"".join(row + head for row in hashed if self._add(row, head))
        if fresh and self._path is not None:
            self._write(fresh)

    def _write(self, records: bytes) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # What a kill left half-written is no record: the next one begins in its place.
            end = os.fstat(fd).st_size // RECORD * RECORD
            os.ftruncate(fd, end)
            os.pwrite(fd, records, end)
            os.fsync(fd)
        finally:
            os.close(fd)


def lasting_key(folder: Path) -> bytes:
    """The key of a book that serves several jobs, drawn from the system when the folder is new."""
    path = folder / KEY_FILE
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, secrets.token_bytes(KEY))
            os.fsync(fd)
        finally:
            os.close(fd)
    key = path.read_bytes()
    if len(key) != KEY:
        raise InputError(f"{path}: holds {len(key)} bytes, {KEY} are needed; name another folder as book")
    return key


def releases_in(folder: Path) -> dict[str, float]:
    """The releases of sums that a party has made with this book: name and ρ, as `crypto.moments` counts them."""
    path = folder / RELEASES_FILE
    if not path.is_file():
        return {}
    try:
        found: dict[str, float] = {str(name): float(rho) for name, rho in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError, TypeError):
        raise InputError(f"{path}: is damaged; put an intact copy back") from None
    return found


def enter_release(folder: Path, name: str, rho: float) -> None:
    """Write a release down; one that is there already stays as it is."""
    known = releases_in(folder)
    if name not in known:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / RELEASES_FILE, json.dumps({**known, name: rho}).encode())


def row_names(ids: Sequence[str] | None, contents: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """What the book knows rows by, and what the dither of each follows from.

    The book goes by the id, or by the row itself where the data has no ids. The dither goes by both: a row that has
    changed gets a fresh one, and one that has not is answered as before.
    """
    digests = [hashlib.sha256(content).digest() for content in contents]
    if ids is None:
        return digests, digests
    return [id.encode() for id in ids], [
        id.encode() + b"\x1f" + digest for id, digest in zip(ids, digests, strict=True)
    ]
