"""BFV keys: what they encrypt, how a reply hides all but its sums, and the randomness of both, from the system."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

import numpy as np
import seal
from numpy.typing import NDArray

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import (
    ALL,
    DEGREE,
    NO_KEY,
    NOISE_BITS,
    PRIMES,
    SENT,
    SUMMED,
    Residues,
    coefficients,
    context,
    decode,
    encode,
    factor,
    fingerprint,
    load,
    nearest,
    pack,
    packed_size,
    plaintext,
    residues_of,
    rounded,
    rounded_coefficients,
    scheme,
    unpack,
    unwrap,
    wrap,
)
from veracausa.crypto.randomness import Toss
from veracausa.crypto.ring import P, Ring
from veracausa.errors import RunError, WireError

_TERNARY = np.array([0, 1, P - 1], dtype=np.uint64)


def _words(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def ternary() -> Residues:
    """DEGREE coefficients, each −1, 0 or 1 with equal chances, modulo P."""
    drawn = np.zeros(0, dtype=np.uint8)
    while drawn.size < DEGREE:
        fresh = np.frombuffer(os.urandom(DEGREE + DEGREE // 16), dtype=np.uint8)
        drawn = np.concatenate([drawn, fresh[fresh < 255]])
    return _TERNARY[drawn[:DEGREE] % 3]


def fresh_noise() -> Residues:
    """A polynomial of small numbers modulo all primes, as SEAL draws them."""
    weights = np.bitwise_count(_words(DEGREE) & np.uint64((1 << 2 * NOISE_BITS) - 1)).astype(np.uint64)
    out = np.empty((ALL, DEGREE), dtype=np.uint64)
    for at, prime in enumerate(PRIMES):
        out[at] = (weights + np.uint64(prime - NOISE_BITS)) % np.uint64(prime)
    return out


SEED = 32
"""Bytes that stand for the first polynomials of a reply."""


def second_half(toss: Toss, *purpose: str | int, primes: int = ALL) -> Residues:
    """Of one ciphertext, transformed: neither its owner nor anyone else can choose it."""
    return np.stack([toss.uniform(PRIMES[at], DEGREE, "second half", *purpose, at) for at in range(primes)])


def first_half(seed: bytes, number: int) -> Residues:
    """Of one reply; a seed serves one message."""
    drawn = Toss(seed)
    return np.stack([drawn.uniform(PRIMES[at], DEGREE, "first half", number, at) for at in range(SENT)])


def fresh_seed() -> bytes:
    return os.urandom(SEED)


Products = Sequence[tuple[seal.Ciphertext, seal.Plaintext]]
"""Of transformed ciphertexts and factors, to be summed up."""

ZEROS = 4
"""Encryptions of 0 in a public key: replies that share one u."""
_MODULI = np.array(PRIMES, dtype=np.uint64)[:, None]


class BfvSecretKey:
    """Encrypts one's own numbers and opens replies. It has no serializer, and its text shows nothing.

    One made from kept bytes opens replies, and encrypts nothing.
    """

    __slots__ = ("_decryptor", "_polynomial", "_secret", "_toss", "_used", "owner", "public", "public_bytes")

    def __init__(self, toss: Toss, owner: str) -> None:
        secret = seal.KeyGenerator(context()).secret_key()
        self._decryptor: seal.Decryptor | None = seal.Decryptor(context(), secret)
        """None where only bytes were kept: SEAL reads keys from files alone."""
        self._polynomial = _ternary_of(secret)
        self._secret = {primes: factor(plaintext(self._polynomial), primes) for primes in (ALL, SUMMED)}
        self._toss, self.owner, self._used = toss, owner, set[tuple[str | int, ...]]()
        zeros = b"".join(self.encrypt(None, "key", number) for number in range(ZEROS))
        self.public = fingerprint(owner.encode(), toss.seed, zeros)
        self.public_bytes = wrap("key", owner, NO_KEY, [zeros])

    def secret_bytes(self) -> bytes:
        """The secret itself, for the one file in which the active party of a blind training keeps its head's key.

        A passive party keeps the encrypted head and answers with it for as long as the model serves. Its answers can
        be opened by this key alone, so it must outlive the process. No other key is ever written down, and these bytes
        go nowhere but into that file.
        """
        return np.where(self._polynomial > 1, 2, self._polynomial).astype(np.uint8).tobytes()

    @classmethod
    def of_kept(cls, kept: bytes, toss: Toss, owner: str, public_bytes: Bytes) -> BfvSecretKey:
        """The key of `secret_bytes`, to open replies with; `RunError` where it does not belong to the public key.

        It does not know which second halves were used, so it refuses to encrypt anything.
        """
        drawn = np.frombuffer(kept, dtype=np.uint8)
        if drawn.size != DEGREE or (drawn > 2).any() or not drawn.any():
            raise RunError(f"a kept secret key of {len(kept)} bytes is none of this encryption; put its file back")
        made = cls.__new__(cls)
        made._polynomial = _TERNARY[drawn]
        made._secret = {primes: factor(plaintext(made._polynomial), primes) for primes in (ALL, SENT)}
        made._toss, made.owner, made._used, made._decryptor = toss, owner, set(), None
        payload = unwrap("key", owner, NO_KEY, public_bytes, ZEROS * packed_size(ALL))
        made.public, made.public_bytes = fingerprint(owner.encode(), toss.seed, payload), public_bytes
        first = unpack("key", payload[: packed_size(ALL)], ALL)
        zero = load(first, second_half(toss, owner, "key", 0), transformed=True)
        if coefficients(nearest(made._phase(zero, ALL))).any():
            raise RunError("a kept secret key does not belong to its public key; put its file back, or train again")
        return made

    def encrypt(self, slots: Ring | None, *purpose: str | int) -> bytes:
        """The first half of a ciphertext, transformed, of all primes; None: of 0. Its second half is the purpose's."""
        self._use(purpose)
        return self._first_half(second_half(self._toss, self.owner, *purpose), None if slots is None else encode(slots))

    def encrypt_coefficients(self, polynomial: Residues, *purpose: str | int) -> bytes:
        """The same of a message by its coefficients, between 0 and P, and of `SUMMED` primes."""
        self._use(purpose)
        second = second_half(self._toss, self.owner, *purpose, primes=SUMMED)
        return self._first_half(second, plaintext(polynomial))

    def _use(self, purpose: tuple[str | int, ...]) -> None:
        if self._decryptor is None:
            raise RunError("a kept key encrypts nothing: it does not know what it encrypted before; make a new one")
        if purpose in self._used:
            raise RunError(f"two ciphertexts for {purpose}: with one second half they would show their difference")
        self._used.add(purpose)

    def _first_half(self, second: Residues, message: seal.Plaintext | None) -> bytes:
        primes, evaluator = len(second), scheme().evaluator
        product = evaluator.multiply_plain(load(second, second, transformed=True), self._secret[primes])
        noise = fresh_noise()[:primes]
        made = load(noise, noise, transformed=False)  # of its two halves only the first one is used
        if message is not None:
            evaluator.add_plain_inplace(made, message)
        evaluator.transform_to_ntt_inplace(made)
        evaluator.sub_inplace(made, product)
        return pack(residues_of(made)[0])

    def decrypt(self, purpose: str, first: Residues, second: memoryview) -> Ring:
        """The slots of a reply."""
        return decode(self._opened(purpose, first, second))

    def decrypt_coefficients(self, purpose: str, first: Residues, second: memoryview) -> Ring:
        """The coefficients of a reply."""
        return coefficients(self._opened(purpose, first, second))

    def _opened(self, purpose: str, first: Residues, second: memoryview) -> seal.Plaintext:
        reply = load(first, unpack(purpose, second, SENT), transformed=False)
        if self._decryptor is not None:
            return self._decryptor.decrypt(reply)
        scheme().evaluator.transform_to_ntt_inplace(reply)
        return nearest(self._phase(reply, SENT))

    def _phase(self, ciphertext: seal.Ciphertext, primes: int) -> Residues:
        """Message and noise of a transformed ciphertext, by coefficients: first half + second half · secret."""
        evaluator = scheme().evaluator
        first, second = residues_of(ciphertext)
        product = evaluator.multiply_plain(load(second, second, transformed=True), self._secret[primes])
        evaluator.add_inplace(product, load(first, first, transformed=True))
        evaluator.transform_from_ntt_inplace(product)
        phase: Residues = residues_of(product)[0]
        return phase

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
        first = [unpack("key", part, ALL) for part in chunks(payload, packed_size(ALL))]
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

    def coefficient_replies(self, totals: Iterable[Residues]) -> tuple[list[bytes], list[Ring]]:
        """The same for sums of `SUMMED` primes that are made already; one's own shares are by coefficients.

        All coefficients are masked, because the first half is random in all of them. Residues are taken modulo fewer
        primes than the key has: what is left of an encryption of 0 is one.
        """
        evaluator, seed = scheme().evaluator, fresh_seed()
        halves = [residues_of(zero)[:, :SUMMED] for zero in self._zeros]
        zeros = [load(first, second, transformed=True) for first, second in halves]
        parts, kept = [seed], []
        for number, total in enumerate(totals):
            if number % ZEROS == 0:
                hider = factor(plaintext(ternary()), SUMMED)
            hidden = evaluator.multiply_plain(zeros[number % ZEROS], hider)
            if total.any():
                evaluator.add_inplace(hidden, load(total[0], total[1], transformed=True))
            reply, share = answered(hidden, first_half(seed, number), rounded_coefficients)
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


def answered(
    total: seal.Ciphertext, first: Residues, read: Callable[[Residues], Ring] = rounded
) -> tuple[Residues, Ring]:
    """The second half of a reply whose first half is given, and the share that is left for who replies.

    The owner reads message + mask, where the mask is what lies between the sum's own first half and the given one.
    """
    evaluator = scheme().evaluator
    evaluator.transform_from_ntt_inplace(total)
    noise = fresh_noise()[: total.coeff_modulus_size()]  # for the second half: the first is not sent
    evaluator.add_inplace(total, load(np.zeros_like(noise), noise, transformed=False))
    while total.coeff_modulus_size() > SENT:
        evaluator.mod_switch_to_next_inplace(total)
    own, second = residues_of(total)
    moduli = _MODULI[:SENT]
    # The share is minus the mask, so the difference is taken the other way round.
    return second, read(np.where(own >= first, own - first, own + (moduli - first)))


def chunks(payload: memoryview, size: int) -> list[memoryview]:
    return [payload[at : at + size] for at in range(0, len(payload), size)]
