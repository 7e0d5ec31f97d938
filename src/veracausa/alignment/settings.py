"""What all parties of an alignment must agree on, and what each decides for itself."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from veracausa.data.ids import KeyRules

VERSION = 1
"""Of the protocol."""
CHUNK = 4096
"""Points or positions in one message; every set crosses in messages of this many, and the rest in its last."""


class AlignmentSettings(BaseModel):
    """The same at every party; a party whose settings differ is refused before anything of an id has left."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parties: tuple[str, ...] = Field(min_length=2)
    """Everybody, the active party first."""
    mode: Literal["all", "active"] = "all"
    """all: the rows that everybody has. active: the active party's rows, each with whoever has it."""
    case_fold: bool = False
    """Whether `ab-1` and `AB-1` are the same id."""
    whole_numbers: bool = True
    """Whether `17.0` is the id `17`, as a program that met a gap in a column of integers writes it."""

    @field_validator("parties")
    @classmethod
    def _different(cls, parties: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(parties)) < len(parties):
            raise ValueError("two parties have the same name")
        return parties

    def intersects(self, me: str, peer: str) -> bool:
        """Whether one of the two learns what is in the other's set; in mode `active` passive parties do not."""
        return self.mode == "all" or self.parties[0] in (me, peer)

    @property
    def rules(self) -> KeyRules:
        return KeyRules(self.case_fold, self.whole_numbers)

    def agreed(self) -> str:
        """All that must be the same, as text."""
        return json.dumps({**self.model_dump(mode="json"), "version": VERSION, "chunk": CHUNK}, sort_keys=True)


TIMES = 20
LEAST = 1000
MOST = 10_000_000
"""Ids that no party is asked to wait for, unless it says so."""


class OwnOptions(BaseModel):
    """What a party decides alone; across organisations, `[alignment]` of its party.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pad_to: int = Field(0, ge=0)
    """Announce at least so many ids; the rest are random points that match nothing."""
    max_ids: int | None = Field(None, ge=1)
    """Refuse a peer that brings more: who brings every possible id learns which ones the others have. None: 20 times as
    many as this party announces itself, and 1,000 in any case."""
    min_share: float = Field(0.01, ge=0, le=1)
    """Warn where less than this share of a peer's ids were found in common."""
    workers: int | None = Field(None, ge=0)
    """Processes that mask; 0: none but the party's own; None: one a core where there is enough to do."""

    def announced(self, own: int) -> int:
        """How many ids a party says it has that has so many."""
        return max(own, self.pad_to)

    def limit(self, own: int) -> int:
        """How many ids a party takes from a peer if it has so many itself.

        It follows from what all know: a peer can find it out by trying, and must not find out what padding hides.
        """
        return self.max_ids or max(TIMES * self.announced(own), LEAST)

    def too_many(self, peer: str, theirs: int, own: int) -> str | None:
        """Why a peer's ids are not taken, in words; None where they are."""
        if theirs <= (limit := self.limit(own)):
            return None
        why = "" if self.max_ids else f", {TIMES} times what is brought here,"
        return (
            f"{peer!r} brings {theirs:,} ids, at most {limit:,}{why} are taken: of each it would learn whether it is "
            "common; if it really has so many, raise max_ids (--max-ids, or [alignment] in party.toml)"
        )
