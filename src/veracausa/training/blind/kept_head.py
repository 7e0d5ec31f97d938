"""What is kept of a head from training on: its ciphertexts at each passive party, and the key that opens their answers.

The head is encrypted once. A passive party answers with the very bytes that it was given in training, and knows the
head by their hash. Another head would need another training. No message of a later session can bring one.

The active party keeps the key in `head.key` beside its model, readable by its owner alone. It is in no message, no log
and no other file. It only opens: nothing more is encrypted under it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from veracausa.atomic import atomic_write
from veracausa.crypto.backends import KeepableEncryption, kept_encryption
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.randomness import Toss
from veracausa.errors import InputError, RunError
from veracausa.runs.store import deserialize_state, serialize_state

KEY_FILE = "head.key"
_FORMAT = "veracausa head key 1"


def head_name(encrypted: Bytes, public_key: Bytes, toss: bytes) -> bytes:
    """The SHA-256 of a head's ciphertexts, with the public key and the toss that they belong to."""
    found = hashlib.sha256(b"veracausa kept head 1")
    for part in (encrypted.tobytes(), public_key.tobytes(), toss):
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()


@dataclass(frozen=True, eq=False)
class KeptHead:
    """A passive party's part of the head, as it came in training."""

    encrypted: Bytes
    public_key: Bytes
    """Of the active party."""
    toss: bytes
    commitment: bytes
    """To the weights of all parties, as the active party made it. Nothing shows that the ciphertexts hold them."""

    @property
    def name(self) -> bytes:
        return head_name(self.encrypted, self.public_key, self.toss)

    def blur_name(self, secret: bool) -> bytes:
        """What the dither follows from, beside the row and the party's key.

        Between organisations (`secret`) it is the name: who brings other ciphertexts gets other dithers. A simulation
        promises the same bits with every encryption and after every kill, and ciphertexts are random. So there it is
        the commitment, which the active party chooses: one more reason why a simulation protects nothing.
        """
        return self.name if secret else self.commitment

    def state(self) -> dict[str, Any]:
        return {
            "encrypted": _tensor(self.encrypted),
            "public_key": _tensor(self.public_key),
            "toss": self.toss.hex(),
            "commitment": self.commitment.hex(),
            "name": self.name.hex(),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any] | None, party: str) -> KeptHead:
        """What `state` gave; refused where it is not what came in training."""
        if state is None:
            raise InputError(f"party {party!r}: its saved model has no encrypted head; train again")
        toss, commitment = bytes.fromhex(state["toss"]), bytes.fromhex(state["commitment"])
        found = cls(state["encrypted"].numpy(), state["public_key"].numpy(), toss, commitment)
        if found.name.hex() != state["name"]:
            raise RunError(f"party {party!r}: its kept head is not the one of its training; put the file back")
        return found


@dataclass(frozen=True, eq=False, repr=False)
class HeadKey:
    """The active party's key of one head. Its text shows nothing, and its one serializer is `save`."""

    secret: bytes
    public_key: Bytes
    toss: bytes
    names: Mapping[str, bytes]
    """Of the ciphertexts that each passive party was given."""

    def encryption(self, name: str, party: str) -> KeepableEncryption:
        """What opens answers."""
        return kept_encryption(name, self.secret, Toss(self.toss), party, self.public_key)

    def save(self, path: Path) -> None:
        """Write it to a file that its owner alone can read, in place of an earlier one."""
        kept = {
            "format": _FORMAT,
            "secret": _tensor(np.frombuffer(self.secret, dtype=np.uint8)),
            "public_key": _tensor(self.public_key),
            "toss": self.toss.hex(),
            "names": {peer: name.hex() for peer, name in self.names.items()},
        }
        atomic_write(path, serialize_state(kept), secret=True)

    @classmethod
    def load(cls, path: Path) -> HeadKey:
        if not path.is_file():
            raise InputError(f"{path}: is missing, and nothing else opens answers; put it back, or train again")
        return cls.of_bytes(path.read_bytes(), path)

    @classmethod
    def of_bytes(cls, content: bytes, path: Path) -> HeadKey:
        """The key in a file's content; `path` is where that came from."""
        try:
            kept = deserialize_state(content, path)
            if kept["format"] != _FORMAT:
                raise ValueError(_FORMAT)
            secret, public_key = (kept[name].numpy() for name in ("secret", "public_key"))
            names = {str(peer): bytes.fromhex(name) for peer, name in kept["names"].items()}
            return cls(secret.tobytes(), public_key, bytes.fromhex(kept["toss"]), names)
        except (RunError, KeyError, ValueError, TypeError, AttributeError):
            # Without the cause: it might quote what it read.
            raise InputError(f"{path}: holds no key of a head; put it back, or train again") from None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key has no serializer")


def _tensor(value: Bytes) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(value).copy())
