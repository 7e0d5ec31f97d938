"""Whose rows an attack is about: victims, the auxiliary rows it learns from, and rows it knows; none is two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    known: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """In the training split, rows that an attacker knows; no victim is among them."""
    spare: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """In the training split, more rows to learn from, where that many are wanted; none is a victim or known."""

    @property
    def learnt_from(self) -> tuple[tuple[Split, Tensor], ...]:
        """The auxiliary rows, split by split."""
        return (("test", self.auxiliary), *((("train", self.spare),) if len(self.spare) else ()))

    def first(self, most: int | None) -> dict[Split, Tensor]:
        """The victims, at most so many of each split; they were drawn at random, so the first are as good as any."""
        return {split: positions[:most] for split, positions in self.victims.items()}


def choose(
    data: PartyData, seed: int, auxiliary: int, victims: int, known: int = 0, from_training: bool = False
) -> Sample:
    """Of the rows that the party holds: auxiliary from a shuffle of the test rows, at most half of them; then victims.

    Rows that an attacker knows come after the victims, at most a third of the training rows. `from_training`: what the
    test rows lack of `auxiliary` comes from the training rows after these, at most two thirds of all.

    The shuffle is the job's, so that all parties' auxiliary rows are of the same people.
    """
    train, test = (_shuffled(data.part(split), seed, split) for split in ("train", "test"))
    count = min(auxiliary, len(test) // 2)
    if count < 4 or not len(train):
        raise InputError(
            f"{data.name}: {len(test)} test rows and {len(train)} training rows are too few for an audit: "
            "the attacker learns from half of the test rows, and needs at least 4"
        )
    known = min(known, len(train) // 3)
    read = min(victims, len(train) - known)
    chosen: dict[Split, Tensor] = {"train": train[:read], "test": test[count : count + victims]}
    used = read + known
    spare = min(auxiliary - count, len(train) - used, 2 * len(train) // 3) if from_training else 0
    return Sample(test[:count], chosen, train[read:used], train[used : used + spare])


def _shuffled(part: Part, seed: int, split: str) -> Tensor:
    order = torch.randperm(len(part), generator=seeding.generator(seed, "audit", split))
    return order[part.present(order)]


def labels_at(active: PartyData, split: Split, positions: Tensor) -> Tensor | None:
    labels = active.part(split).labels
    return None if labels is None else labels[positions.to(labels.device)]


def labels_of(active: PartyData, parts: Sequence[tuple[Split, Tensor]]) -> Tensor | None:
    found = [labels for part in parts if (labels := labels_at(active, *part)) is not None]
    return torch.cat(found) if len(found) == len(parts) else None


def own_rows(active: PartyData, split: Split, positions: Tensor) -> Tensor | None:
    """What the attacker holds of these people itself, if it holds something of all of them."""
    part = active.part(split)
    if part.features is None or not active.shape or not part.present(positions).all():
        return None
    return part.take(positions)
