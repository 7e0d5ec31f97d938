"""What an alignment is told: what all parties must agree on, and what each decides for itself."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from veracausa.alignment.protocol import CHUNK, VERSION
from veracausa.data.keys import KeyRules


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

    @property
    def rules(self) -> KeyRules:
        return KeyRules(self.case_fold, self.whole_numbers)

    def agreed(self) -> str:
        """All that must be the same, as text."""
        return json.dumps({**self.model_dump(mode="json"), "version": VERSION, "chunk": CHUNK}, sort_keys=True)


class OwnOptions(BaseModel):
    """What a party decides alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pad_to: int = Field(0, ge=0)
    """Announce at least so many ids; the rest are random points that match nothing."""
    max_ids: int = Field(10_000_000, ge=1)
    """Refuse a peer that brings more: who brings every possible id learns which ones the others have."""
    min_share: float = Field(0.01, ge=0, le=1)
    """Warn where less than this share of a peer's ids were found in common."""
    workers: int | None = Field(None, ge=0)
    """Processes that mask; 0: none but the party's own; None: one a core where there is enough to do."""
