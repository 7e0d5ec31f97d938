"""BFV behind the contract: rows encrypted once, multiplied by a peer, masked, and sent back small.

`Packing` says where rows and results lie. A reply holds masked sums only, and its size follows from agreed shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Self

import numpy as np
import seal

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows, KeepableEncryption
from veracausa.crypto.backends.bfv.ciphertexts import (
    ALL,
    DEGREE,
    HEAD,
    SENT,
    encode,
    factor,
    packed_size,
    unpack,
    unwrap,
    wrap,
)
from veracausa.crypto.backends.bfv.keys import SEED, BfvPublicKey, BfvSecretKey, Products, chunks, first_half
from veracausa.crypto.backends.bfv.packing import Indices, Packing, ReplyPacking
from veracausa.crypto.randomness import Masks, Toss
from veracausa.crypto.ring import Ring, Small
from veracausa.errors import WireError


class BFV(KeepableEncryption):
    """One party's BFV key. All that is hidden rests on ring-LWE, with polynomials that no party chose.

    Masks come from replies themselves, and so from the system, whatever the caller would draw them from.
    """

    name = "bfv"
    protects = True

    def __init__(self, toss: Toss, party: str, secret: BfvSecretKey | None = None) -> None:
        """`secret`: one that was kept; else a new one is made."""
        self.party, self._toss = party, toss
        self._secret = secret or BfvSecretKey(toss, party)
        self._peers: dict[str, BfvPublicKey] = {}
        self._packings: dict[tuple[int, int], Packing] = {}
        """Of the rows that were encrypted here, by columns and width."""

    def public_key(self) -> Bytes:
        return self._secret.public_bytes

    def secret_bytes(self) -> bytes:
        return self._secret.secret_bytes()

    @classmethod
    def of_kept(cls, kept: bytes, toss: Toss, party: str, public_key: Bytes) -> Self:
        return cls(toss, party, BfvSecretKey.of_kept(kept, toss, party, public_key))

    def expect_rows(self, sizes: Sequence[int], columns: int, width: int) -> None:
        self._packings[columns, width] = Packing(tuple(sizes), columns, width)

    def meet(self, peer: str, key: Bytes) -> None:
        self._peers[peer] = BfvPublicKey(self._toss, peer, key)

    def encrypt_rows(self, peer: str, batches: Sequence[Small], width: int) -> Bytes:
        packing = Packing(tuple(len(batch) for batch in batches), batches[0].shape[1], width)
        self._packings[packing.columns, width] = packing
        whole = [ring.reduce(batch.astype(np.int64)) for batch in batches]
        return encrypted_rows(self._secret, peer, packing, whole)

    def open_rows(self, peer: str, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        return BFVRows(self._peers[peer], self.party, encrypted, Packing(tuple(sizes), columns, width))

    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return forward_answer(self._secret, self._packing("forward", columns, width), reply, sizes)

    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return backward_answer(self._secret, self._packing("backward", columns, width), reply, sizes)

    def encrypt(self, peer: str, number: int, values: Ring) -> Bytes:
        return encrypted_values(self._secret, peer, number, values)

    def products(self, peer: str, number: int, encrypted: Bytes, values: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        return products_with(self._peers[peer], self.party, number, encrypted, values)

    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return decrypted_products(self._secret, reply, shape)

    def _packing(self, purpose: str, columns: int, width: int) -> Packing:
        if (columns, width) not in self._packings:
            raise WireError(purpose, "answers rows that were never encrypted here")
        return self._packings[columns, width]


NAME = np.dtype("<u4")
"""How a reply names the batches that it answers."""


def encrypted_rows(secret: BfvSecretKey, peer: str, packing: Packing, batches: Sequence[Ring]) -> Bytes:
    """All rows: block by block, strand by strand, step by step, column by column."""
    parts: list[bytes] = []
    label = _label(peer, packing)
    for block in packing.blocks:
        rows = np.stack([batches[batch] for batch in block.batches])
        for batch, steps in zip(block.lane_batch, block.rows, strict=True):
            for row in steps:
                met = rows[batch, row] * (row >= 0)[:, None]
                for column in met.T:
                    parts.append(secret.encrypt(np.repeat(column, packing.width), *label, len(parts)))
    return wrap("rows", _shape(peer, packing), secret.public, parts)


def _label(peer: str, packing: Packing) -> tuple[str | int, ...]:
    """What the second halves are tossed for: rows of these sizes for this peer, which are encrypted once."""
    return "rows", peer, packing.columns, packing.width


def _shape(peer: str, packing: Packing) -> str:
    return f"{peer} {packing.sizes} {packing.columns} {packing.width}"


def asked_shape(packing: Packing, batches: Sequence[int]) -> str:
    return f"{[packing.sizes[batch] for batch in batches]} {packing.columns} {packing.width}"


class BFVRows(EncryptedRows):
    """Ciphertexts stay transformed, as they came."""

    def __init__(self, key: BfvPublicKey, peer: str, encrypted: Bytes, packing: Packing) -> None:
        """Of the owner of `key`, for `peer`, which is the party that computes here."""
        self.key, self.packing = key, packing
        size = packed_size(ALL)
        payload = unwrap("rows", _shape(peer, packing), key.fingerprint, encrypted, packing.ciphertexts * size)
        label = _label(peer, packing)
        numbered = zip(chunks(payload, size), count(), strict=False)
        read = (key.ciphertext(unpack("rows", part, ALL), *label, number) for part, number in numbered)
        self._blocks = [
            [[list(islice(read, packing.columns)) for _ in range(block.depth)] for _ in range(block.strands)]
            for block in packing.blocks
        ]
        """By block, strand, step and column."""

    def forward(self, batches: Sequence[int], weights: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        turns, packing = self.packing.turns(batches), self.packing
        reply, shares = self._reply("forward", batches, self._forward_sums(turns, weights))
        return reply, forward_shares(turns, packing, shares, sum(packing.sizes[batch] for batch in batches))

    def backward(self, batches: Sequence[int], gradients: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        turns = self.packing.turns(batches)
        reply, shares = self._reply("backward", batches, self._backward_sums(turns, gradients))
        return reply, backward_shares(turns, self.packing, shares, len(batches))

    def _reply(self, purpose: str, batches: Sequence[int], sums: Iterator[Products]) -> tuple[Bytes, Iterator[Ring]]:
        named = np.array(batches, dtype=NAME).tobytes()
        parts, shares = self.key.replies(sums)
        shape = asked_shape(self.packing, batches)
        return wrap(purpose, shape, self.key.fingerprint, [named, *parts]), iter(shares)

    def _forward_sums(self, turns: Sequence[ReplyPacking], weights: Ring) -> Iterator[Products]:
        for turn in turns:
            strand, factors = -1, []
            for at, step in turn.steps:
                if at != strand:
                    strand, factors = at, [_factor(w) for w in _picked(weights, turn.requests[at]).swapaxes(0, 1)]
                yield _products(self._blocks[turn.number][at][step], factors)

    def _backward_sums(self, turns: Sequence[ReplyPacking], gradients: Ring) -> Iterator[Products]:
        for turn in turns:
            for at in turn.strands:
                factors = [_factor(_picked(gradients, met)) for met in turn.positions[at]]
                for ciphertexts in zip(*self._blocks[turn.number][at], strict=True):
                    yield _products(ciphertexts, factors)


def forward_shares(turns: Sequence[ReplyPacking], packing: Packing, slots: Iterator[Ring], rows: int) -> Ring:
    """(all rows, width), from the slots of every reply in turn."""
    out = np.zeros((rows, packing.width), dtype=np.int64)
    for turn in turns:
        for strand, step in turn.steps:
            met = turn.positions[strand, step]
            out[met[met >= 0]] = _lanes(next(slots), turn, packing)[met >= 0]
    return out


def backward_shares(turns: Sequence[ReplyPacking], packing: Packing, slots: Iterator[Ring], asked: int) -> Ring:
    """(batches, columns, width): lanes of a batch hold parts of its sum, each under a mask of its own."""
    columns = packing.columns
    out = np.zeros((asked, columns, packing.width), dtype=np.int64)
    for turn in turns:
        parts = np.zeros((*turn.requests.shape, columns, packing.width), dtype=np.int64)
        for strand in turn.strands:
            for column in range(columns):
                parts[strand, :, column] = _lanes(next(slots), turn, packing)
        out[turn.asked] = ring.total(parts.reshape(-1, columns, packing.width)[turn.lanes], 1)
    return out


def _lanes(slots: Ring, turn: ReplyPacking, packing: Packing) -> Ring:
    return slots[: turn.block.lanes * packing.width].reshape(-1, packing.width)


def _picked(values: Ring, at: Indices) -> Ring:
    """values[at], and 0 where there is nothing."""
    out: Ring = values[at]
    out[at < 0] = 0
    return out


def _factor(slots: Ring) -> seal.Plaintext | None:
    """None where all are 0: SEAL refuses to multiply by that, and there is nothing to add."""
    return factor(encode(slots)) if slots.any() else None


def _products(ciphertexts: Sequence[seal.Ciphertext], factors: Sequence[seal.Plaintext | None]) -> Products:
    pairs = zip(ciphertexts, factors, strict=True)
    return [(ciphertext, plain) for ciphertext, plain in pairs if plain is not None]


def encrypted_values(secret: BfvSecretKey, peer: str, number: int, values: Ring) -> Bytes:
    """For one peer; `number` says which, and none is used twice."""
    parts = [secret.encrypt(part, "values", peer, number, at) for at, part in enumerate(_parts(values))]
    return wrap("values", _value_shape(peer, number, values.shape), secret.public, parts)


def products_with(key: BfvPublicKey, peer: str, number: int, encrypted: Bytes, values: Ring) -> tuple[Bytes, Ring]:
    """Each value that the key's owner encrypted for `peer` times one's own: the reply, and one's own share."""
    size, shape = packed_size(ALL), _value_shape(peer, number, values.shape)
    payload = unwrap("values", shape, key.fingerprint, encrypted, _count(values.size) * size)

    def sums() -> Iterator[Products]:
        for at, (part, own) in enumerate(zip(chunks(payload, size), _parts(values), strict=True)):
            ciphertext = key.ciphertext(unpack("values", part, ALL), "values", peer, number, at)
            yield [(ciphertext, factor(encode(own)))] if own.any() else []

    parts, shares = key.replies(sums())
    return wrap("products", f"{values.shape}", key.fingerprint, parts), _whole(shares, values.shape)


def decrypted_products(secret: BfvSecretKey, reply: Bytes, shape: tuple[int, ...]) -> Ring:
    count = _count(int(np.prod(shape)))
    payload = unwrap("products", f"{shape}", secret.public, reply, replies_size(count))
    return _whole(list(opened_replies("products", secret, payload)), shape)


def _value_shape(peer: str, number: int, shape: tuple[int, ...]) -> str:
    return f"{peer} {number} {shape}"


def _whole(slots: list[Ring], shape: tuple[int, ...]) -> Ring:
    return np.concatenate([np.zeros(0, dtype=np.int64), *slots])[: int(np.prod(shape))].reshape(shape)


def _count(values: int) -> int:
    return -(-values // DEGREE)


def _parts(values: Ring) -> list[Ring]:
    flat = values.reshape(-1)
    return [flat[at : at + DEGREE] for at in range(0, flat.size, DEGREE)]


def forward_answer(secret: BfvSecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(all rows, width) of the batches that the reply names."""
    turns, opened = _read("forward", secret, packing, reply, sizes, lambda turn: len(turn.steps))
    return forward_shares(turns, packing, opened, sum(sizes))


def backward_answer(secret: BfvSecretKey, packing: Packing, reply: Bytes, sizes: Sequence[int]) -> Ring:
    """(batches, columns, width) of the batches that the reply names."""
    columns = packing.columns
    turns, opened = _read("backward", secret, packing, reply, sizes, lambda turn: columns * len(turn.strands))
    return backward_shares(turns, packing, opened, len(sizes))


def replies_size(count: int) -> int:
    """Bytes of so many replies, with the seed of their first halves."""
    return SEED + count * packed_size(SENT)


def opened_replies(purpose: str, secret: BfvSecretKey, payload: memoryview) -> Iterator[Ring]:
    """The slots of each reply in turn."""
    seed = bytes(payload[:SEED])
    for number, second in enumerate(chunks(payload[SEED:], packed_size(SENT))):
        yield secret.decrypt(purpose, first_half(seed, number), second)


def _read(
    purpose: str,
    secret: BfvSecretKey,
    packing: Packing,
    reply: Bytes,
    sizes: Sequence[int],
    count: Callable[[ReplyPacking], int],
) -> tuple[list[ReplyPacking], Iterator[Ring]]:
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
