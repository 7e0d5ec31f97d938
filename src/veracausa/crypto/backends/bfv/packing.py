"""Where rows, columns and products lie in the slots of ciphertexts; both ends compute it from agreed shapes.

For X·W a ciphertext holds one column of many rows, slot (row, j), and is multiplied by W[column, j]. For Xᵀ·G it holds
many lanes, slot (lane, column, j); a lane belongs to one batch and runs, ciphertext by ciphertext, through rows of it.
A big batch takes many lanes, whose sums are added up after decryption, each under a mask of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.backends.bfv.parameters import DEGREE, MOST_TERMS
from veracausa.errors import InputError

Indices = NDArray[np.int64]
NOTHING = -1


@dataclass(frozen=True)
class Packing:
    """Of all batches of one party, for one width."""

    sizes: tuple[int, ...]
    columns: int
    width: int

    def __post_init__(self) -> None:
        if not 0 < self.width <= DEGREE:
            raise InputError(f"BFV packs 1 to {DEGREE} features of a target, not {self.width}; take fewer hidden units")
        if not 0 < self.columns <= MOST_TERMS:
            raise InputError(f"BFV packs 1 to {MOST_TERMS} columns of a party, not {self.columns}")
        if not self.sizes or min(self.sizes) < 1:
            raise InputError("a batch without rows can not be encrypted")

    @cached_property
    def starts(self) -> Indices:
        """First row of each batch."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    # Forward.

    @property
    def chunk_rows(self) -> int:
        return DEGREE // self.width

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk_rows)

    # Backward.

    @property
    def group(self) -> int:
        """Columns that share a ciphertext."""
        return min(self.columns, DEGREE // self.width)

    @property
    def groups(self) -> int:
        return -(-self.columns // self.group)

    @property
    def lanes(self) -> int:
        """Of a ciphertext."""
        return DEGREE // (self.group * self.width)

    @cached_property
    def depth(self) -> int:
        """Rows of a lane: as few as fit the fewest outputs."""
        outputs, sizes = -(-len(self.sizes) // self.lanes), np.array(self.sizes)
        while True:
            for depth in range(max(1, -(-self.rows // (outputs * self.lanes))), min(max(self.sizes), MOST_TERMS) + 1):
                if int((-(-sizes // depth)).sum()) <= outputs * self.lanes:
                    return depth
            outputs += 1

    @cached_property
    def batch_lanes(self) -> Indices:
        """First lane of each batch."""
        return np.concatenate([[0], np.cumsum(-(-np.array(self.sizes) // self.depth))])

    @property
    def outputs(self) -> int:
        """Ciphertexts that all lanes take."""
        return -(-int(self.batch_lanes[-1]) // self.lanes)

    @cached_property
    def lane_rows(self) -> Indices:
        """(outputs, lanes, depth): which row."""
        out = np.full((self.outputs * self.lanes, self.depth), NOTHING)
        for batch, size in enumerate(self.sizes):
            first, last = self.batch_lanes[batch : batch + 2]
            block = np.full((last - first) * self.depth, NOTHING)
            block[:size] = np.arange(self.starts[batch], self.starts[batch + 1])
            out[first:last] = block.reshape(-1, self.depth)
        return out.reshape(self.outputs, self.lanes, self.depth)

    @property
    def ciphertexts(self) -> int:
        """Of all rows, in both forms."""
        return self.chunks * self.columns + self.outputs * self.groups * self.depth

    def asked(self, batches: Sequence[int]) -> list[Asked]:
        """What is computed at a time: no batch twice."""
        positions = np.concatenate([[0], np.cumsum([self.sizes[batch] for batch in batches])])
        turns: list[Asked] = []
        seen: dict[int, int] = {}
        for request, batch in enumerate(batches):
            turn = seen[batch] = seen.get(batch, -1) + 1
            if turn == len(turns):
                turns.append(Asked(self))
            turns[turn].take(request, batch, int(positions[request]))
        return turns


class Asked:
    """Some batches, each once: where their rows lie in what was asked and in the ciphertexts."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.position = np.full(packing.chunks * packing.chunk_rows, NOTHING)
        """Of each row among all rows that were asked."""
        self.request = np.full(packing.chunks * packing.chunk_rows, NOTHING)
        self.lane_request = np.full(packing.outputs * packing.lanes, NOTHING)

    def take(self, request: int, batch: int, position: int) -> None:
        first, last = self.packing.starts[batch : batch + 2]
        self.position[first:last] = np.arange(position, position + last - first)
        self.request[first:last] = request
        if last == self.packing.rows:
            self.request[last:] = request  # no rows are there: any factor will do, and this one is at hand
        self.lane_request[slice(*self.packing.batch_lanes[batch : batch + 2])] = request

    def requests(self) -> list[int]:
        return [int(request) for request in np.unique(self.lane_request[self.lane_request >= 0])]

    def touched_chunks(self) -> list[int]:
        return np.flatnonzero((self.position >= 0).reshape(self.packing.chunks, -1).any(axis=1)).tolist()

    def touched_outputs(self) -> list[int]:
        return np.flatnonzero((self.lane_request >= 0).reshape(self.packing.outputs, -1).any(axis=1)).tolist()

    def chunk(self, values: Indices, chunk: int) -> Indices:
        """The part of a number a row that belongs to a chunk."""
        out: Indices = values.reshape(self.packing.chunks, -1)[chunk]
        return out

    def step_positions(self, output: int, step: int) -> Indices:
        """(lanes,): which of the asked rows each lane meets."""
        rows = self.packing.lane_rows[output, :, step]
        return np.where(rows == NOTHING, NOTHING, self.position[rows])
