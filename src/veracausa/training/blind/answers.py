"""Scores of rows from an encrypted head: integers, shares and bytes, the same with BFV and with its plaintext twin.

The active party encrypts its weights for a passive party, one ciphertext a feature. The passive party multiplies its
features of many rows at a time into them, in fixed point. What the active party decrypts and the share that the passive
party keeps add up to the scores. A passive party adds a permanent dither to its share: an answer repeats bit for bit,
and tells about as much as a score that was rounded to `blind.step`. Parties' shares are added under masks that cancel
out, so the active party opens the sum alone. With one passive party there is nothing to add: its scores are opened.

The head is encrypted once, in training. A passive party keeps the ciphertexts and answers with these very bytes in all
later sessions (`kept_head`), and its dither follows from their hash. It cannot see whether they hold the weights that
were solved from the sums: a malicious active party may choose its head, once. A second one is another training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto import ring
from veracausa.crypto.backends import EncryptedRows, Encryption, KeepableEncryption
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.randomness import Masks, expanded, subkey
from veracausa.crypto.ring import HALF, P, Ring
from veracausa.errors import InputError, RunError, WireError

FEATURE_BITS = 16
"""Fractional bits of a feature at prediction."""
WEIGHT_BITS = 16
"""Fractional bits of a weight."""
LIMBS, LIMB_BITS = 3, 10
"""A weight is cut into signed limbs that every encryption can hold: all of it has 30 bits."""
SCORE_BITS = FEATURE_BITS + WEIGHT_BITS
LARGEST_WEIGHT = 2.0 ** (LIMBS * LIMB_BITS - 1 - WEIGHT_BITS)
SLOTS = 8192
"""Of a ciphertext. A head's limbs share them with the rows of one request."""
FEWEST_ROWS = 64
"""Rows of one request, at least, also where classes are many."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class AnswerShape:
    """What both ends of an answer know beforehand."""

    features: int
    """Of the passive party, its presence column included."""
    scores: int
    """Numbers opened of a row."""
    rows: int
    """Of one request; the last one is filled up with zeros."""

    @property
    def limb_rows(self) -> int:
        return LIMBS * self.scores

    def head_bytes(self, encryption: str) -> int:
        """Of the encrypted head."""
        if encryption == "none":
            return 8 * self.limb_rows * self.features
        from veracausa.crypto.backends.bfv.ciphertexts import ALL, HEAD, packed_size
        from veracausa.crypto.backends.bfv.packing import Packing

        return HEAD + Packing((self.limb_rows,), self.features, self.rows).ciphertexts * packed_size(ALL)

    def reply_bytes(self, encryption: str) -> int:
        """Of the masked scores of one request."""
        if encryption == "none":
            return 8 * self.limb_rows * self.rows
        from veracausa.crypto.backends.bfv.ciphertexts import HEAD
        from veracausa.crypto.backends.bfv.encryption import NAME, replies_size
        from veracausa.crypto.backends.bfv.packing import Packing

        turns = Packing((self.limb_rows,), self.features, self.rows).turns([0])
        return HEAD + NAME.itemsize + replies_size(sum(len(turn.steps) for turn in turns))


def request_rows(scores: int) -> int:
    """Rows of one request, by what is opened of a row alone: the head is encrypted for this width once.

    As many as fit with one ciphertext a feature, where that is not too few. Shorter requests are filled up.
    """
    return max(FEWEST_ROWS, SLOTS // (LIMBS * scores))


def encoded_weights(weights: Array, largest: float) -> Integers:
    """(features, scores) weights in fixed point. Refused where scores of features up to `largest` could wrap."""
    whole: Integers = np.rint(weights * 2.0**WEIGHT_BITS).astype(np.int64)
    bound = 2.0 ** (LIMBS * LIMB_BITS - 1)
    sums = np.abs(whole).sum(0, dtype=np.float64) * largest * 2.0**FEATURE_BITS
    if np.abs(whole).max(initial=0) >= bound or sums.max(initial=0.0) >= HALF / 4:
        raise RunError(
            f"a weight of the head is {np.abs(weights).max():.3g}, too large for its encryption; raise blind.ridge"
        )
    return whole


def limbs_of(whole: Integers) -> Array:
    """(limbs × scores, features) from (features, scores): the highest limbs first, all below 2^`LIMB_BITS`."""
    half = 1 << (LIMB_BITS - 1)
    rest, limbs = whole.T, []
    for _ in range(LIMBS - 1):
        low = ((rest + half) & ((1 << LIMB_BITS) - 1)) - half
        limbs.append(low)
        rest = (rest - low) >> LIMB_BITS
    limbs.append(rest)
    return np.concatenate(limbs[::-1]).astype(np.float64)


def combined(values: Ring, scores: int) -> Ring:
    """(scores, rows) from (limbs × scores, rows)."""
    parts = values.reshape(LIMBS, scores, -1)
    out: Ring = parts[0]
    for part in parts[1:]:
        out = ring.add(ring.scale(out, 1 << LIMB_BITS), part)
    return out


def encoded_features(features: Array, rows: int) -> Ring:
    """(features, rows) elements from (n, features) numbers; the rows after n are zeros."""
    whole = np.zeros((features.shape[1], rows), dtype=np.int64)
    whole[:, : len(features)] = np.rint(features.T * 2.0**FEATURE_BITS).astype(np.int64)
    return ring.reduce(whole)


def fingerprint_of(weights: Mapping[str, Integers], nonce: bytes) -> bytes:
    """A commitment to all weights that are encrypted, by party: it binds the active party, and tells nothing."""
    found = hashlib.sha256(b"veracausa head 1" + len(nonce).to_bytes(8, "big") + nonce)
    for party in sorted(weights):
        values = np.ascontiguousarray(weights[party].astype("<i8"))
        for word in (party.encode(), repr(values.shape).encode(), values.tobytes()):
            found.update(len(word).to_bytes(8, "big") + word)
    return found.digest()


def dither(key: bytes, head: bytes, rows: Sequence[bytes], scores: int, step: float) -> Ring:
    """(scores, rows): uniform over a step, a pure function of the party's key, the head and the row."""
    width = max(1, round(step * 2.0**SCORE_BITS))
    if width >= HALF // 8:
        raise InputError(
            f"blind.step: {step:g} is more than scores can hold; take at most {HALF / 8 / 2**SCORE_BITS:g}"
        )
    own = subkey(key, "blind dither 1", memoryview(head), width)
    drawn = np.empty((len(rows), scores), dtype=np.int64)
    for at, row in enumerate(rows):
        drawn[at] = expanded(subkey(own, memoryview(row)), width, scores).astype(np.int64)
    return ring.reduce(drawn.T - width // 2)


def cancelling_mask(seeds: Mapping[str, tuple[int, bytes]], number: int, scores: int, rows: int) -> Ring:
    """(scores, rows): of all passive parties these add up to zero, and each alone is uniform. A number serves once."""
    out = np.zeros((scores, rows), dtype=np.int64)
    for sign, seed in seeds.values():
        drawn = expanded(subkey(seed, "blind answer", number), P, scores * rows).astype(np.int64)
        out = ring.add(out, ring.reduce(sign * drawn.reshape(scores, rows)))
    return out


class HeldHead:
    """A passive party's side: the encrypted weights that it keeps, to be multiplied by its own features."""

    def __init__(self, encryption: Encryption, active: str, head: Bytes, shape: AnswerShape, masks: Masks) -> None:
        self.shape, self._masks = shape, masks
        self._rows: EncryptedRows = encryption.open_rows(active, head, [shape.limb_rows], shape.features, shape.rows)

    def answer(self, features: Array, added: Ring) -> tuple[Bytes, Ring]:
        """A reply for the active party to open, and this party's share, to which `added` was added."""
        weights = encoded_features(features, self.shape.rows)[None]
        reply, kept = self._rows.forward([0], weights, self._masks)
        return reply, ring.add(combined(kept, self.shape.scores), added)


def encrypted_head(encryption: Encryption, peer: str, whole: Integers, shape: AnswerShape) -> Bytes:
    """The weights for a passive party, under the active party's new key."""
    return encryption.encrypt_rows(peer, [limbs_of(whole)], shape.rows)


class OwnedHead:
    """The active party's side: it opens what comes back, with the key that it keeps."""

    def __init__(self, encryption: KeepableEncryption, shape: AnswerShape) -> None:
        self._encryption, self.shape = encryption, shape
        encryption.expect_rows([shape.limb_rows], shape.features, shape.rows)

    def open(self, reply: Bytes) -> Ring:
        """(scores, rows): what is left of the scores when the passive party has kept its share."""
        shape = self.shape
        opened = self._encryption.decrypt_forward(reply, [shape.limb_rows], shape.features, shape.rows)
        return combined(opened, shape.scores)


def opened_scores(shares: Sequence[Ring], rows: int) -> Array:
    """(rows, scores): all shares together, as numbers."""
    total = ring.centred(ring.total(np.stack(shares), 0))[:, :rows]
    if np.abs(total).max(initial=0) > HALF // 2:
        raise WireError("answer", "opens to a score beyond the range: a party answered with other numbers than agreed")
    scores: Array = total.T / 2.0**SCORE_BITS
    return scores
