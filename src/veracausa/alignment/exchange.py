"""The messages of an alignment: a handshake, then sets that cross in chunks.

The handshake compares settings and counts before anything of an id leaves. Afterwards all parties send one chunk a
step: nobody runs ahead, and nobody is silent for long.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.alignment.masking import POINT, Points, SmallOrder, Workers, fault, tags
from veracausa.alignment.settings import CHUNK, MOST, AlignmentSettings, OwnOptions
from veracausa.errors import WireError
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message, TensorSpec, shown

NONCE = 32

HELLO = Kind("align hello", {"nonce": TensorSpec(torch.uint8, (NONCE,))}, {"settings": str, "count": int})
"""Everybody to everybody, once: what was agreed, how many ids will come, and a part of the session's label."""

MASKED = Kind("align masked", {"points": TensorSpec(torch.uint8, (None, POINT), CHUNK)}, secret_shared=True)
"""A part of a set of ids, shuffled, each under the exponents of everyone it has passed. Without ids: a heartbeat."""

COMMON = Kind("align common", {}, {"count": int})
"""From the active party: how many ids there are in common."""

POSITIONS = Kind("align positions", {"positions": TensorSpec(torch.int64, (None,), CHUNK)}, secret_shared=True)
"""Mode `all`: where the common ids stand in a shuffled set, in the agreed order; on the way back to the set's owner."""

PLACES = Kind("align places", {"places": TensorSpec(torch.int64, (None, 2), CHUNK)}, secret_shared=True)
"""Mode `active`: where an id stands in the set that this party sent, and which place it has in the agreed order."""

Outgoing = Iterator[Mapping[str, NDArray[np.generic]]]
"""For every step, what goes to whom."""

NOTHING: Points = np.empty((0, POINT), dtype=np.uint8)


@dataclass(frozen=True)
class AlignmentSession:
    """What all parties know before the first id crosses."""

    domain: bytes
    """What ids are hashed under: no other session has the same."""
    counts: Mapping[str, int]


def handshake(
    link: Link, settings: AlignmentSettings, ids: int, own: OwnOptions, expected: Mapping[str, int] | None = None
) -> AlignmentSession:
    """Exchange settings, nonces and counts with everybody. Refuse a party that differs or brings too many ids.

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


def steps_of(counts: Iterable[int]) -> int:
    """Messages that the largest of the sets takes; the others send empty ones meanwhile."""
    return max(1, -(-max(counts) // CHUNK))


def pieces(values: NDArray[np.generic], steps: int) -> Iterator[NDArray[np.generic]]:
    """The values in chunks, one a step; empty ones after the last."""
    return (values[at * CHUNK : (at + 1) * CHUNK] for at in range(steps))


def masked(workers: Workers, values: Points, steps: int, sender: str) -> Iterator[Points]:
    """The same, each under this party's exponent; `sender` is whom the values came from."""
    chunks = (piece.tobytes() for piece in pieces(values, steps))
    try:
        for chunk in workers.mask(chunks, values.shape[1]):
            yield np.frombuffer(chunk, dtype=np.uint8).reshape(-1, POINT)
    except SmallOrder:
        raise _refused(MASKED, "holds a point of small order", sender) from None


def exchange(
    link: Link, kind: Kind, round_: int, outgoing: Outgoing, incoming: Mapping[str, int], steps: int
) -> dict[str, NDArray[np.generic]]:
    """Send and receive one chunk after the other; of each peer named, exactly the announced number of rows."""
    arrived: dict[str, list[NDArray[np.generic]]] = {peer: [] for peer in incoming}
    for at in range(steps):
        step = round_ * steps + at
        for peer, chunk in next(outgoing).items():
            # Writable memory: torch would warn of an array that it may only read.
            link.send(peer, kind, step, {_name(kind): torch.from_numpy(chunk.copy())})
        for peer, count in incoming.items():
            rows = min(CHUNK, max(0, count - at * CHUNK))
            chunk = receive(link, peer, kind, step).tensors[_name(kind)].numpy()
            if len(chunk) != rows:
                raise _refused(kind, f"holds {len(chunk)} rows, {rows} were announced", peer)
            arrived[peer].append(chunk)
    return {peer: np.concatenate(chunks) for peer, chunks in arrived.items()}


def receive(link: Link, peer: str, kind: Kind, step: int) -> Message:
    """What `peer` sends; whatever is wrong with it is said with the peer's name."""
    try:
        return link.receive(peer, kind, step)
    except WireError as error:
        if repr(peer) in str(error):
            raise
        problem = str(error).removeprefix(f"message refused: {error.field}: ")
        raise WireError(error.field, f"{problem} (from {peer!r})") from None


def checked_points(points: Points, sender: str) -> list[bytes]:
    """The points of a whole set as tags, no two alike; what no honest party sends is refused."""
    if (wrong := fault(points)) is not None:
        raise _refused(MASKED, wrong, sender)
    found = tags(points)
    if len(set(found)) < len(found):
        raise _refused(MASKED, "holds the same point twice", sender)
    return found


def checked_positions(kind: Kind, positions: NDArray[np.int64], count: int, sender: str) -> None:
    """Refuse what are no different places among `count`."""
    if len(positions) and (int(positions.min()) < 0 or int(positions.max()) >= count):
        raise _refused(kind, f"holds a position outside of {count}", sender)
    if len(np.unique(positions)) < len(positions):
        raise _refused(kind, "holds the same position twice", sender)


def common_count(message: Message, limit: int, sender: str) -> int:
    """How many ids are said to be in common, which cannot be more than the smallest set has."""
    count = int(message.meta["count"])
    if not 0 <= count <= limit:
        raise WireError(f"{message.kind}.count", f"is {count}, between 0 and {limit} is possible (from {sender!r})")
    return count


def _name(kind: Kind) -> str:
    return next(iter(kind.tensors))


def _refused(kind: Kind, problem: str, sender: str) -> WireError:
    return WireError(f"{kind.name}.{_name(kind)}", f"{problem} (from {sender!r})")
