"""What encrypts, by name."""

from __future__ import annotations

from collections.abc import Callable

from veracausa.crypto.backends.base import Encryption
from veracausa.crypto.backends.none import NoEncryption
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

ENCRYPTIONS: dict[str, Callable[[], Encryption]] = {"none": NoEncryption}


def make_encryption(name: str) -> Encryption:
    if name not in ENCRYPTIONS:
        raise InputError(f"encryption = {name!r}: no such encryption{did_you_mean(name, ENCRYPTIONS)}")
    return ENCRYPTIONS[name]()
