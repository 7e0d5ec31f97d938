"""What a party remembers of sums that it has released of its rows, over all discoveries that share its book.

Two exact releases that differ by a row tell that row. So a release counts against every later one that has a row in
common with it. The book holds keyed hashes of ids: without its key nobody can look up an id in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from veracausa.atomic import atomic_write
from veracausa.crypto.randomness import subkey
from veracausa.errors import InputError
from veracausa.training.blind.book import HASH, enter_release, lasting_key, releases_in

BOOK = "releases"
"""The folder of a member's book, beside its run."""
_NAME = re.compile(r"[0-9a-f]{1,64}")


class ReleaseBook:
    """The releases of one party, each with the rows that it summed up.

    Blind training writes releases without rows into a book that it shares. Such a one counts for all rows.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entered: set[str] = set()

    def earlier(self, rows: Sequence[bytes]) -> dict[str, float]:
        """The ρ of every release that has one of these rows, by name."""
        known = releases_in(self.folder)
        if not known:
            return {}
        own = set(self._hashed(rows))
        return {name: rho for name, rho in known.items() if (there := self._rows_of(name)) is None or there & own}

    def enter(self, name: str, rho: float, rows: Sequence[bytes]) -> None:
        """Write a release down, before anything of it leaves; one that is there already stays as it is."""
        if name in self._entered:
            return
        # The rows come first: a release without them counts for all rows.
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path(name), b"".join(sorted(self._hashed(rows))))
        enter_release(self.folder, name, rho)
        self._entered.add(name)

    def _hashed(self, rows: Iterable[bytes]) -> list[bytes]:
        key = subkey(lasting_key(self.folder), "releases 1")
        return [subkey(key, "row", memoryview(row))[:HASH] for row in rows]

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InputError(f"{self.folder}: {name!r} is no name of a release; put an intact copy back")
        return self.folder / f"rows-{name}"

    def _rows_of(self, name: str) -> set[bytes] | None:
        path = self._path(name)
        if not path.is_file():
            return None
        content = path.read_bytes()
        if len(content) % HASH:
            raise InputError(f"{path}: is damaged; put an intact copy back")
        return {content[at : at + HASH] for at in range(0, len(content), HASH)}
