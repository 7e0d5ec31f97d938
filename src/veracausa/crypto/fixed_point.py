"""Real numbers as small integers: the scales of the protocol, and refusals where a value would not fit.

A wrap in the field is silent, so every bound is checked where a number becomes an integer, or is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto import ring
from veracausa.crypto.ring import Ring, Small
from veracausa.errors import InputError, RunError

VALUE_BITS = 7
"""Fractional bits of data values."""
VALUE_LIMIT = 16.0
GRADIENT_BITS = 15
"""Of steps of the optimiser."""
GRADIENT_LIMIT = 1 << 24
"""In units: times values and rows of a batch it stays below 2⁵³."""
WEIGHT_BITS = VALUE_BITS + GRADIENT_BITS
"""Fractional bits of encoder weights, because their increments are products of values and gradients."""


def check_columns(values: Array, names: Sequence[str]) -> None:
    """Refuse a value that does not fit, with its column's name."""
    bad = ~(np.abs(values) < VALUE_LIMIT - 0.5**VALUE_BITS).all(axis=0)
    if bad.any():
        at = int(bad.argmax())
        if not np.isfinite(values[:, at]).all():
            raise InputError(f"column {names[at]!r} holds values that are not numbers; fill them or leave the rows out")
        raise InputError(
            f"column {names[at]!r} has outliers, {VALUE_LIMIT:g} deviations or more from its mean, which shares can "
            "not hold; clip them or take the column's logarithm, and do not switch standardising off"
        )


def encode_columns(values: Array, names: Sequence[str]) -> Small:
    """Data columns as integers; a value that does not fit is refused with its column's name."""
    check_columns(values, names)
    encoded: Small = np.rint(values * 2.0**VALUE_BITS)
    return encoded


def encode_gradient(gradient: Array, drawn: Array) -> Small:
    """Steps of the optimiser as integers, rounded up or down at random so that nothing is lost on average.

    `drawn` has a number between 0 and 1 for each.
    """
    scaled = gradient * 2.0**GRADIENT_BITS
    if not np.abs(scaled).max(initial=0.0) < GRADIENT_LIMIT:
        raise RunError(f"the fit diverged: a step of {np.abs(gradient).max():.3g} does not fit shares; lower its rate")
    encoded: Small = np.floor(scaled + drawn)
    return encoded


def decode(opened: Ring, bits: int) -> Array:
    """Opened elements as numbers; refused where they come near the end of the field, before they could wrap."""
    signed = ring.centred(opened)
    if np.abs(signed).max(initial=0) > ring.HALF // 2:
        raise RunError("the fit diverged: an opened value leaves the range of the shares; lower its rate")
    decoded: Array = signed / 2.0**bits
    return decoded
