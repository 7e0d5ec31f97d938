"""The encryptions, by name. Each implements `Encryption`, and all give the same integers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption, KeepableEncryption
from veracausa.crypto.randomness import Toss
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

__all__ = [
    "ENCRYPTIONS",
    "EncryptedRows",
    "Encryption",
    "KeepableEncryption",
    "encryption_class",
    "kept_encryption",
    "make_encryption",
]

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


def kept_encryption(name: str, kept: bytes, toss: Toss, party: str, public_key: Bytes) -> KeepableEncryption:
    """A party's key as it was kept to open answers of an encrypted head; it encrypts nothing more."""
    made: Any = encryption_class(name)
    if not issubclass(made, KeepableEncryption):
        raise InputError(f"encryption = {name!r}: has no key that can be kept; take 'bfv' or 'none'")
    found: KeepableEncryption = made.of_kept(kept, toss, party, public_key)
    return found
