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
FLOOD_BITS = 20
"""The flood is uniform over 2^FLOOD_BITS times the third prime numbers, about ±2^79."""
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


def noise_bound(terms: int, deviations: float = 12.0) -> float:
    """What the noise of a sum of products exceeds with a chance of 2·exp(−deviations²/2) a coefficient, when flooded.

    Noise and factors are independent, so that a coefficient of Σ v·e is a sum of DEGREE·terms independent sub-Gaussian
    numbers, of deviation at most P/2 times 3.24 each. Dropping a prime rounds both polynomials, by half a unit at most;
    the second rounding is multiplied by a secret of −1, 0 and 1.
    """
    deviation = math.sqrt(NOISE_BITS / 2)
    products = deviations * deviation * (P / 2) * math.sqrt(DEGREE * terms) / PRIMES[ALL - 1]
    rounding = 0.5 + deviations * 0.5 * math.sqrt(DEGREE)
    return products + rounding + 1.0


def statistical_bits(terms: int) -> float:
    """A flooded coefficient and the flood alone differ by at most 2 to the minus this in statistical distance."""
    return FLOOD_BITS + math.log2(PRIMES[FLOODED - 1]) - math.log2(noise_bound(terms))


def room_bits(terms: int) -> float:
    """By how many bits a reply's noise stays below what would decrypt wrongly."""
    noise = 2.0 ** (FLOOD_BITS - 1) + noise_bound(terms) / PRIMES[FLOODED - 1] + noise_bound(0)
    return math.log2(math.prod(PRIMES[:SENT]) / (2 * P) / noise)
