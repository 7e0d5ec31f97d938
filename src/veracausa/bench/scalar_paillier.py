"""What Paillier costs a number at a time: `phe` where it is installed, else the same operations by gmpy2."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

KEY_BITS = 2048
_ROUNDS, _LEAST_SECONDS = 5, 0.1


@dataclass(frozen=True)
class ScalarRates:
    """Seconds of one operation."""

    name: str
    multiply: float
    encrypt: float
    obfuscate: float
    decrypt: float


def scalar_rates(bits: int = KEY_BITS) -> ScalarRates | None:
    """Measured now, in CPU time, with integers as small as this protocol's: that favours who multiplies one by one.

    None, and a word on standard error, where nothing can measure it.
    """
    values = np.rint(np.random.default_rng(0).normal(size=64) * 128).astype(int).tolist()
    try:
        import phe
    except ImportError:
        try:
            return _by_gmpy2(bits, values)
        except ImportError:
            print("phe: left out: it is not installed; pip install phe", file=sys.stderr)
            return None
    public, secret = phe.generate_paillier_keypair(n_length=bits)
    encrypted = [public.encrypt(value) for value in values[:4]]
    return ScalarRates(
        f"phe at {bits} bits",
        _seconds(lambda at: encrypted[at % 4] * values[at % 64]),
        _seconds(lambda at: public.encrypt(values[at % 64])),
        _seconds(lambda at: encrypted[at % 4].obfuscate()),
        _seconds(lambda at: secret.decrypt(encrypted[at % 4])),
    )


def _by_gmpy2(bits: int, values: list[int]) -> ScalarRates:
    from gmpy2 import powmod

    from veracausa.crypto.backends.paillier.keys import PaillierSecretKey

    secret = PaillierSecretKey(bits)
    public = secret.public
    encrypted = [secret.encrypt(value) for value in values[:4]]
    return ScalarRates(
        f"Paillier at {bits} bits by gmpy2 (phe is not installed; pip install phe)",
        _seconds(lambda at: powmod(encrypted[at % 4], values[at % 64], public.square)),
        _seconds(lambda at: public.add(1, values[at % 64])),
        _seconds(lambda at: public.add(encrypted[at % 4], 0)),
        _seconds(lambda at: secret.decrypt(encrypted[at % 4])),
    )


def _seconds(operation: Callable[[int], Any]) -> float:
    """Of one, in the least disturbed of some rounds."""
    operation(0)
    return min(_round(operation) for _ in range(_ROUNDS))


def _round(operation: Callable[[int], Any]) -> float:
    count, started = 0, time.process_time()
    while (taken := time.process_time() - started) < _LEAST_SECONDS:
        operation(count)
        count += 1
    return taken / count
