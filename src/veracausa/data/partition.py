"""Who holds what of a row: strips of a picture, pixels at random, or a table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from veracausa.data.options import Partition
from veracausa.errors import InputError
from veracausa.registry import did_you_mean


def holders(partition: Partition, active: str, passive: Sequence[str]) -> tuple[str, ...]:
    """The parties that hold features, in the order of the parts."""
    return (active, *passive) if partition.active_has_features else tuple(passive)


def strip_sizes(extent: int, count: int, parts: Sequence[int] | None, axis: str) -> tuple[int, ...]:
    """Pixels a party: as the job says, else equal with the remainder at the last."""
    if parts is None:
        return _equal(extent, count, f"pixels of {axis}")
    _one_each(parts, count)
    if sum(parts) != extent:
        raise InputError(
            f"partition.parts = {list(parts)} adds up to {sum(parts)}, but the {axis} is {extent} pixels; "
            "make it add up"
        )
    return tuple(parts)


def strips(images: Tensor, sizes: Sequence[int], axis: Literal["width", "height"]) -> list[Tensor]:
    """Consecutive strips of (rows, channels, height, width) pictures, as views."""
    return list(torch.split(images, list(sizes), dim=3 if axis == "width" else 2))


def pixels(images: Tensor, positions: Tensor) -> Tensor:
    """(rows, channels * pixels): these pixels of each picture, all channels of each, one channel after the other."""
    return images.flatten(2)[:, :, positions].flatten(1)


def random_groups(
    count: int, parties: int, parts: Sequence[int] | None, rng: torch.Generator, of: str = "columns"
) -> list[Tensor]:
    """Disjoint random groups out of `count` positions, each in ascending order."""
    if parts is None:
        sizes = _equal(count, parties, of)
    else:
        _one_each(parts, parties)
        if sum(parts) > count:
            raise InputError(
                f"partition.parts = {list(parts)} asks for {sum(parts)} {of}, but there are {count}; ask for less"
            )
        sizes = tuple(parts)
    drawn = torch.randperm(count, generator=rng)[: sum(sizes)]
    return [group.sort().values for group in torch.split(drawn, list(sizes))]


def check_claims(
    claims: Mapping[str, Sequence[str]], known: Sequence[str], reserved: Mapping[str, str], where: str
) -> None:
    """Refuse columns of one file that do not exist, are no features, or are claimed twice.

    `reserved` says what a column is when it is not a feature: the id, or the label.
    """
    owner: dict[str, str] = {}
    for party, columns in claims.items():
        for column in columns:
            if column in reserved:
                raise InputError(
                    f"party {party!r} claims column {column!r} of {where}, which is the {reserved[column]}; "
                    "take it out of the party's columns"
                )
            if column not in known:
                raise InputError(
                    f"{where}: no column {column!r} (claimed by party {party!r}){did_you_mean(column, known)}"
                )
            if column in owner:
                both = f"twice by party {party!r}" if owner[column] == party else f"by {owner[column]!r} and {party!r}"
                raise InputError(f"column {column!r} of {where} is claimed {both}; leave it in one place")
            owner[column] = party


def check_named_parties(partition: Partition, parties: Sequence[str]) -> None:
    """Refuse columns for a party that does not take part."""
    for name in partition.columns:
        if name not in parties:
            raise InputError(f"partition.columns.{name}: no such party{did_you_mean(name, parties)}")


def _equal(extent: int, count: int, of: str) -> tuple[int, ...]:
    size = extent // count
    if size == 0:
        raise InputError(
            f"{extent} {of} are too few for {count} parties: one would be left with none; name fewer parties"
        )
    return (*[size] * (count - 1), extent - size * (count - 1))


def _one_each(parts: Sequence[int], count: int) -> None:
    if len(parts) != count:
        raise InputError(
            f"partition.parts = {list(parts)} has {len(parts)} parts for {count} parties with features; "
            "give one a party"
        )
    if min(parts) < 1:
        raise InputError(f"partition.parts = {list(parts)} leaves a party with nothing; give each at least 1")
