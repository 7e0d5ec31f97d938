"""Rows that all parties have, matched by their ids and put into one secret order.

A party checks its own ids first, and how many its partners bring. Private set intersection (`alignment`) then finds the
common rows. The order of a file is a secret: a file sorted by the label tells the label of every row. So the leader
(who holds the labels, or comes first) orders rows by a keyed hash of their ids. The system draws the key, and the key
never leaves the leader. It is kept, so that a repeated alignment gives the same order and checkpoints stay valid.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from veracausa.alignment import guessing
from veracausa.alignment.masking import POINT
from veracausa.alignment.program import AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.data.ids import normal_keys
from veracausa.errors import InputError, RunError, WireError
from veracausa.events import Event, Observer
from veracausa.federation.party_file import ALIGNMENT
from veracausa.training.split.protocol import MAX_ROWS
from veracausa.wire.link import Link
from veracausa.wire.message import MESSAGE, Declared, Kind, TensorSpec

Counts = tuple[int, int]
"""Ids of a party's rows, and of its test rows where they have a file of their own; else 0."""


class TooManyIds(RunError):
    """A partner announces more ids than this party takes."""


@dataclass(frozen=True)
class IdFile:
    """The ids of one file, as a party brings them to one alignment."""

    ids: Sequence[str]
    source: str
    """Names the file in messages."""
    options: OwnOptions = field(default_factory=OwnOptions)
    number: int = 0
    """Tells several alignments of the same parties apart."""
    expected: Mapping[str, int] | None = None
    """How many ids all have agreed that each other party brings; None: nothing was agreed."""


class OwnIds:
    """A party's ids of a whole job, found in order at home: none is missing, none stands there twice."""

    def __init__(self, me: str, settings: AlignmentSettings, options: OwnOptions, files: Sequence[IdFile]) -> None:
        self.me, self.settings, self.options, self.files = me, settings, options, tuple(files)
        self.agreed: Mapping[str, Counts] | None = None
        """What the others have announced, once all have consented."""
        self._keys = [normal_keys(file.ids, settings.rules, file.source) for file in self.files]
        own = len(self._keys[0])
        if settings.mode == "active" and me == settings.parties[0] and options.pad_to > own:
            raise InputError(
                f"party.toml: {ALIGNMENT}.pad_to = {options.pad_to}: with match = 'active' this party's {own} rows are "
                "the agreed ones, and their number cannot be hidden; leave it out"
            )

    @property
    def announced(self) -> Counts:
        """What the others are told before anybody consents."""
        train, *test = (self.options.announced(len(keys)) for keys in self._keys)
        return train, test[0] if test else 0

    def brought(self, number: int) -> IdFile:
        """The ids of an alignment: 0 of all rows, 1 of test rows, which may lie among the others."""
        file = self.files[min(number, len(self.files) - 1)]
        expected = (
            None if self.agreed is None else {peer: both[number] or both[0] for peer, both in self.agreed.items()}
        )
        return IdFile(file.ids, file.source, self.options, number, expected)

    def refuse(self, announced: Mapping[str, Counts]) -> None:
        """Refuse a partner that announces too many, before a person is asked and before an id is masked."""
        for peer, file, theirs in self._met(announced):
            if (problem := self.options.too_many(peer, theirs, len(self._keys[file]))) is not None:
                raise TooManyIds(problem)

    def notes(self, announced: Mapping[str, Counts]) -> tuple[str, ...]:
        """What a person should know of ids before saying yes."""
        spaces = [guessing.id_space(keys) for keys in self._keys]
        notes = [*guessing.own_risk(spaces[0], Path(self.files[0].source).name)]
        for peer, file, theirs in self._met(announced):
            notes += guessing.before(len(self._keys[file]), {peer: theirs}, spaces[file])
        return tuple(dict.fromkeys(notes))

    def _met(self, announced: Mapping[str, Counts]) -> Iterator[tuple[str, int, int]]:
        """Every partner whose ids meet this party's, which of its files they meet, and how many they are."""
        for peer, both in announced.items():
            if peer in self.settings.parties and self.settings.intersects(self.me, peer):
                for number in range(2 if both[1] or len(self._keys) > 1 else 1):
                    yield peer, min(number, len(self._keys) - 1), both[number] or both[0]


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

    def hear(event: Event) -> None:
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
    receivers = others if leads else (leader,)
    lines = [
        Declared("kept alignment", receivers, "a random name", "run", MESSAGE * len(receivers)),
        Declared("align hello", others, "how many ids it has", "run", 2 * MESSAGE * len(others)),
    ]
    if mode == "all":
        lines += [
            Declared("align masked", others, "ids, under secret exponents", "run", POINT * len(parties) * ids),
            Declared("align positions", others, "common rows, shuffled", "run", 8 * len(parties) * ids),
        ]
    else:
        lines.append(
            Declared("align masked", receivers, "ids, under secret exponents", "run", 2 * POINT * ids * len(receivers))
        )
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
