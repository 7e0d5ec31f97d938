"""Rows held out of training, for validation or for the test; and what limits leave out."""

from __future__ import annotations

import torch
from torch import Tensor

from veracausa.data.options import DataOptions
from veracausa.errors import InputError


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
