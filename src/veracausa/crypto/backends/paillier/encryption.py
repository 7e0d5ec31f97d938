"""Paillier behind the contract: several integers in one plaintext, with room for sums of products and a mask.

A ciphertext is multiplied as a whole, so its slots share their factor. For X·W it holds many rows of one column, for
Xᵀ·G all columns of one row. Results of several factors are moved into one ciphertext before it is masked, because a
fresh randomiser for each costs more than all multiplications.

A result v is an integer, not an element of the field: its size tells more than its residue. So beside the mask of the
field, t, a random multiple of P is added: y = v + t + P·ρ. The opener takes y modulo P, which is exactly the ring's
result. What else y tells is ρ + ⌊(v + t) / P⌋, and ρ is uniform over 2^STATISTICAL_BITS times as many numbers as that
fraction can be: whatever v is, y is within 2^−STATISTICAL_BITS (statistical distance, a slot) of a number that is made
from the ring's result alone. Distances add up: 2^26 slots, a long training, leave 2^−38.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from gmpy2 import mpz, powmod

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption
from veracausa.crypto.backends.paillier.keys import PaillierPublicKey, PaillierSecretKey
from veracausa.crypto.fixed_point import VALUE_BITS, VALUE_LIMIT
from veracausa.crypto.randomness import Masks, Toss
from veracausa.crypto.ring import BITS, P, Ring, Small
from veracausa.errors import InputError, WireError

STATISTICAL_BITS = 64
LARGEST_VALUE = int(VALUE_LIMIT * 2**VALUE_BITS)


@dataclass(frozen=True)
class Slots:
    """`count` slots of `bits` bits."""

    bits: int
    count: int
    offset: int
    """Multiples of P that keep a slot from falling below 0."""
    spread: int
    """Bits of the random multiple of P."""

    def pack(self, values: Sequence[int]) -> int:
        """Signed integers, the first in the lowest slot."""
        packed = mpz(0)
        for value in reversed(values):
            packed = (packed << self.bits) + value
        return int(packed)

    def hide(self, masks: Sequence[int]) -> int:
        """What is added to results so that their opener learns their residues only."""
        return self.pack([mask + P * (self.offset + secrets.randbits(self.spread)) for mask in masks])

    def open(self, packed: int, count: int) -> list[int]:
        """The residues of so many slots; none where there is more than fits."""
        if packed.bit_length() > self.bits * count:
            return []
        lowest = (mpz(1) << self.bits) - 1
        return [int((packed >> (self.bits * at) & lowest) % P) for at in range(count)]


@lru_cache(maxsize=64)
def slots_for(terms: int, largest: int, key_bits: int) -> Slots:
    """Slots for sums of so many products of elements of the field with integers up to `largest` in magnitude."""
    bound = terms * largest * (P - 1)
    offset = -(-bound // P)
    spread = STATISTICAL_BITS + (offset + 1).bit_length()
    highest = bound + P - 1 + P * (offset + (1 << spread) - 1)
    bits = highest.bit_length()
    count = (key_bits - 1) // bits  # a plaintext stays below 2^(key_bits − 1), and so below M
    if count < 1:
        raise InputError(
            f"a Paillier key of {key_bits} bits holds no masked sum of {terms} products: take smaller batches"
        )
    return Slots(bits, count, offset, spread)


@dataclass(frozen=True)
class Blocks:
    """How a matrix of results, (height, width), lies in ciphertexts: whole columns of it, as many as fit."""

    slots: Slots
    height: int
    width: int

    @property
    def columns(self) -> int:
        """Of one ciphertext."""
        return self.slots.count // self.height

    @property
    def ciphertexts(self) -> int:
        return -(-self.width // self.columns)

    def hiding(self, mask: Ring) -> list[int]:
        """What hides each ciphertext's part of a (height, width) matrix."""
        return [self.slots.hide(mask[:, at].T.ravel().tolist()) for at in self._parts()]

    def open(self, plains: Sequence[int]) -> Ring | None:
        """The matrix of residues, or None where a plaintext is larger than an honest one."""
        opened = []
        for plain, at in zip(plains, self._parts(), strict=True):
            residues = self.slots.open(plain, self.height * (at.stop - at.start))
            if not residues:
                return None
            opened.append(np.array(residues, dtype=np.int64).reshape(-1, self.height).T)
        return np.concatenate(opened, axis=1)

    def _parts(self) -> list[slice]:
        return [slice(at, min(at + self.columns, self.width)) for at in range(0, self.width, self.columns)]


KEY_BITS = 3072
"""What is rated at 128 bits of security."""


def forward_blocks(n: int, columns: int, width: int, key_bits: int) -> list[Blocks]:
    """Of X·W for one batch: as many rows as fit, then the next."""
    slots = slots_for(columns, LARGEST_VALUE, key_bits)
    return [Blocks(slots, height, width) for height in _cut(n, slots)]


def backward_blocks(n: int, columns: int, width: int, key_bits: int) -> list[Blocks]:
    """Of Xᵀ·G for one batch: as many columns as fit, then the next."""
    slots = slots_for(n, LARGEST_VALUE, key_bits)
    return [Blocks(slots, height, width) for height in _cut(columns, slots)]


def product_blocks(count: int, key_bits: int) -> Blocks:
    return Blocks(slots_for(1, P - 1, key_bits), 1, count)


def _cut(length: int, slots: Slots) -> list[int]:
    return [min(slots.count, length - at) for at in range(0, length, slots.count)]


class PaillierRows(EncryptedRows):
    """Per batch the ciphertexts of both packings: by part of the rows and column, by part of the columns and row."""

    def __init__(self, key: PaillierPublicKey, encrypted: Bytes, sizes: Sequence[int], columns: int) -> None:
        self.key, self.sizes, self.columns = key, list(sizes), columns
        shapes = [
            (len(forward_blocks(n, columns, 1, key.bits)), len(backward_blocks(n, columns, 1, key.bits)))
            for n in self.sizes
        ]
        count = sum(rows * columns + n * cols for (rows, cols), n in zip(shapes, self.sizes, strict=True))
        read = iter(key.read_ciphertexts("rows", encrypted, count))
        self.by_column, self.by_row = [], []
        for (over_rows, over_columns), n in zip(shapes, self.sizes, strict=True):
            self.by_column.append([list(islice(read, columns)) for _ in range(over_rows)])
            self.by_row.append([list(islice(read, n)) for _ in range(over_columns)])

    def forward(self, batches: Sequence[int], weights: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        kept = masks.uniform(sum(self.sizes[b] for b in batches), weights.shape[2])
        parts = np.split(ring.negative(kept), np.cumsum([self.sizes[b] for b in batches])[:-1])
        replies: list[int] = []
        for b, w, m in zip(batches, weights, parts, strict=True):
            blocks = forward_blocks(self.sizes[b], self.columns, kept.shape[1], self.key.bits)
            replies += self._masked(blocks, self.by_column[b], w, m)
        return self.key.write_ciphertexts("forward", replies), kept

    def backward(self, batches: Sequence[int], gradients: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        kept = masks.uniform(len(batches), self.columns, gradients.shape[1])
        parts = np.split(gradients, np.cumsum([self.sizes[b] for b in batches])[:-1])
        replies: list[int] = []
        for b, g, m in zip(batches, parts, ring.negative(kept), strict=True):
            blocks = backward_blocks(self.sizes[b], self.columns, kept.shape[2], self.key.bits)
            replies += self._masked(blocks, self.by_row[b], g, m)
        return self.key.write_ciphertexts("backward", replies), kept

    def _masked(self, blocks: list[Blocks], terms: list[list[int]], scalars: Ring, mask: Ring) -> Iterator[int]:
        """Σ over terms, times scalars, (terms, width), + mask, (sum of the blocks' heights, width)."""
        top = 0
        for block, ciphertexts in zip(blocks, terms, strict=True):
            products = combinations(ciphertexts, scalars, self.key.square)
            yield from masked(self.key, block, products, mask[top : top + block.height])
            top += block.height


def masked(key: PaillierPublicKey, blocks: Blocks, products: Sequence[int], mask: Ring) -> Iterator[int]:
    """One ciphertext a column of results, put together and hidden."""
    for number, hiding in enumerate(blocks.hiding(mask)):
        together = products[number * blocks.columns : (number + 1) * blocks.columns]
        yield key.add(shifted(together, blocks.slots.bits * blocks.height, key.square), hiding)


class Paillier(Encryption):
    """One party's Paillier key. Semi-honest peers; the encryption of data rests on composite residuosity."""

    name = "paillier"
    protects = True

    def __init__(self, toss: Toss | None = None, party: str = "", bits: int = KEY_BITS) -> None:
        """Nothing of it is tossed for: a ciphertext's randomness is its owner's own."""
        if bits < KEY_BITS:
            raise InputError(f"a Paillier key of {bits} bits protects too little; take {KEY_BITS} at least")
        self._make_key(bits)

    @classmethod
    def with_insecure_key(cls, bits: int) -> Paillier:
        """For tests: a key that is quick to make, and to break."""
        made = cls.__new__(cls)
        made._make_key(bits)
        made.protects = False
        return made

    def _make_key(self, bits: int) -> None:
        self._secret = PaillierSecretKey(bits)
        self._peers: dict[str, PaillierPublicKey] = {}

    @property
    def bits(self) -> int:
        return self._secret.public.bits

    def public_key(self) -> Bytes:
        return self._secret.public.write()

    def meet(self, peer: str, key: Bytes) -> None:
        """It has as many bits as one's own."""
        self._peers[peer] = PaillierPublicKey.read(key, self.bits)

    def encrypt_rows(self, peer: str, batches: Sequence[Small], width: int) -> Bytes:
        """Both packings of every batch; they serve any width."""
        plains: list[int] = []
        for batch in batches:
            if np.abs(batch).max(initial=0.0) > LARGEST_VALUE:
                raise InputError(f"a value is larger than {LARGEST_VALUE} units, more than a slot holds: clip it")
            n, columns = batch.shape
            by_column = forward_blocks(n, columns, 1, self.bits)
            by_row = backward_blocks(n, columns, 1, self.bits)
            x = batch.astype(np.int64)
            plains += _packed(by_column, x) + _packed(by_row, x.T)
        return self._secret.public.write_ciphertexts("rows", map(self._secret.encrypt, plains))

    def open_rows(self, peer: str, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        return PaillierRows(self._peers[peer], encrypted, sizes, columns)

    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        blocks = [block for n in sizes for block in forward_blocks(n, columns, width, self.bits)]
        return np.concatenate(self._open("forward", reply, blocks))

    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        blocks = [block for n in sizes for block in backward_blocks(n, columns, width, self.bits)]
        return np.concatenate(self._open("backward", reply, blocks)).reshape(len(sizes), columns, width)

    def encrypt(self, peer: str, number: int, values: Ring) -> Bytes:
        """A ciphertext an element: each will have a factor of its own."""
        return self._secret.public.write_ciphertexts("values", map(self._secret.encrypt, values.ravel().tolist()))

    def products(self, peer: str, number: int, encrypted: Bytes, values: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        key, kept = self._peers[peer], masks.uniform(*values.shape)
        read = key.read_ciphertexts("values", encrypted, values.size)
        scaled = [
            combinations([c], factor, key.square)[0] for c, factor in zip(read, values.reshape(-1, 1, 1), strict=True)
        ]
        blocks = product_blocks(values.size, key.bits)
        hidden = masked(key, blocks, scaled, ring.negative(kept).reshape(1, -1))
        return key.write_ciphertexts("products", hidden), kept

    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return self._open("products", reply, [product_blocks(int(np.prod(shape)), self.bits)])[0].reshape(shape)

    def _open(self, purpose: str, reply: Bytes, blocks: Sequence[Blocks]) -> list[Ring]:
        """The matrix of each block, of a reply that holds exactly these."""
        count = sum(block.ciphertexts for block in blocks)
        plains = map(self._secret.decrypt, self._secret.public.read_ciphertexts(purpose, reply, count))
        opened = []
        for block in blocks:
            matrix = block.open(list(islice(plains, block.ciphertexts)))
            if matrix is None:
                raise WireError(purpose, "a plaintext is larger than any masked result")
            opened.append(matrix)
        return opened


def _packed(blocks: Sequence[Blocks], x: Ring) -> list[int]:
    """The columns of (sum of heights, terms) signed integers, block by block."""
    parts = np.split(x, np.cumsum([block.height for block in blocks])[:-1])
    return [block.slots.pack(column) for block, part in zip(blocks, parts, strict=True) for column in part.T.tolist()]


def combinations(ciphertexts: Sequence[int], scalars: Ring, modulus: int) -> list[int]:
    """Π c_a^s[a, j] for every column j of the scalars (terms, width).

    Powers of a ciphertext are made once for all columns, and squarings come once for all terms (Straus' method), with
    the window that needs the fewest multiplications.
    """
    width = scalars.shape[1]
    window = min(range(1, 9), key=lambda w: 2**w + width * -(-BITS // w))
    shifts = np.arange(0, BITS, window)
    digits = scalars[..., None] >> shifts & (2**window - 1)
    sums = [[mpz(1)] * len(shifts) for _ in range(width)]
    for c, rows in zip(ciphertexts, digits.tolist(), strict=True):
        powers = [mpz(1), c]
        for _ in range(2, 2**window):
            powers.append(powers[-1] * c % modulus)
        for total, row in zip(sums, rows, strict=True):
            for at, digit in enumerate(row):
                if digit:
                    total[at] = total[at] * powers[digit] % modulus
    return [shifted(total, window, modulus) for total in sums]


def shifted(ciphertexts: Sequence[int], bits: int, modulus: int) -> int:
    """Σ of the plaintexts, each `bits` bits higher than the one before it."""
    shift = mpz(1) << bits
    out = ciphertexts[-1]
    for c in reversed(ciphertexts[:-1]):
        out = powmod(out, shift, modulus) * c % modulus
    return out
