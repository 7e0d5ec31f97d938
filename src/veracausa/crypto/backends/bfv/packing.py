"""Where rows lie in the slots of ciphertexts, and results in those of replies; both ends compute it from agreed shapes.

A ciphertext holds one column: slot (lane, j) is the value of the row that the lane meets there, for all j. A lane
belongs to one batch and runs through rows of it, ciphertext by ciphertext, the steps of a strand.

For X·W, W[column, j] of each lane's batch is the factor at all steps, and columns are summed up: a reply a step. For
Xᵀ·G, the gradients of the rows that are met are the factor of all columns, and steps are summed up: a reply a column,
in which the lanes of a batch hold parts of its sum, each under a mask of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.backends.bfv.ciphertexts import DEGREE, MOST_TERMS
from veracausa.errors import InputError

Indices = NDArray[np.int64]
NOTHING = -1
_ENDS, _PRODUCT = 15, 2
"""Time of a reply and a factor, and of two products, in about 0.4 ms."""


@dataclass(frozen=True)
class Block:
    """Batches of one size."""

    size: int
    batches: tuple[int, ...]
    columns: int
    lanes: int
    """Of a ciphertext."""

    @cached_property
    def depth(self) -> int:
        """Steps of a strand: what costs least when all batches are asked, forward and backward."""
        depths = np.arange(1, min(self.size, MOST_TERMS) + 1)
        strands = -(-len(self.batches) * -(-self.size // depths) // self.lanes)
        cost = strands * ((self.columns + depths) * _ENDS + self.columns * depths * _PRODUCT)
        return int(depths[cost.argmin()])

    @property
    def lanes_each(self) -> int:
        """Of a batch."""
        return -(-self.size // self.depth)

    @property
    def strands(self) -> int:
        return -(-len(self.batches) * self.lanes_each // self.lanes)

    @cached_property
    def lane_batch(self) -> Indices:
        """(strands, lanes): which of the block's batches."""
        batch = np.arange(self.strands * self.lanes) // self.lanes_each
        return np.where(batch < len(self.batches), batch, NOTHING).reshape(self.strands, self.lanes)

    @cached_property
    def rows(self) -> Indices:
        """(strands, depth, lanes): which row of the lane's batch."""
        first = np.arange(self.strands * self.lanes).reshape(self.strands, 1, self.lanes) % self.lanes_each * self.depth
        row = first + np.arange(self.depth)[:, None]
        return np.where((row < self.size) & (self.lane_batch[:, None] >= 0), row, NOTHING)


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
    def blocks(self) -> list[Block]:
        by_size: dict[int, list[int]] = {}
        for batch, size in enumerate(self.sizes):
            by_size.setdefault(size, []).append(batch)
        lanes = DEGREE // self.width
        return [Block(size, tuple(batches), self.columns, lanes) for size, batches in by_size.items()]

    @property
    def ciphertexts(self) -> int:
        return sum(block.strands * block.depth * self.columns for block in self.blocks)

    def turns(self, batches: Sequence[int]) -> list[ReplyPacking]:
        """What is computed at a time: batches of one block, none of them twice."""
        starts = np.concatenate([[0], np.cumsum([self.sizes[batch] for batch in batches])])
        turns: list[ReplyPacking] = []
        for number, block in enumerate(self.blocks):
            inside = {batch: at for at, batch in enumerate(block.batches)}
            left = [(request, batch) for request, batch in enumerate(batches) if batch in inside]
            while left:
                asked = {batch: request for request, batch in reversed(left)}
                left = [(request, batch) for request, batch in left if asked[batch] != request]
                requests = np.full(len(block.batches) + 1, NOTHING)
                for batch, request in asked.items():
                    requests[inside[batch]] = request
                turns.append(ReplyPacking(number, block, requests, starts))
        return turns


class ReplyPacking:
    """Some batches of a block, each once."""

    def __init__(self, number: int, block: Block, requests: Indices, starts: Indices) -> None:
        self.number, self.block = number, block
        batches = np.flatnonzero(requests >= 0)
        self.asked = requests[batches]
        """Which requests."""
        self.lanes = batches[:, None] * block.lanes_each + np.arange(block.lanes_each)
        """(asked, lanes of each): counted over all strands."""
        self.requests = requests[block.lane_batch]
        """(strands, lanes): which request each lane belongs to."""
        belongs = (block.rows >= 0) & (self.requests[:, None] >= 0)
        self.positions = np.where(belongs, starts[self.requests][:, None] + block.rows, NOTHING)
        """(strands, depth, lanes): which of the asked rows each lane meets."""

    @cached_property
    def strands(self) -> list[int]:
        """Those with a lane that was asked."""
        return [strand for strand in range(self.block.strands) if (self.requests[strand] >= 0).any()]

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """Strands and steps at which rows are met that were asked."""
        met = np.argwhere((self.positions >= 0).any(axis=2))
        return [(int(strand), int(step)) for strand, step in met]
