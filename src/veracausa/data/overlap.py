"""Rows held out of training, for validation or for the test; and what limits leave out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.data.options import DataOptions, Overlap
from veracausa.data.vertical import Part
from veracausa.errors import InputError
from veracausa.registry import did_you_mean


def hold_out(count: int, share: float, rng: torch.Generator, setting: str) -> Tensor:
    """(count,) bool: which rows are drawn; at least one where the share is not 0, and never all."""
    chosen = torch.zeros(count, dtype=torch.bool)
    if share > 0:
        size = max(1, round(share * count))
        if size >= count:
            raise InputError(f"{setting} = {share} leaves none of the {count} rows for training; make it smaller")
        chosen[torch.randperm(count, generator=rng)[:size]] = True
    return chosen


def limit_notes(options: DataOptions, rows: tuple[int, int]) -> tuple[str, ...]:
    """What a reader must know where a limit leaves rows out."""
    notes = []
    for limit, total, split in ((options.train, rows[0], "training"), (options.test, rows[1], "test")):
        if limit is not None and limit < total:
            notes.append(f"{options.name}: the first {limit} of {total} {split} rows")
    return tuple(notes)


def parties_lacking(overlap: Overlap, passive: Sequence[str]) -> tuple[str, ...]:
    """The parties that lack training ids: those named, else the last passive one; nobody at fraction 1."""
    for name in overlap.parties:
        if name not in passive:
            raise InputError(f"overlap.parties: {name!r} is no passive party{did_you_mean(name, passive)}")
    if overlap.fraction == 1:
        return ()
    return overlap.parties or (passive[-1],)


def held(count: int, fraction: float, seed: int, party: str) -> Tensor:
    """Which of `count` training rows the party keeps, ascending: its own draw, the same for the same seed."""
    size = max(1, round(fraction * count))
    return torch.randperm(count, generator=seeding.generator(seed, "overlap", party))[:size].sort().values


def restrict(part: Part, positions: Tensor) -> Part:
    """The part as a party holds it that has only the rows at these positions; the alignment keeps its length."""
    positions = positions[part.present(positions)]
    rows = positions if part.index is None else part.index[positions]
    ids = None
    if part.ids is not None:
        kept = set(positions.tolist())
        ids = tuple(name if at in kept else "" for at, name in enumerate(part.ids))
    return Part(
        part.length,
        None if part.features is None else part.features[rows],
        index_of(positions, part.length),
        part.labels,
        ids,
        part.groups,
    )


def index_of(positions: Tensor, length: int) -> Tensor:
    """(length,) position -> row of the kept features, -1 where the position is not kept."""
    index = torch.full((length,), -1, dtype=torch.int64)
    index[positions] = torch.arange(len(positions))
    return index
