"""Polynomials as residues, residues as bytes: only coefficients travel, never what a library writes around them.

Whatever SEAL's form says beside coefficients (parameters, sizes, transformed or not) is put there by the reader, so a
peer has no say in it. Of a ciphertext's two polynomials one travels. The other is drawn by both ends alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import seal
from numpy.typing import NDArray

from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, PRIMES, SENT, context
from veracausa.crypto.ring import Ring
from veracausa.errors import WireError

Residues = NDArray[np.uint64]
"""(primes, DEGREE) of a polynomial, (2, primes, DEGREE) of a ciphertext."""

BYTES = tuple(-(-prime.bit_length() // 8) for prime in PRIMES)
"""Of a residue of each prime."""
_LOW = [np.dtype({"names": ["low"], "formats": [f"V{count}"], "offsets": [0], "itemsize": 8}) for count in BYTES]


@dataclass(frozen=True)
class Scheme:
    """SEAL's workers, and the heads of what it reads."""

    evaluator: seal.Evaluator
    encoder: seal.BatchEncoder
    rounder: seal.Decryptor
    """With a key that nothing is encrypted under: of a second polynomial that is 0, it reads what the first holds."""
    heads: dict[tuple[int, bool], bytes]
    """By number of primes and whether the polynomials are transformed."""
    plain_head: bytes


@cache
def scheme() -> Scheme:
    made, evaluator = context(), seal.Evaluator(context())
    secret = seal.KeyGenerator(made).secret_key()
    sample = seal.Encryptor(made, secret).encrypt_symmetric(seal.Plaintext("1"))
    heads = {}
    for primes in range(ALL, SENT - 1, -1):
        heads[primes, False] = _head(sample.to_string(), primes)
        heads[primes, True] = _head(evaluator.transform_to_ntt(sample).to_string(), primes)
        if primes > SENT:
            evaluator.mod_switch_to_next_inplace(sample)
    encoder = seal.BatchEncoder(made)
    plain = encoder.encode(np.arange(DEGREE, dtype=np.uint64)).to_bytes()
    return Scheme(evaluator, encoder, seal.Decryptor(made, secret), heads, plain[: -8 * DEGREE])


def _head(written: bytes, primes: int) -> bytes:
    return written[: -8 * 2 * primes * DEGREE]


def load(first: Residues, second: Residues, transformed: bool) -> seal.Ciphertext:
    """Two polynomials as a ciphertext of as many primes."""
    made = seal.Ciphertext()
    head = scheme().heads[len(first), transformed]
    made.load_bytes(context(), b"".join((head, np.ascontiguousarray(first).data, np.ascontiguousarray(second).data)))
    return made


def residues_of(ciphertext: seal.Ciphertext) -> Residues:
    """(2, primes, DEGREE)."""
    primes = ciphertext.coeff_modulus_size()
    written = ciphertext.to_string()
    start = len(written) - 8 * 2 * primes * DEGREE
    return np.frombuffer(written, dtype=np.uint64, offset=start).reshape(2, primes, DEGREE)


def plaintext(coefficients: Residues) -> seal.Plaintext:
    """A polynomial by its coefficients, between 0 and P."""
    made = seal.Plaintext()
    made.load_bytes(context(), b"".join((scheme().plain_head, coefficients.data)))
    return made


def encode(slots: Ring) -> seal.Plaintext:
    """A polynomial by its slots; those that are not given are 0."""
    filled = np.zeros(DEGREE, dtype=np.uint64)
    flat = slots.reshape(-1)
    filled[: flat.size] = flat
    return scheme().encoder.encode(filled)


def factor(plain: seal.Plaintext) -> seal.Plaintext:
    """Ready to be multiplied with transformed ciphertexts."""
    scheme().evaluator.transform_to_ntt_inplace(plain, context().first_parms_id())
    return plain


def packed_size(primes: int) -> int:
    """Bytes of one polynomial."""
    return DEGREE * sum(BYTES[:primes])


def pack(polynomial: Residues) -> bytes:
    """Each residue in as many bytes as its prime needs, prime by prime."""
    return b"".join(np.ascontiguousarray(limb).view(_LOW[at])["low"].tobytes() for at, limb in enumerate(polynomial))


def unpack(purpose: str, packed: bytes | memoryview, primes: int) -> Residues:
    """What `pack` wrote; residues that are none, and polynomials that are 0, are refused."""
    out = np.zeros((primes, DEGREE), dtype=np.uint64)
    start = 0
    for at, (count, prime) in enumerate(zip(BYTES[:primes], PRIMES[:primes], strict=True)):
        out[at].view(_LOW[at])["low"] = np.frombuffer(packed, dtype=f"V{count}", count=DEGREE, offset=start)
        if (out[at] >= prime).any():
            raise WireError(purpose, "not a ciphertext: a coefficient is not below its modulus")
        start += DEGREE * count
    if not out.any(axis=1).all():
        raise WireError(purpose, "a transparent ciphertext: anyone can read it")
    return out


def decode(plain: seal.Plaintext) -> Ring:
    """Its slots."""
    slots: Ring = scheme().encoder.decode_uint64(plain).astype(np.int64)
    return slots


def rounded(polynomial: Residues) -> Ring:
    """The slots of the message nearest to a polynomial, as who opens a ciphertext rounds it."""
    return decode(scheme().rounder.decrypt(load(polynomial, np.zeros_like(polynomial), transformed=False)))
