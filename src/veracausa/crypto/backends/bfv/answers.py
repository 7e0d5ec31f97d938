"""What the owner of rows reads from a peer's reply: its share of the products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import packed_size
from veracausa.crypto.backends.bfv.envelope import HEAD, unwrap
from veracausa.crypto.backends.bfv.keys import SecretKey, cut
from veracausa.crypto.backends.bfv.packing import Packing, Turn
from veracausa.crypto.backends.bfv.parameters import SENT
from veracausa.crypto.backends.bfv.rows import NAME, asked_shape, backward_shares, forward_shares
from veracausa.crypto.backends.bfv.uniform import SEED, first_half
from veracausa.crypto.ring import Ring
from veracausa.errors import WireError


def forward_answer(secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(all rows, width) of the batches that the reply names."""
    turns, opened = _read("forward", secret, packing, reply, sizes, lambda turn: len(turn.steps))
    return forward_shares(turns, packing, opened, sum(sizes))


def backward_answer(secret: SecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(batches, columns, width) of the batches that the reply names."""
    columns = packing.columns
    turns, opened = _read("backward", secret, packing, reply, sizes, lambda turn: columns * len(turn.strands))
    return backward_shares(turns, packing, opened, len(sizes))


def replies_size(count: int) -> int:
    """Bytes of so many replies, with the seed of their first halves."""
    return SEED + count * packed_size(SENT)


def opened_replies(purpose: str, secret: SecretKey, payload: memoryview) -> Iterator[Ring]:
    """The slots of each reply in turn."""
    seed = bytes(payload[:SEED])
    for number, second in enumerate(cut(payload[SEED:], packed_size(SENT))):
        yield secret.decrypt(purpose, first_half(seed, number), second)


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
    expected = named + replies_size(sum(map(count, turns)))
    payload = unwrap(purpose, asked_shape(packing, batches), secret.public, reply, expected)
    return turns, opened_replies(purpose, secret, payload[named:])
