"""The encryptions, by name. Each implements `Encryption`, and all give the same integers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from veracausa.crypto.backends.base import EncryptedRows, Encryption
from veracausa.crypto.randomness import Toss
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

__all__ = ["ENCRYPTIONS", "EncryptedRows", "Encryption", "encryption_class", "make_encryption"]

ENCRYPTIONS = {
    "none": ("veracausa.crypto.backends.none", "NoEncryption"),
    "bfv": ("veracausa.crypto.backends.bfv", "BFV"),
    "paillier": ("veracausa.crypto.backends.paillier", "Paillier"),
}
"""Module and class of each; imported when asked for, because their libraries need not be installed."""


def encryption_class(name: str) -> Callable[[Toss, str], Encryption]:
    """What makes a party's new key; `InputError` where there is none of that name, or its library is missing."""
    if name not in ENCRYPTIONS:
        raise InputError(f"encryption = {name!r}: no such encryption{did_you_mean(name, ENCRYPTIONS)}")
    module, made = ENCRYPTIONS[name]
    try:
        found: Callable[[Toss, str], Encryption] = getattr(import_module(module), made)
    except ImportError as error:
        raise InputError(f'encryption = {name!r}: {error.name} is not installed; pip install "veracausa[he]"') from None
    return found


def make_encryption(name: str, toss: Toss, party: str) -> Encryption:
    """A party's new key, by the toss of all."""
    return encryption_class(name)(toss, party)
