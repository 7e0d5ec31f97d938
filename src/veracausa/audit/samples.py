"""Whose rows an audit looks at: the attacker's auxiliary rows, and its victims in training and in test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.data.vertical import Part, PartyData, Split
from veracausa.errors import InputError


@dataclass(frozen=True)
class Sample:
    """Positions in the agreed alignment; no auxiliary row is a victim."""

    auxiliary: Tensor
    """In the test split."""
    victims: Mapping[Split, Tensor]

    def first(self, most: int | None) -> dict[Split, Tensor]:
        """The victims, at most so many of each split; they were drawn at random, so the first are as good as any."""
        return {split: positions[:most] for split, positions in self.victims.items()}


def choose(data: PartyData, seed: int, auxiliary: int, victims: int) -> Sample:
    """Of the rows that the party holds: auxiliary from a shuffle of the test rows, at most half of them; then victims.

    The shuffle is the job's, so that all parties' auxiliary rows are of the same people.
    """
    train, test = (_shuffled(data.part(split), seed, split) for split in ("train", "test"))
    count = min(auxiliary, len(test) // 2)
    if count < 4 or not len(train):
        raise InputError(
            f"{data.name}: {len(test)} test rows and {len(train)} training rows are too few for an audit: "
            "the attacker learns from half of the test rows, and needs at least 4"
        )
    return Sample(test[:count], {"train": train[:victims], "test": test[count : count + victims]})


def _shuffled(part: Part, seed: int, split: str) -> Tensor:
    order = torch.randperm(len(part), generator=seeding.generator(seed, "audit", split))
    return order[part.present(order)]


def column_groups(preprocessing: Mapping[str, Any] | None) -> tuple[int, ...] | None:
    """For each feature of a table the number of the column it came from; a number's flag for "missing" stands alone."""
    if not preprocessing:
        return None
    groups: list[int] = []
    for column in preprocessing["columns"]:
        number = max(groups, default=-1) + 1
        if column["kind"] == "numeric":
            groups += [number, number + 1] if column["missing"] else [number]
        else:
            groups += [number] * (len(column["values"]) + bool(column.get("other")) + bool(column["missing"]))
    return tuple(groups)


def column_titles(preprocessing: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names of the columns that `column_groups` numbers."""
    titles: list[str] = []
    for column in preprocessing["columns"] if preprocessing else ():
        flagged = column["kind"] == "numeric" and column["missing"]
        titles += [column["name"], f"{column['name']}: missing"] if flagged else [column["name"]]
    return tuple(titles)
