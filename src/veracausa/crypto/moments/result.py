"""What the receiver has in the end: sums over rows of products of two columns; and the same computed in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.moments.account import MomentAccount
from veracausa.crypto.moments.encoding import Blocks, encoded_blocks, exact_product
from veracausa.crypto.moments.plan import MomentPlan


@dataclass(frozen=True)
class Moments:
    """Sums over rows, as (columns, columns) over all parties. They are symmetric."""

    rows: int
    slices: Mapping[str, slice]
    """Where each party's columns lie."""
    integers: NDArray[np.int64]
    """Exact, or with noise of integers."""
    unit: float
    """What 1 of an integer stands for."""
    noise: Array
    """The standard deviation of the noise of each entry of `gram`; 0 where there is none."""
    account: MomentAccount | None = None
    """What the release told of a row at most; None: it had no noise."""

    @property
    def gram(self) -> Array:
        return np.asarray(self.integers * self.unit, dtype=np.float64)

    def block(self, one: str, other: str) -> Array:
        """Products of one party's columns with another's."""
        return np.asarray(self.integers[self.slices[one], self.slices[other]] * self.unit)

    def state(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "slices": {party: [at.start, at.stop] for party, at in self.slices.items()},
            "integers": torch.from_numpy(self.integers.copy()),
            "unit": self.unit,
            "noise": torch.from_numpy(self.noise.copy()),
            "account": None if self.account is None else self.account.state(),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Moments:
        """What `state` was taken of."""
        account = state["account"]
        return cls(
            state["rows"],
            {party: slice(start, stop) for party, (start, stop) in state["slices"].items()},
            state["integers"].numpy(),
            state["unit"],
            state["noise"].numpy(),
            None if account is None else MomentAccount(**account),
        )


def moments_of(blocks: Mapping[str, Blocks], plan: MomentPlan) -> Moments:
    """The sums of all parties' rows, computed in one place without noise: for tests, baselines and experiments."""
    plan.check()
    total = np.zeros((plan.width, plan.width), dtype=np.int64)
    with_columns = [party for party in plan.parties if plan.widths[party]]
    streams = [encoded_blocks(plan, party, blocks[party]) for party in with_columns]
    for together in zip(*streams, strict=True):
        whole = np.concatenate(together, axis=1)
        total += exact_product(whole, whole, plan.most)
    return Moments(plan.rows, plan.slices, total, plan.unit, np.zeros(total.shape))


def noise_of(plan: MomentPlan) -> Array:
    """The standard deviation of each entry's noise, from who adds some: both parties of a pair, one to its own block.

    Each adds all that the account needs, so that it is enough if the other one withholds its own.
    """
    added = np.zeros((plan.width, plan.width))
    if plan.account is None:
        return added
    adds = {party: float(plan.adds_noise(party)) for party in plan.parties}
    for one, rows in plan.slices.items():
        for other, columns in plan.slices.items():
            added[rows, columns] = adds[one] if one == other else adds[one] + adds[other]
    return np.asarray(np.sqrt(added) * plan.account.deviation * plan.unit)
