"""Common rows in one order that all take, and that says nothing of anybody's file.

The order of a file is a secret: one that is sorted by the label, or by a date, tells it row by row. So the leader (who
holds the labels, or comes first) orders rows by a keyed hash of their ids. The key is drawn by the system and never
leaves the leader. It is kept, so that an alignment that is done again gives the same order and checkpoints go on.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from veracausa.alignment.masking import POINT
from veracausa.alignment.program import AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings
from veracausa.errors import InputError, WireError
from veracausa.events import Observer
from veracausa.federation.declared_messages import MESSAGE, Declared
from veracausa.federation.own_ids import IdFile
from veracausa.training.split.protocol import MAX_ROWS
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, TensorSpec

FINGERPRINT = 16
NOTHING = bytes(FINGERPRINT)
"""In place of a fingerprint: no alignment."""

KEPT = Kind("kept alignment", {"fingerprint": TensorSpec(torch.uint8, (FINGERPRINT,))}, {"reuse": int})
"""Follower to leader: which alignment it has from before. Leader to follower: whether that is used again, and what the
alignment is called, by a random name."""

PLACES = Kind("places", {"places": TensorSpec(torch.int64, (None,), MAX_ROWS)})
"""Leader to follower: which place each of the common rows takes in the order of all."""

ORDER_KEY = 32
"""Bytes of the leader's secret."""


def agree_on_kept(link: Link, parties: Sequence[str], kept: bytes) -> tuple[bool, bytes]:
    """Whether all parties, the leader first, have the same alignment from before; and the name of the one to use.

    So that nobody waits for an intersection that the others have behind them.
    """
    leader, *followers = parties
    if link.me != leader:
        link.declare(KEPT, peer=leader)
        link.send(leader, KEPT, 0, {"fingerprint": _tensor(kept)}, reuse=0)
        answer = link.receive(leader, KEPT, 0)
        chosen, reuse = bytes(answer.tensors["fingerprint"].tolist()), answer.meta["reuse"]
        if reuse not in (0, 1) or (reuse and chosen != kept) or chosen == NOTHING:
            raise WireError("kept alignment.reuse", f"{leader!r} goes on with an alignment that {link.me!r} has not")
        return bool(reuse), chosen
    for peer in followers:
        link.declare(KEPT, peer=peer)
    theirs = [bytes(link.receive(peer, KEPT, 0).tensors["fingerprint"].tolist()) for peer in followers]
    same = kept != NOTHING and all(fingerprint == kept for fingerprint in theirs)
    chosen = kept if same else secrets.token_bytes(FINGERPRINT)
    for peer in followers:
        link.send(peer, KEPT, 0, {"fingerprint": _tensor(chosen)}, reuse=int(same))
    return same, chosen


def rows_in_order(
    brought: IdFile, settings: AlignmentSettings, link: Link, notify: Observer, key: bytes | None
) -> Tensor:
    """The own row at each place of the order that all take; -1 where this party has none.

    The leader is the first of the parties, and `key` its secret; the others' is not looked at. Without one, rows lie as
    in the leader's file, and everybody learns how: for simulations that are compared with a run in one place.
    Mode `all`: places are the rows that everybody has; `active`: all of the leader's.
    """
    ids, number = brought.ids, brought.number
    found = AlignmentProgram(ids, settings, brought.options, brought.source, brought.expected)(link, notify)
    for warning in found.warnings:
        notify({"event": "warning", "party": link.me, "text": warning})
    if not len(found.rows):
        raise InputError("no id is held by every party; check that the id columns name the same people in the same way")
    leader, *followers = settings.parties
    if link.me == leader:
        order = (
            found.rows.argsort()
            if key is None
            else secret_order([ids[row] for row in found.rows.tolist()], key, number)
        )
        places = torch.empty_like(found.rows)
        places[order] = torch.arange(len(found.rows))
        for peer in followers:
            link.declare(PLACES, peer=peer)
            link.send(peer, PLACES, number, {"places": places})
    else:
        link.declare(PLACES, peer=leader)
        places = checked_places(link.receive(leader, PLACES, number).tensors["places"].cpu(), len(found.rows), leader)
    rows = torch.empty_like(found.rows)
    rows[places] = found.rows
    notify({"event": "aligned", "party": link.me, "rows": len(rows), "held": found.held, "own": len(ids)})
    return rows


def noting(notify: Observer, warned: list[str]) -> Observer:
    """Passes events on, and notes what is warned of: a page should say it, too."""

    def hear(event: Mapping[str, Any]) -> None:
        if event["event"] == "warning":
            warned.append(event["text"])
        notify(event)

    return hear


def secret_order(ids: Sequence[str], key: bytes, number: int) -> Tensor:
    """(ids,) int64: the ids' order under a secret key, whatever order they come in; another one for each `number`."""
    purpose = f"row order {number}".encode()
    tags = [hashlib.blake2b(id.encode(), key=key, person=purpose, digest_size=16).digest() for id in ids]
    return torch.tensor(sorted(range(len(tags)), key=tags.__getitem__), dtype=torch.int64)


def checked_places(places: Tensor, count: int, sender: str) -> Tensor:
    """The places if they are an order of so many rows; what is none is refused, with its sender named."""
    if len(places) != count:
        raise WireError("places.places", f"{sender!r} places {len(places)} rows, {count} were agreed")
    if not torch.equal(places.sort().values, torch.arange(count)):
        raise WireError("places.places", f"what {sender!r} sent is no order of {count} rows")
    return places


def declared(me: str, parties: Sequence[str], ids: int, mode: Literal["all", "active"] = "all") -> list[Declared]:
    """What this party sends to be aligned; about as much as if everybody had as many ids as it has."""
    leader, leads = parties[0], me == parties[0]
    others = tuple(name for name in parties if name != me)
    told = others if leads else (leader,)
    lines = [
        Declared("kept alignment", told, "a random name", "run", MESSAGE * len(told)),
        Declared("align hello", others, "how many ids it has", "run", 2 * MESSAGE * len(others)),
    ]
    if mode == "all":
        lines += [
            Declared("align masked", others, "ids, under secret exponents", "run", POINT * len(parties) * ids),
            Declared("align positions", others, "common rows, shuffled", "run", 8 * len(parties) * ids),
        ]
    else:
        lines.append(Declared("align masked", told, "ids, under secret exponents", "run", 2 * POINT * ids * len(told)))
        if leads:
            lines.append(Declared("align places", others, "common rows, shuffled", "run", 16 * ids * len(others)))
    if leads:
        lines += [
            Declared("align common", others, "how many rows are common", "run", MESSAGE * len(others)),
            Declared("places", others, "a secret order of these rows", "run", 8 * ids * len(others)),
        ]
    return lines


def _tensor(fingerprint: bytes) -> Tensor:
    return torch.tensor(list(fingerprint), dtype=torch.uint8)
