"""An append-only record, per party, of everything that left it: step, to, kind, shape, bytes. Never payloads.

A message that releases something of rows, and says what that spends of their privacy budget, has that in its line too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from veracausa.errors import RunError
from veracausa.wire.message import Message

SPENT = ("release", "rows_digest", "rho")
"""Meta of a message that spends privacy: the release's name, whose rows, and how much."""


class Ledger:
    """What left one party. Lines reach the disk at `flush`, which comes before every checkpoint."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.bytes_sent = 0
        self.messages = 0
        self._lines: list[str] = []

    def record(self, message: Message, nbytes: int) -> None:
        self.bytes_sent += nbytes
        self.messages += 1
        if self.path is None:
            return
        line = {
            "step": message.step,
            "to": message.receiver,
            "kind": message.kind,
            "shape": message.shapes(),
            "bytes": nbytes,
        }
        line |= {name: message.meta[name] for name in SPENT if name in message.meta}
        self._lines.append(json.dumps(line, separators=(",", ":")))
        if len(self._lines) >= 256:
            self.flush()

    def flush(self) -> None:
        if self.path is None or not self._lines:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n".join(self._lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._lines.clear()

    def resume(self, messages: int, bytes_sent: int) -> None:
        """Forget what was recorded after a checkpoint that had seen so many messages."""
        self.messages, self.bytes_sent = messages, bytes_sent
        self._lines.clear()
        if self.path is not None and self.path.exists():
            kept = self.path.read_text(encoding="utf-8").splitlines(keepends=True)[:messages]
            replacement = self.path.with_suffix(".tmp")
            replacement.write_text("".join(kept), encoding="utf-8")
            replacement.replace(self.path)


def read_ledger(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a ledger; a last line torn by a crash is passed over."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise RunError(f"{path}: line {number} is damaged") from None


def releases(lines: Iterable[Mapping[str, Any]], rows_digest: str) -> dict[str, float]:
    """What each release of these rows has spent, by its name; one that was sent again counts once."""
    return {line["release"]: line["rho"] for line in lines if line.get("rows_digest") == rows_digest and "rho" in line}
