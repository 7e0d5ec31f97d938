"""The parameters of the scheme, which never come from a peer, and the noise that they leave room for.

Products are made modulo all four primes. Dropping the last one divides their noise by it, and only then the flood is
added, which hides what is left of it; dropping the third divides both, and a reply has two primes left.
"""

from __future__ import annotations

import math
from functools import cache

import seal

from veracausa.crypto.ring import P

DEGREE = 8192
"""Slots of a ciphertext."""
PRIMES = (72057594037616641, 16760833, 1152921504606830593, 1152921504606748673)
"""Each 1 modulo 2·DEGREE. The first two have 56 and 24 bits, whole bytes: they are what a reply is sent with."""
UNUSED_PRIME = 163841
"""SEAL keeps its last prime for evaluation keys. There are none, so it is as small as it can be."""
ALL, FLOODED, SENT = 4, 3, 2
"""How many primes products have, the flood, and a reply."""
NOISE_BITS = 21
"""SEAL's noise is the difference of the weights of two words of so many bits: its deviation is 3.24."""
FLOOD_BITS = 19
"""The flood is uniform over 2^FLOOD_BITS times the third prime numbers, about ±2^78."""
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
    """The root mean square of a coefficient's noise in a sum of products, where the flood goes in.

    It is Σ v·(e + r): v are coefficients of uniform factors, e is SEAL's noise, r the rounding of a message's scale.
    Dropping a prime then rounds both polynomials; the second rounding is multiplied by a secret of −1, 0 and 1.
    """
    products = P / math.sqrt(12) * math.sqrt(DEGREE * terms * (NOISE_BITS / 2 + 1 / 12)) / PRIMES[ALL - 1]
    return math.hypot(products, _typical_rounding())


def largest_noise(terms: int) -> float:
    """What no choice of factors and noise can exceed there."""
    products = DEGREE * terms * (P / 2) * (NOISE_BITS + 0.5) / PRIMES[ALL - 1]
    return products + _largest_rounding() + 1.0


def statistical_bits(noise: float) -> float:
    """A flooded coefficient is within 2 to the minus this, in statistical distance, of the flood alone.

    A uniform number shifted by δ differs from itself in δ of its places. When δ is random, its mean magnitude counts.
    """
    return FLOOD_BITS + math.log2(PRIMES[FLOODED - 1]) - math.log2(noise)


def room() -> float:
    """The largest noise of a reply over the noise that decrypts wrongly: below 1, every reply opens exactly."""
    # What products leave after two primes are dropped is below 1 even in the worst case.
    largest = 2.0 ** (FLOOD_BITS - 1) + 1.0 + _largest_rounding()
    return largest / (math.prod(PRIMES[:SENT]) / (2 * P))


def _typical_rounding() -> float:
    return math.sqrt((1 + DEGREE * 2 / 3) / 12)


def _largest_rounding() -> float:
    return (1 + DEGREE) / 2
