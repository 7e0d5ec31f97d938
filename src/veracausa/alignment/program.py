"""A party of an alignment: a straight program over a link, which ends with this party's rows in the agreed order."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veracausa.alignment import guessing
from veracausa.alignment import masking as curve
from veracausa.alignment.exchange import COMMON, HELLO, MASKED, PLACES, POSITIONS, handshake
from veracausa.alignment.masking import Points, Workers
from veracausa.alignment.modes import RingIntersection, align_active, align_passive
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.data.ids import normal_keys
from veracausa.errors import InputError, WireError
from veracausa.events import Observer
from veracausa.runs.machine import usable_cores
from veracausa.wire.link import Link

FEW = 4096
"""Exponentiations that are done before a process would have started."""


@dataclass(frozen=True, eq=False)
class Aligned:
    """What one party knows at the end."""

    rows: Tensor
    """(length,) int64: this party's row, from 0, at each place of the agreed order; -1 where it has none."""
    own: int
    """Rows that it brought."""
    announced: Mapping[str, int]
    """How many ids each party said it has, random ones that it may have added among them."""
    common: Mapping[str, int]
    """With each peer that this party knows it of, how many ids it shares: in mode `all`, the number that all share."""
    warnings: tuple[str, ...] = ()

    @property
    def held(self) -> int:
        """Places of the agreed order that this party has a row for."""
        return int((self.rows >= 0).sum())

    @property
    def share(self) -> float:
        """The share of its own rows that are in the agreed order."""
        return self.held / self.own


class AlignmentProgram:
    """Finds the rows in common. Wrong ids are refused at once, before anything crosses.

    Every party runs it over its own link, with its own ids and the same settings. `source` names the ids in messages,
    `expected` says how many ids each other party has announced before; one that brings another number is refused.
    """

    def __init__(
        self,
        ids: Sequence[str],
        settings: AlignmentSettings,
        own: OwnOptions | None = None,
        source: str = "ids",
        expected: Mapping[str, int] | None = None,
    ) -> None:
        self.settings = settings
        self.own = own or OwnOptions()
        self.keys = normal_keys(ids, settings.rules, source)
        self.expected = expected

    def __call__(self, link: Link, notify: Observer = lambda event: None) -> Aligned:
        self._check(link)
        others = [name for name in self.settings.parties if name != link.me]
        for peer in others:
            link.declare(HELLO, MASKED, COMMON, POSITIONS, PLACES, peer=peer)
        session = handshake(link, self.settings, len(self.keys), self.own, self.expected)
        work = self._work(link.me, session.counts)
        cores = 0 if work < FEW else usable_cores()
        done = 0

        def progress(values: int) -> None:
            nonlocal done
            done += values
            notify({"event": "aligning", "party": link.me, "share": done / work})

        with Workers(curve.new_key(), cores if self.own.workers is None else self.own.workers, progress) as workers:
            rows, common = self._align(link, session.counts, self._expanded(session.domain), workers)
        return Aligned(
            torch.from_numpy(rows),
            len(self.keys),
            session.counts,
            common,
            tuple(self._warnings(common, session.counts)),
        )

    def _align(
        self, link: Link, counts: Mapping[str, int], uniform: Points, workers: Workers
    ) -> tuple[np.ndarray, dict[str, int]]:
        active, *passive = self.settings.parties
        if self.settings.mode == "all":
            rows = RingIntersection(link, self.settings.parties, counts, workers).align(uniform)
            if len(rows) and int(rows.max()) >= len(self.keys):
                raise WireError("align positions", "name a random point that this party had added to its ids")
            return rows, {peer: len(rows) for peer in counts if peer != link.me}
        if link.me == active:
            return align_active(link, passive, counts, uniform, workers)
        rows = align_passive(link, active, counts, uniform, workers)
        if int(rows.max()) >= len(self.keys):
            raise WireError("align places", f"name a random point that this party had added (from {active!r})")
        return rows, {active: int((rows >= 0).sum())}

    def _expanded(self, domain: bytes) -> Points:
        """Every id as bytes that become a point; random ones follow, up to what was announced."""
        expanded = b"".join([curve.expand(key.encode(), domain) for key in self.keys])
        added = self.own.announced(len(self.keys)) - len(self.keys)
        whole = np.frombuffer(expanded + secrets.token_bytes(curve.UNIFORM * added), dtype=np.uint8)
        return whole.reshape(-1, curve.UNIFORM)

    def _work(self, me: str, counts: Mapping[str, int]) -> int:
        """How many exponentiations this party will do."""
        active = self.settings.parties[0]
        if self.settings.mode == "all" or me == active:
            return sum(counts.values())
        return counts[me] + counts[active]

    def _check(self, link: Link) -> None:
        known = {link.me, *link.peers}
        if link.me not in self.settings.parties or not known.issuperset(self.settings.parties):
            named = ", ".join(self.settings.parties)
            raise InputError(f"align: the parties are {named}; {link.me!r} has links to {', '.join(link.peers)} only")
        if self.settings.mode == "active" and link.me == self.settings.parties[0] and self.own.pad_to > len(self.keys):
            raise InputError(
                f"align: pad_to = {self.own.pad_to}: in mode active the active party's {len(self.keys)} rows are the "
                "agreed order, and their number cannot be hidden; leave pad_to out"
            )

    def _warnings(self, common: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
        space = guessing.id_space(self.keys)
        return list(guessing.after(len(self.keys), counts, common, space, self.own.min_share))
