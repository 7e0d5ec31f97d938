"""Before anything of an id leaves: do all mean the same, how many ids come, and what the session is called."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from veracausa.alignment.settings import MOST, AlignmentSettings, OwnOptions
from veracausa.alignment.streams import HELLO, NONCE, receive
from veracausa.errors import WireError
from veracausa.wire.link import Link
from veracausa.wire.message import shown


@dataclass(frozen=True)
class AlignmentSession:
    """What all parties know before the first id crosses."""

    domain: bytes
    """What ids are hashed under: no other session has the same."""
    counts: Mapping[str, int]


def greet(
    link: Link, settings: AlignmentSettings, ids: int, own: OwnOptions, expected: Mapping[str, int] | None = None
) -> AlignmentSession:
    """Tell everybody, hear everybody, and refuse whoever means something else, or brings too many ids.

    `ids` are this party's own. `expected` says how many the others have announced before, where they have.
    """
    count = own.announced(ids)
    agreed = settings.agreed()
    nonces = {link.me: secrets.token_bytes(NONCE)}
    counts = {link.me: count}
    others = [name for name in settings.parties if name != link.me]
    for peer in others:
        nonce = torch.frombuffer(bytearray(nonces[link.me]), dtype=torch.uint8)
        link.send(peer, HELLO, 0, {"nonce": nonce}, settings=agreed, count=count)
    for peer in others:
        hello = receive(link, peer, HELLO, 0)
        _compare(agreed, str(hello.meta["settings"]), peer)
        theirs = int(hello.meta["count"])
        if expected is not None and theirs != expected.get(peer):
            said = expected.get(peer, 0)
            raise WireError("align hello.count", f"{peer!r} brings {theirs} ids, {said} is what all have agreed to")
        _refuse(peer, theirs, ids, own, settings.intersects(link.me, peer))
        nonces[peer], counts[peer] = hello.tensors["nonce"].numpy().tobytes(), theirs
    # One honest nonce among them makes the label new, whatever the others chose.
    label = hashlib.sha256(agreed.encode() + b"".join(nonces[name] for name in settings.parties)).digest()
    return AlignmentSession(b"veracausa-align-curve25519_XMD:SHA-512_ELL2_NU_" + label, counts)


def _refuse(peer: str, theirs: int, ids: int, own: OwnOptions, met: bool) -> None:
    """Who brings nothing, or more than is taken; of one whose ids meet nobody's here, more than can be waited for."""
    most = max(MOST, own.limit(ids))
    if not 1 <= theirs <= most:
        raise WireError("align hello.count", f"{peer!r} brings {theirs} ids, 1 to {most} are taken")
    if met and (problem := own.too_many(peer, theirs, ids)) is not None:
        raise WireError("align hello.count", problem)


def _compare(ours: str, theirs: str, peer: str) -> None:
    if ours == theirs:
        return
    try:
        other = json.loads(theirs)
    except (ValueError, RecursionError):
        other = None
    if not isinstance(other, dict):
        raise WireError("align hello.settings", f"cannot be read (from {peer!r})")
    for name, value in json.loads(ours).items():
        if other.get(name) != value:
            said = shown(json.dumps(other.get(name)))
            raise WireError(f"align hello.settings.{name}", f"is {said} at {peer!r}, here it is {json.dumps(value)}")
    raise WireError("align hello.settings", f"has settings that are not known here (from {peer!r})")
