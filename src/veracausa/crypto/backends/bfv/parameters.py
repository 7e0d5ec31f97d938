"""The parameters of the scheme, which never come from a peer, and the noise that they leave room for.

Products are made modulo all four primes. Dropping the last two divides their noise by both, and what is left is
tiny beside the numbers between two messages, all of which a reply uses: so a reply has two primes.
"""

from __future__ import annotations

import math
from functools import cache

import seal

from veracausa.crypto.ring import P

DEGREE = 8192
"""Slots of a ciphertext."""
PRIMES = (1152921504606830593, 1152921504606748673, 4294475777, 4293918721)
"""Each 1 modulo 2·DEGREE. The first two have 60 bits, and are what a reply is sent with, the others 32."""
UNUSED_PRIME = 163841
"""SEAL keeps its last prime for evaluation keys. There are none, so it is as small as it can be."""
ALL, SENT = 4, 2
"""How many primes products have, and a reply."""
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
