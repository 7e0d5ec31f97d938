"""What the owner of rows reads from a peer's reply: its share of the products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import packed_size
from veracausa.crypto.backends.bfv.envelope import HEAD, unwrap
from veracausa.crypto.backends.bfv.keys import SecretKey, cut
from veracausa.crypto.backends.bfv.packing import Asked, Packing
from veracausa.crypto.backends.bfv.parameters import SENT
from veracausa.crypto.backends.bfv.rows import NAME, asked_shape
from veracausa.crypto.ring import Ring
from veracausa.errors import WireError


def forward_answer(secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(all rows, width) of the batches that the reply names."""
    turns, opened = _read("forward", secret, packing, reply, sizes, lambda turn: len(turn.touched_chunks()))
    out = np.zeros((sum(sizes), packing.width), dtype=np.int64)
    for turn in turns:
        for chunk in turn.touched_chunks():
            position = turn.chunk(turn.position, chunk)
            rows = next(opened)[: packing.chunk_rows * packing.width].reshape(-1, packing.width)
            out[position[position >= 0]] = rows[position >= 0]
    return out


def backward_answer(secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(batches, columns, width) of the batches that the reply names."""
    groups = packing.groups

    def outputs(turn: Asked) -> int:
        return groups * len(turn.touched_outputs())

    turns, opened = _read("backward", secret, packing, reply, sizes, outputs)
    out = np.zeros((len(sizes), packing.columns, packing.width), dtype=np.int64)
    shape = (packing.lanes, packing.group, packing.width)
    for turn in turns:
        lanes = np.zeros((packing.outputs, packing.lanes, groups, packing.group, packing.width), dtype=np.int64)
        for output in turn.touched_outputs():
            for group in range(groups):
                lanes[output, :, group] = next(opened)[: int(np.prod(shape))].reshape(shape)
        by_lane = lanes.reshape(packing.outputs * packing.lanes, -1, packing.width)[:, : packing.columns]
        for request in turn.requests():
            out[request] = ring.total(by_lane[turn.lane_request == request], 0)
    return out


def _read(
    purpose: str, secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int], count: Callable[[Asked], int]
) -> tuple[list[Asked], Iterator[Ring]]:
    """What was computed, by the batches that the reply names, only such as were asked, and slots by ciphertext."""
    named = NAME.itemsize * len(sizes)
    if reply.dtype != np.uint8 or reply.ndim != 1 or reply.size < HEAD + named:
        raise WireError(purpose, f"{reply.nbytes} bytes are too few for {len(sizes)} batches")
    batches = np.frombuffer(reply[HEAD : HEAD + named].tobytes(), dtype=NAME).tolist()
    if any(b >= len(packing.sizes) or packing.sizes[b] != size for b, size in zip(batches, sizes, strict=True)):
        raise WireError(purpose, "answers other batches than were asked")
    turns = packing.asked(batches)
    size = packed_size(SENT)
    expected = named + sum(map(count, turns)) * size
    payload = unwrap(purpose, asked_shape(packing, batches), secret.public, reply, expected)
    return turns, (secret.decrypt(purpose, part) for part in cut(payload[named:], size))
