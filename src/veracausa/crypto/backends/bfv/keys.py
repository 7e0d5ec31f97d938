"""A party's secret key, which can not be written down, and what its peers get instead.

A public key is a few encryptions of 0. A peer multiplies each by one fresh polynomial u of −1, 0 and 1 and adds fresh
noise: to whoever does not know u that is a fresh encryption of 0 (ring-LWE with the secret u, some samples a secret).

The owner of a key chooses no second half of a ciphertext: all come from the parties' toss, and are never sent. A reply
goes the other way round. Its first half is drawn at random, from a seed, and what that makes of the message is the
mask. So nothing that the owner chose reaches it: the first half is a random number, and the second has only tossed
polynomials, the peer's own factors and its noise in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import seal

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import (
    NO_KEY,
    Residues,
    decode,
    encode,
    factor,
    fingerprint,
    load,
    measured,
    pack,
    packed_size,
    plaintext,
    residues_of,
    rounded,
    scheme,
    unpack,
    unwrap,
    wrap,
)
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, PRIMES, SENT, context
from veracausa.crypto.backends.bfv.sampling import first_half, fresh_noise, fresh_seed, second_half, ternary
from veracausa.crypto.ring import P, Ring
from veracausa.crypto.toss import Toss
from veracausa.errors import RunError, WireError

Products = Sequence[tuple[seal.Ciphertext, seal.Plaintext]]
"""Of transformed ciphertexts and factors, to be summed up."""

ZEROS = 4
"""Encryptions of 0 in a public key: replies that share one u."""
_MODULI = np.array(PRIMES, dtype=np.uint64)[:, None]


class BfvSecretKey:
    """Encrypts one's own numbers and opens replies. It has no serializer, and its text shows nothing."""

    __slots__ = ("_decryptor", "_secret", "_toss", "_used", "owner", "public", "public_bytes")

    def __init__(self, toss: Toss, owner: str) -> None:
        secret = seal.KeyGenerator(context()).secret_key()
        self._decryptor = seal.Decryptor(context(), secret)
        self._secret = factor(plaintext(_ternary_of(secret)))
        self._toss, self.owner, self._used = toss, owner, set[tuple[str | int, ...]]()
        zeros = b"".join(self.encrypt(None, "key", number) for number in range(ZEROS))
        self.public = fingerprint(owner.encode(), toss.seed, zeros)
        self.public_bytes = wrap("key", owner, NO_KEY, [zeros])

    def encrypt(self, slots: Ring | None, *purpose: str | int) -> bytes:
        """The first half of a ciphertext, transformed, of all primes; None: of 0. Its second half is the purpose's."""
        if purpose in self._used:
            raise RunError(f"two ciphertexts for {purpose}: with one second half they would show their difference")
        self._used.add(purpose)
        second = second_half(self._toss, self.owner, *purpose)
        evaluator = scheme().evaluator
        product = evaluator.multiply_plain(load(second, second, transformed=True), self._secret)
        noise = fresh_noise()
        made = load(noise, noise, transformed=False)  # of its two halves only the first one is used
        if slots is not None:
            evaluator.add_plain_inplace(made, encode(slots))
        evaluator.transform_to_ntt_inplace(made)
        evaluator.sub_inplace(made, product)
        return pack(residues_of(made)[0])

    def decrypt(self, purpose: str, first: Residues, second: memoryview) -> Ring:
        """The slots of a reply."""
        return decode(self._decryptor.decrypt(load(first, unpack(purpose, second, SENT), transformed=False)))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key has no serializer")


def _ternary_of(secret: seal.SecretKey) -> Residues:
    """The polynomial of a key, which SEAL keeps transformed."""
    limbs = np.frombuffer(secret.to_string()[-8 * (ALL + 1) * DEGREE :], dtype=np.uint64).reshape(-1, DEGREE)[:ALL]
    plain = residues_of(scheme().evaluator.transform_from_ntt(load(limbs, limbs, transformed=True)))[0, 0]
    return np.where(plain > 1, np.uint64(P - 1), plain)


class BfvPublicKey:
    """A peer's key: gives masked products under it, and hides how they came about."""

    def __init__(self, toss: Toss, owner: str, data: Bytes) -> None:
        payload = unwrap("key", owner, NO_KEY, data, ZEROS * packed_size(ALL))
        self.owner, self.toss = owner, toss
        self.fingerprint = fingerprint(owner.encode(), toss.seed, payload)
        first = [unpack("key", part, ALL) for part in cut(payload, packed_size(ALL))]
        for prime in range(ALL):
            # Uniform numbers hardly ever meet. Such a key would harm its owner alone, and is no key of this scheme.
            if np.unique([zero[prime] for zero in first]).size < ZEROS * DEGREE * 0.95:
                raise WireError("key", "degenerate: its numbers are not spread as a key's are")
        self._zeros = [self.ciphertext(zero, "key", number) for number, zero in enumerate(first)]

    def ciphertext(self, first: Residues, *purpose: str | int) -> seal.Ciphertext:
        """What the owner encrypted for a purpose, whole and transformed."""
        return load(first, second_half(self.toss, self.owner, *purpose), transformed=True)

    def replies(self, sums: Iterator[Products]) -> tuple[list[bytes], list[Ring]]:
        """For the owner, a seed and a second half of each sum of products; and by slots one's own share of each."""
        hider: seal.Plaintext | None = None
        seed = fresh_seed()
        parts, kept = [seed], []
        for number, products in enumerate(sums):
            if number % ZEROS == 0:
                hider = factor(plaintext(ternary()))
            reply, share = answered(self.hidden(number % ZEROS, hider, products), first_half(seed, number))
            parts.append(pack(reply))
            kept.append(share)
        return parts, kept

    def hidden(self, zero: int, hider: seal.Plaintext, products: Products) -> seal.Ciphertext:
        """A sum of products and an encryption of 0, still transformed."""
        evaluator = scheme().evaluator
        total = evaluator.multiply_plain(self._zeros[zero], hider)
        for ciphertext, plain in products:
            evaluator.add_inplace(total, evaluator.multiply_plain(ciphertext, plain))
        return total


def answered(total: seal.Ciphertext, first: Residues) -> tuple[Residues, Ring]:
    """The second half of a reply whose first half is given, and the share that is left for who replies.

    The owner reads message + mask, where the mask is what lies between the sum's own first half and the given one.
    """
    evaluator = scheme().evaluator
    evaluator.transform_from_ntt_inplace(total)
    noise = fresh_noise()  # for the second half: the first is not sent
    evaluator.add_inplace(total, load(np.zeros_like(noise), noise, transformed=False))
    for _ in range(ALL - SENT):
        evaluator.mod_switch_to_next_inplace(total)
    own, second = residues_of(total)
    moduli = _MODULI[:SENT]
    # The share is minus the mask, so the difference is taken the other way round.
    return second, rounded(np.where(own >= first, own - first, own + (moduli - first)))


def cut(payload: memoryview, size: int) -> list[memoryview]:
    return [payload[at : at + size] for at in range(0, len(payload), size)]


def key_fingerprint(key: Bytes) -> str:
    """SHA-256 of a public key, for two people to compare over another channel."""
    return hashlib.sha256(measured("key", key, ZEROS * packed_size(ALL))).hexdigest()
