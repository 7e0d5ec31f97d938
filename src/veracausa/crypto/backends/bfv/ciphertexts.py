"""The parameters of BFV, which never come from a peer, and its ciphertexts as bytes.

Products are made modulo all four primes. Dropping the last two divides their noise by both. What is left is tiny beside
the numbers between two messages, all of which a reply uses. So a reply has two primes. A ciphertext crosses in an
envelope that names its purpose, shape and key. Its size is checked before anything is allocated.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import seal
from numpy.typing import NDArray

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.ring import P, Ring
from veracausa.errors import WireError

DEGREE = 8192
"""Slots of a ciphertext."""
PRIMES = (1152921504606830593, 1152921504606748673, 4294475777, 4293918721)
"""Each 1 modulo 2·DEGREE. The first two have 60 bits, and are what a reply is sent with, the others 32."""
UNUSED_PRIME = 163841
"""SEAL keeps its last prime for evaluation keys. There are none, so it is as small as it can be."""
ALL, SENT = 4, 2
"""How many primes products have, and a reply."""
SUMMED = 3
"""How many primes products with small factors have: their noise is small enough once one prime is dropped."""
NOISE_BITS = 21
"""Noise is the difference of the weights of two words of so many bits, as SEAL's is: its deviation is 3.24."""
MOST_TERMS = 1024
"""Products summed up in one reply."""


@cache
def context() -> seal.SEALContext:
    """SEAL's view of the parameters, which it accepts as 128 bits of security."""
    parameters = seal.EncryptionParameters(seal.scheme_type.bfv)
    parameters.set_poly_modulus_degree(DEGREE)
    parameters.set_coeff_modulus([seal.Modulus(prime) for prime in (*PRIMES, UNUSED_PRIME)])
    parameters.set_plain_modulus(P)
    made = seal.SEALContext(parameters, True, seal.sec_level_type.tc128)
    if not made.parameters_set():
        raise RuntimeError(f"SEAL refuses the parameters: {made.parameter_error_message()}")
    return made


def typical_noise(terms: int) -> float:
    """The root mean square of a coefficient's noise in a sum of products, once two primes are dropped.

    It is Σ v·(e + r): v are coefficients of uniform factors, e is fresh noise, r the rounding of a message's scale.
    Dropping a prime rounds both polynomials; the second rounding is multiplied by a secret of −1, 0 and 1.
    """
    products = P / math.sqrt(12) * math.sqrt(DEGREE * terms * (NOISE_BITS / 2 + 1 / 12)) / math.prod(PRIMES[SENT:])
    return math.hypot(products, math.sqrt((1 + DEGREE * 2 / 3) / 12))


def largest_noise(terms: int) -> float:
    """What no choice of factors and noise can exceed there."""
    products = DEGREE * terms * (P / 2) * (NOISE_BITS + 0.5) / math.prod(PRIMES[SENT:])
    return products + (1 + DEGREE) / 2 + 1.0


def wrong_bits(noise: float) -> float:
    """A reply opens wrongly with a chance of at most 2 to the minus this.

    What lies between a reply and its message is uniform over Q / P numbers. Noise moves it over an edge in as many
    places as its own size, and a reply has DEGREE coefficients.
    """
    return math.log2(math.prod(PRIMES[:SENT]) / P) - math.log2(DEGREE * noise)


TAG = 16
HEAD = 4 * TAG
NO_KEY = bytes(TAG)
"""What keys themselves are under."""


def fingerprint(*parts: bytes | memoryview) -> bytes:
    """Of all parts in a row."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()[:TAG]


PARAMETERS = fingerprint(f"veracausa bfv 2: {DEGREE} {P} {PRIMES}".encode())


def wrap(purpose: str, shape: str, key: bytes, parts: Sequence[bytes]) -> Bytes:
    """A message; `key` is the fingerprint of the key it is under, `shape` what both sides have agreed on."""
    tags = (PARAMETERS, key, fingerprint(f"{purpose} {shape}".encode()), fingerprint(*parts))
    return np.frombuffer(b"".join([*tags, *parts]), dtype=np.uint8)


def measured(purpose: str, data: Bytes, size: int) -> memoryview:
    """All bytes of a message whose payload has the agreed size, before anything else is done with it."""
    if data.dtype != np.uint8 or data.shape != (HEAD + size,):
        raise WireError(purpose, f"{data.nbytes} bytes, but {HEAD + size} were agreed")
    return memoryview(np.ascontiguousarray(data).data)


def unwrap(purpose: str, shape: str, key: bytes, data: Bytes, size: int) -> memoryview:
    """The payload of a message that has exactly the agreed form."""
    whole = measured(purpose, data, size)
    tags = [bytes(whole[at : at + TAG]) for at in range(0, HEAD, TAG)]
    if tags[0] != PARAMETERS:
        raise WireError(purpose, "made with other parameters; all parties need the same version")
    if tags[1] != key:
        raise WireError(purpose, "encrypted under another key")
    if tags[2] != fingerprint(f"{purpose} {shape}".encode()):
        raise WireError(purpose, "made for another purpose, or for other shapes")
    payload = whole[HEAD:]
    if tags[3] != fingerprint(payload):
        raise WireError(purpose, "damaged: it does not match its digest")
    return payload


Residues = NDArray[np.uint64]
"""(primes, DEGREE) of a polynomial, (2, primes, DEGREE) of a ciphertext."""

BYTES = tuple(-(-prime.bit_length() // 8) for prime in PRIMES)
"""Of a residue of each prime."""
_LOW = [np.dtype({"names": ["low"], "formats": [f"V{count}"], "offsets": [0], "itemsize": 8}) for count in BYTES]


@dataclass(frozen=True)
class BfvScheme:
    """SEAL's workers, and the heads of what it reads."""

    evaluator: seal.Evaluator
    encoder: seal.BatchEncoder
    rounder: seal.Decryptor
    """With a key that nothing is encrypted under: of a second polynomial that is 0, it reads what the first holds."""
    heads: dict[tuple[int, bool], bytes]
    """By number of primes and whether the polynomials are transformed."""
    plain_head: bytes


@cache
def scheme() -> BfvScheme:
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
    return BfvScheme(evaluator, encoder, seal.Decryptor(made, secret), heads, plain[: -8 * DEGREE])


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


def factor(plain: seal.Plaintext, primes: int = ALL) -> seal.Plaintext:
    """Ready to be multiplied with transformed ciphertexts of so many primes."""
    scheme().evaluator.transform_to_ntt_inplace(plain, _level(primes))
    return plain


@cache
def _level(primes: int) -> list[int]:
    """What SEAL calls ciphertexts of so many primes."""
    nothing = np.zeros((primes, DEGREE), dtype=np.uint64)
    found: list[int] = load(nothing, nothing, transformed=True).parms_id()
    return found


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


def coefficients(plain: seal.Plaintext) -> Ring:
    """Its coefficients, between 0 and P."""
    out = np.zeros(DEGREE, dtype=np.int64)
    found = np.frombuffer(plain.to_bytes(), dtype=np.uint64, offset=len(scheme().plain_head))
    out[: found.size] = found
    return out


def nearest(polynomial: Residues) -> seal.Plaintext:
    """The message nearest to a polynomial, as who opens a ciphertext rounds it."""
    return scheme().rounder.decrypt(load(polynomial, np.zeros_like(polynomial), transformed=False))


def rounded(polynomial: Residues) -> Ring:
    """The slots of the message nearest to a polynomial."""
    return decode(nearest(polynomial))


def rounded_coefficients(polynomial: Residues) -> Ring:
    """The coefficients of the message nearest to a polynomial."""
    return coefficients(nearest(polynomial))
