"""What the owner of rows reads from a peer's reply: its share of the products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import packed_size
from veracausa.crypto.backends.bfv.envelope import HEAD, unwrap
from veracausa.crypto.backends.bfv.keys import SecretKey, cut
from veracausa.crypto.backends.bfv.packing import Packing, Turn
from veracausa.crypto.backends.bfv.parameters import SENT
from veracausa.crypto.backends.bfv.rows import NAME, asked_shape
from veracausa.crypto.ring import Ring
from veracausa.errors import WireError


def forward_answer(secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(all rows, width) of the batches that the reply names."""
    turns, opened = _read("forward", secret, packing, reply, sizes, lambda turn: len(turn.steps))
    out = np.zeros((sum(sizes), packing.width), dtype=np.int64)
    for turn in turns:
        for strand, step in turn.steps:
            met = turn.positions[strand, step]
            out[met[met >= 0]] = _lanes(next(opened), turn, packing)[met >= 0]
    return out


def backward_answer(secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(batches, columns, width) of the batches that the reply names."""
    columns = packing.columns
    turns, opened = _read("backward", secret, packing, reply, sizes, lambda turn: columns * len(turn.strands))
    out = np.zeros((len(sizes), columns, packing.width), dtype=np.int64)
    for turn in turns:
        parts = np.zeros((*turn.requests.shape, columns, packing.width), dtype=np.int64)
        for strand in turn.strands:
            for column in range(columns):
                parts[strand, :, column] = _lanes(next(opened), turn, packing)
        out[turn.asked] = ring.total(parts.reshape(-1, columns, packing.width)[turn.lanes], 1)
    return out


def _lanes(slots: Ring, turn: Turn, packing: Packing) -> Ring:
    return slots[: turn.block.lanes * packing.width].reshape(-1, packing.width)


def _read(
    purpose: str, secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int], count: Callable[[Turn], int]
) -> tuple[list[Turn], Iterator[Ring]]:
    """What was computed, by the batches that the reply names, only such as were asked, and slots by ciphertext."""
    named = NAME.itemsize * len(sizes)
    if reply.dtype != np.uint8 or reply.ndim != 1 or reply.size < HEAD + named:
        raise WireError(purpose, f"{reply.nbytes} bytes are too few for {len(sizes)} batches")
    batches = np.frombuffer(reply[HEAD : HEAD + named].tobytes(), dtype=NAME).tolist()
    if any(b >= len(packing.sizes) or packing.sizes[b] != size for b, size in zip(batches, sizes, strict=True)):
        raise WireError(purpose, "answers other batches than were asked")
    turns = packing.turns(batches)
    size = packed_size(SENT)
    expected = named + sum(map(count, turns)) * size
    payload = unwrap(purpose, asked_shape(packing, batches), secret.public, reply, expected)
    return turns, (secret.decrypt(purpose, part) for part in cut(payload[named:], size))
