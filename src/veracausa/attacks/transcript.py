"""A recorded training: what crossed from one passive party, exchange by exchange, on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veracausa.attacks.base import Exchange


class Transcript:
    """Payloads with their ids, labels and steps, read from a folder a part at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Exchange]:
        raise NotImplementedError
