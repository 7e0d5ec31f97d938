"""A peer's encrypted rows, and the products with one's own numbers that it gets back masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import seal

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows
from veracausa.crypto.backends.bfv.ciphertexts import encode, factor, load, packed_size, unpack
from veracausa.crypto.backends.bfv.envelope import unwrap, wrap
from veracausa.crypto.backends.bfv.keys import Products, PublicKey, SecretKey, cut
from veracausa.crypto.backends.bfv.packing import Indices, Packing, Turn
from veracausa.crypto.backends.bfv.parameters import ALL
from veracausa.crypto.draws import SecureDraws
from veracausa.crypto.ring import Ring

NAME = np.dtype("<u4")
"""How a reply names the batches that it answers."""


def encrypted_rows(secret: SecretKey, packing: Packing, batches: Sequence[Ring]) -> Bytes:
    """All rows: block by block, strand by strand, step by step, column by column."""
    parts = []
    for block in packing.blocks:
        rows = np.stack([batches[batch] for batch in block.batches])
        for batch, steps in zip(block.lane_batch, block.rows, strict=True):
            for row in steps:
                met = rows[batch, row] * (row >= 0)[:, None]
                parts += [secret.encrypt(np.repeat(column, packing.width)) for column in met.T]
    return wrap("rows", _shape(packing), secret.public, parts)


def _shape(packing: Packing) -> str:
    return f"{packing.sizes} {packing.columns} {packing.width}"


def asked_shape(packing: Packing, batches: Sequence[int]) -> str:
    return f"{[packing.sizes[batch] for batch in batches]} {packing.columns} {packing.width}"


class BFVRows(EncryptedRows):
    """Ciphertexts stay transformed, as they came."""

    def __init__(self, key: PublicKey, encrypted: Bytes, packing: Packing) -> None:
        self.key, self.packing = key, packing
        size = packed_size(ALL)
        payload = unwrap("rows", _shape(packing), key.fingerprint, encrypted, packing.ciphertexts * size)
        read = (load(unpack("rows", part, ALL), transformed=True) for part in cut(payload, size))
        self._blocks = [
            [[list(islice(read, packing.columns)) for _ in range(block.depth)] for _ in range(block.strands)]
            for block in packing.blocks
        ]
        """By block, strand, step and column."""

    def forward(self, batches: Sequence[int], weights: Ring, mask: Ring) -> Bytes:
        return self._reply("forward", batches, self._forward_sums(self.packing.turns(batches), weights, mask))

    def backward(self, batches: Sequence[int], gradients: Ring, mask: Ring) -> Bytes:
        return self._reply("backward", batches, self._backward_sums(self.packing.turns(batches), gradients, mask))

    def _reply(self, purpose: str, batches: Sequence[int], sums: Iterator[tuple[Products, Ring]]) -> Bytes:
        named = np.array(batches, dtype=NAME).tobytes()
        return wrap(purpose, asked_shape(self.packing, batches), self.key.fingerprint, [named, *self.key.replies(sums)])

    def _forward_sums(self, turns: Sequence[Turn], weights: Ring, mask: Ring) -> Iterator[tuple[Products, Ring]]:
        for turn in turns:
            strand, factors = -1, []
            for at, step in turn.steps:
                if at != strand:
                    strand, factors = at, [_factor(w) for w in _picked(weights, turn.requests[at]).swapaxes(0, 1)]
                products = _products(self._blocks[turn.number][at][step], factors)
                yield products, _picked(mask, turn.positions[at, step])

    def _backward_sums(self, turns: Sequence[Turn], gradients: Ring, mask: Ring) -> Iterator[tuple[Products, Ring]]:
        for turn in turns:
            masks = _lane_masks(turn, mask)
            for at in turn.strands:
                factors = [_factor(_picked(gradients, met)) for met in turn.positions[at]]
                for column, ciphertexts in enumerate(zip(*self._blocks[turn.number][at], strict=True)):
                    yield _products(ciphertexts, factors), masks[at, :, column]


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


def _lane_masks(turn: Turn, mask: Ring) -> Ring:
    """(strands, lanes, columns, width): a uniform mask for each lane, those of a batch adding up to its mask."""
    count, each = turn.lanes.shape
    drawn = SecureDraws().uniform(count, each - 1, *mask.shape[1:])
    out = np.zeros((turn.requests.size, *mask.shape[1:]), dtype=np.int64)
    out[turn.lanes[:, :-1]] = drawn
    out[turn.lanes[:, -1]] = ring.subtract(mask[turn.asked], ring.total(drawn, 1))
    return out.reshape(*turn.requests.shape, *mask.shape[1:])
