"""A peer's encrypted rows, and the products with one's own numbers that it gets back masked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import seal

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows
from veracausa.crypto.backends.bfv.ciphertexts import encode, factor, load, packed_size, unpack
from veracausa.crypto.backends.bfv.envelope import unwrap, wrap
from veracausa.crypto.backends.bfv.keys import Products, PublicKey, SecretKey, cut
from veracausa.crypto.backends.bfv.packing import Asked, Indices, Packing
from veracausa.crypto.backends.bfv.parameters import ALL
from veracausa.crypto.draws import SecureDraws
from veracausa.crypto.ring import Ring

NAME = np.dtype("<u4")
"""How a reply names the batches that it answers."""


def encrypted_rows(secret: SecretKey, packing: Packing, rows: Ring) -> Bytes:
    """All rows in both forms: by column for X·W, by lane for Xᵀ·G."""
    parts = [secret.encrypt(slots) for slots in _forward_slots(packing, rows)]
    parts += [secret.encrypt(slots) for slots in _backward_slots(packing, rows)]
    return wrap("rows", _shape(packing), secret.public, parts)


def _shape(packing: Packing) -> str:
    return f"{packing.sizes} {packing.columns} {packing.width}"


def _forward_slots(packing: Packing, rows: Ring) -> Iterator[Ring]:
    for at in range(0, packing.rows, packing.chunk_rows):
        for column in rows[at : at + packing.chunk_rows].T:
            yield np.repeat(column, packing.width)


def _backward_slots(packing: Packing, rows: Ring) -> Iterator[Ring]:
    # A row of zeros at the end, which lanes without a row meet.
    padded = np.zeros((packing.rows + 1, packing.groups * packing.group), dtype=np.int64)
    padded[: packing.rows, : packing.columns] = rows
    for of_output in packing.lane_rows:
        for group in np.split(padded, packing.groups, axis=1):
            for of_step in of_output.T:
                yield np.repeat(group[of_step], packing.width)


class BFVRows(EncryptedRows):
    """Ciphertexts stay transformed, as they came."""

    def __init__(self, key: PublicKey, encrypted: Bytes, packing: Packing) -> None:
        self.key, self.packing = key, packing
        size = packed_size(ALL)
        payload = unwrap("rows", _shape(packing), key.fingerprint, encrypted, packing.ciphertexts * size)
        loaded = [load(unpack("rows", part, ALL), transformed=True) for part in cut(payload, size)]
        end = packing.chunks * packing.columns
        self._by_column = [loaded[at : at + packing.columns] for at in range(0, end, packing.columns)]
        self._by_lane = [loaded[at : at + packing.depth] for at in range(end, len(loaded), packing.depth)]

    def forward(self, batches: Sequence[int], weights: Ring, mask: Ring) -> Bytes:
        return self._reply("forward", batches, self._forward_sums(self.packing.asked(batches), weights, mask))

    def backward(self, batches: Sequence[int], gradients: Ring, mask: Ring) -> Bytes:
        return self._reply("backward", batches, self._backward_sums(self.packing.asked(batches), gradients, mask))

    def _reply(self, purpose: str, batches: Sequence[int], sums: Iterator[tuple[Products, Ring]]) -> Bytes:
        named = np.array(batches, dtype=NAME).tobytes()
        return wrap(purpose, asked_shape(self.packing, batches), self.key.fingerprint, [named, *self.key.replies(sums)])

    def _forward_sums(self, turns: Iterable[Asked], weights: Ring, mask: Ring) -> Iterator[tuple[Products, Ring]]:
        before: Indices | None = None
        factors: list[seal.Plaintext | None] = []
        for turn in turns:
            for chunk in turn.touched_chunks():
                request = turn.chunk(turn.request, chunk)
                if before is None or not np.array_equal(request, before):
                    before, factors = request, [_factor(slots) for slots in _picked(weights, request).swapaxes(0, 1)]
                pairs = zip(self._by_column[chunk], factors, strict=True)
                products = [(ciphertext, plain) for ciphertext, plain in pairs if plain is not None]
                yield products, _picked(mask, turn.chunk(turn.position, chunk))

    def _backward_sums(self, turns: Iterable[Asked], gradients: Ring, mask: Ring) -> Iterator[tuple[Products, Ring]]:
        packing = self.packing
        for turn in turns:
            masks = _lane_masks(turn, mask)
            for output in turn.touched_outputs():
                factors = [self._lane_factor(gradients, turn.step_positions(output, i)) for i in range(packing.depth)]
                for group in range(packing.groups):
                    pairs = zip(self._by_lane[output * packing.groups + group], factors, strict=True)
                    products = [(ciphertext, plain) for ciphertext, plain in pairs if plain is not None]
                    yield products, masks[output, :, group]

    def _lane_factor(self, gradients: Ring, positions: Indices) -> seal.Plaintext | None:
        """A row of the gradients in each lane, once for each column."""
        rows = _picked(gradients, positions)
        return _factor(np.repeat(rows[:, None], self.packing.group, axis=1))


def asked_shape(packing: Packing, batches: Sequence[int]) -> str:
    return f"{[packing.sizes[batch] for batch in batches]} {packing.columns} {packing.width}"


def _picked(values: Ring, at: Indices) -> Ring:
    """values[at], and 0 where there is nothing."""
    out: Ring = values[at]
    out[at < 0] = 0
    return out


def _factor(slots: Ring) -> seal.Plaintext | None:
    """None where all are 0: SEAL refuses to multiply by that, and there is nothing to add."""
    return factor(encode(slots)) if slots.any() else None


def _lane_masks(turn: Asked, mask: Ring) -> Ring:
    """(outputs, lanes, groups, group, width): a uniform mask for each lane, those of a batch adding up to its mask."""
    packing = turn.packing
    padded = np.zeros((len(mask), packing.groups * packing.group, packing.width), dtype=np.int64)
    padded[:, : packing.columns] = mask
    out = np.zeros((packing.outputs * packing.lanes, *padded.shape[1:]), dtype=np.int64)
    draws = SecureDraws()
    for request in turn.requests():
        lanes = np.flatnonzero(turn.lane_request == request)
        drawn = draws.uniform(len(lanes) - 1, *padded.shape[1:])
        out[lanes[:-1]] = drawn
        out[lanes[-1]] = ring.subtract(padded[request], ring.total(drawn, 0))
    return out.reshape(packing.outputs, packing.lanes, packing.groups, packing.group, packing.width)
