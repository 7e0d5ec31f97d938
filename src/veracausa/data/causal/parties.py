"""Which party holds which columns: consecutive blocks after a random permutation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.data.causal.columns import NAMED
from veracausa.errors import InputError
from veracausa.seeding import derive


def block_sizes(d: int, parties: int) -> tuple[int, ...]:
    """Equal blocks, the first ones larger by one where it does not come out even: 30 in four is 8, 8, 7, 7."""
    if not 1 <= parties <= d:
        raise InputError(f"{d} columns can not be dealt to {parties} parties, one each at least; name fewer parties")
    return tuple(d // parties + (at < d % parties) for at in range(parties))


def dealt(data: CausalData, sizes: Sequence[int] | int, seed: int) -> tuple[CausalData, tuple[tuple[int, ...], ...]]:
    """The data with its columns permuted, and each party's block of positions in it.

    `sizes` are those of the blocks, like [3, 3, 9], or the number of parties for equal ones.
    """
    d = len(data.names)
    blocks = block_sizes(d, sizes) if isinstance(sizes, int) else tuple(sizes)
    if not blocks or min(blocks) < 1 or sum(blocks) != d:
        raise InputError(f"parts {list(blocks)} do not share out {d} columns; make them at least 1 and add up to {d}")
    order = np.random.default_rng(derive(seed, "parties")).permutation(d)
    ends = np.cumsum(blocks)
    positions = tuple(tuple(range(end - size, end)) for end, size in zip(ends.tolist(), blocks, strict=True))
    return data.columns(order.tolist(), f"columns permuted and dealt in blocks of {list(blocks)}"), positions


def held_by(data: CausalData, parties: Mapping[str, Sequence[str]]) -> tuple[CausalData, tuple[tuple[int, ...], ...]]:
    """The data with each party's named columns after one another, and each party's block of positions in it.

    Columns that nobody holds are left out, and a note says so.
    """
    held = [name for columns in parties.values() for name in columns]
    kept = data.columns([data.names.index(name) for name in held if name in data.names])
    owners(parties, kept.names)
    ends = np.cumsum([len(columns) for columns in parties.values()]).tolist()
    positions = tuple(
        tuple(range(end - len(columns), end)) for end, columns in zip(ends, parties.values(), strict=True)
    )
    words = "; ".join(f"{party} holds {', '.join(columns)}" for party, columns in parties.items())
    left = [name for name in data.names if name not in held]
    unused = f"; nobody holds {', '.join(left)}, which take no part" if left else ""
    return replace(kept, notes=(*kept.notes, words + unused)), positions


def owners(parties: Mapping[str, Sequence[str]], names: Sequence[str]) -> tuple[str, ...]:
    """Each column's party; refused where a column has none, two, or does not exist."""
    owner: dict[str, str] = {}
    for party, columns in parties.items():
        unknown = [column for column in columns if column not in names]
        if unknown:
            are = "which is" if len(unknown) == 1 else "which are"
            raise InputError(f"parties: {party!r} names {_columns(unknown)}, {are} not in the data")
        for column in columns:
            if column in owner:
                raise InputError(
                    f"parties: column {column!r} is named by {owner[column]!r} and {party!r}; leave it in one place"
                )
            owner[column] = party
    free = [name for name in names if name not in owner]
    if free:
        belong, it = ("belongs", "it") if len(free) == 1 else ("belong", "them")
        raise InputError(
            f"parties: {_columns(free)} {belong} to no party; give {it} to one, or leave {it} out of the data"
        )
    return tuple(owner[name] for name in names)


def _columns(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ("column " if len(names) == 1 else "columns ") + ", ".join(map(repr, names[:NAMED])) + more
