"""A party's own data, looked at where it joins: what cannot be used is said before anybody else waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from veracausa.alignment import guessing
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.data.ids import normal_keys
from veracausa.errors import InputError, RunError
from veracausa.federation.members import first_problem

ALIGNMENT = "alignment"
"""The table of party.toml. It is no part of a job: how rows are matched is settled before a job sees them."""
Counts = tuple[int, int]
"""Ids of a party's rows, and of its test rows where they have a file of their own; else 0."""


def own_options(tree: Mapping[str, Any], folder: Path) -> OwnOptions:
    """What `[alignment]` of a party.toml says."""
    try:
        return OwnOptions.model_validate(tree.get(ALIGNMENT, {}))
    except ValidationError as error:
        raise InputError(f"{folder / 'party.toml'}: {ALIGNMENT}.{first_problem(error)}") from None


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
        """What the others have announced, once all have said yes."""
        self._keys = [normal_keys(file.ids, settings.rules, file.source) for file in self.files]
        own = len(self._keys[0])
        if settings.mode == "active" and me == settings.parties[0] and options.pad_to > own:
            raise InputError(
                f"party.toml: {ALIGNMENT}.pad_to = {options.pad_to}: with match = 'active' this party's {own} rows are "
                "the agreed ones, and their number cannot be hidden; leave it out"
            )

    @property
    def announced(self) -> Counts:
        """What the others are told, before anybody says yes."""
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
        told = [*guessing.own_risk(spaces[0], Path(self.files[0].source).name)]
        for peer, file, theirs in self._met(announced):
            told += guessing.before(len(self._keys[file]), {peer: theirs}, spaces[file])
        return tuple(dict.fromkeys(told))

    def _met(self, announced: Mapping[str, Counts]) -> Iterator[tuple[str, int, int]]:
        """Every partner whose ids meet this party's, which of its files they meet, and how many they are."""
        for peer, both in announced.items():
            if peer in self.settings.parties and self.settings.intersects(self.me, peer):
                for number in range(2 if both[1] or len(self._keys) > 1 else 1):
                    yield peer, min(number, len(self._keys) - 1), both[number] or both[0]
