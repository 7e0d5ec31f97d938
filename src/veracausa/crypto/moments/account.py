"""What one release of all sums tells of a row: its sensitivity, the noise that an ε needs, and what releases add up to.

Neighbours are two tables that differ in one row. It is replaced, because the number of rows is public: at all parties,
or at all but the receiver where that one adds no noise. A row x adds x·xᵀ to the sums, of which each entry on or above
the diagonal is released once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from veracausa.crypto.zcdp import zcdp_epsilon, zcdp_rho
from veracausa.errors import InputError

EXACT = -1.0
"""Stands for ρ where a release has no noise: its ρ is infinite."""


def sensitivity(clip: float, parties: int, beside_fixed: bool) -> float:
    """The most that the released entries move, as a vector, when one row is replaced.

    Each of so many parties has a part of the row with norm `clip` at most. `beside_fixed`: there is one more party, of
    the same clip, whose part stays as it is and whose own block is not counted (the receiver, who knows it). Products
    with its part are counted.

    For parts p and q of all parties, d_k = p_k·q_k and D = Σ d_k, the entries move by at most

        ½(|p|⁴ + |q|⁴ − 2D²) + ½ Σ_k (|p_k|⁴ + |q_k|⁴ − 2d_k²) + B²(|p|² + |q|² − 2D)

    in the square, the last term with a fixed party only. It grows with the norms, so all are B. It is largest where all
    d_k are equal: D = 0 without a fixed party, and D = −m·B²/(m + 1) with one. Both are attained by parts that lie in
    two columns of a party.
    """
    m = parties
    square = m * (m + 3) + m / (m + 1) if beside_fixed else m * (m + 1)
    return clip**2 * math.sqrt(square)


@dataclass(frozen=True)
class MomentAccount:
    """The cost of one release, of which every party that adds noise adds all that is needed."""

    rho: float
    epsilon: float
    delta: float
    deviation: float
    """σ of one party's noise on every entry, in integers."""

    @classmethod
    def planned(cls, epsilon: float, delta: float, clip: float, parties: int, beside_fixed: bool) -> MomentAccount:
        """That of an ε: `clip` is in integers."""
        most = zcdp_rho(epsilon, delta)
        deviation = sensitivity(clip, parties, beside_fixed) / math.sqrt(2 * most)
        return cls(most, epsilon, delta, deviation)

    def state(self) -> dict[str, float]:
        return {"rho": self.rho, "epsilon": self.epsilon, "delta": self.delta, "deviation": self.deviation}


def check_budget(
    account: MomentAccount | None, budget: float | None, delta: float, release: str, earlier: Mapping[str, float]
) -> None:
    """Refuse a release that, with earlier ones of the same rows, would spend more than was agreed.

    `earlier` has the ρ of each release by its name, `EXACT` where it had no noise. The release itself may be among
    them: sent again, it is the same numbers and costs nothing more. Without a budget there is one release.
    """
    others = {name: rho for name, rho in earlier.items() if name != release}
    if not others:
        return
    if account is None or budget is None:
        raise InputError(
            f"moments: {len(others)} earlier release(s) of these rows are on record, and the agreement has no budget "
            "for another one: two exact releases that differ by a row tell that row; agree on a budget"
        )
    if any(rho == EXACT for rho in others.values()):
        raise InputError("moments: an earlier release of these rows had no noise, so no budget can hold any more")
    spent = sum(others.values()) + account.rho
    if spent > zcdp_rho(budget, delta) * (1 + 1e-9):
        raise InputError(
            f"moments: with {len(others)} earlier release(s) of these rows this one would spend "
            f"epsilon {zcdp_epsilon(spent, delta):.4g}, and {budget:g} was agreed; agree on more first"
        )
