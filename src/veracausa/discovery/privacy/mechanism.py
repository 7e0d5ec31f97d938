"""How much one row can add to all gradients of a step, and the noise that hides it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veracausa.crypto.fixed_point import GRADIENT_BITS, GRADIENT_LIMIT, VALUE_BITS, WEIGHT_BITS
from veracausa.discovery.privacy.accountant import Account, noise_for
from veracausa.discovery.privacy.options import Privacy
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.discovery.federated.plan import Plan

MOST_NOISE = 2.0**WEIGHT_BITS
"""The deviation of an increment's noise from which a fit can not last: a weight of 1 at every step."""


@dataclass(frozen=True)
class Mechanism:
    """Bounds and noise of one release, in the units of a gradient that is summed, not averaged, over its batch.

    A row's gradient of the network of target j is x ⊗ g_j for the encoder, and the rest for its decoder. The target
    knows g_j and bounds ‖x‖ by what every party keeps to; so it can keep the whole below `clip` without seeing x. All
    targets together get at most √d times that from a row.
    """

    clip: float
    row: float
    """The bound of ‖x‖, over all attributes."""
    attributes: int
    width: int
    noise: float
    """In units of `contribution`."""
    unit: float = 0.0
    """What a gradient's integer 1 stands for; 0: no integers."""

    @property
    def most_units(self) -> float:
        """The most that ‖g_j‖ can be, in integers."""
        return self.clip / math.hypot(self.row, 1.0) / self.unit

    @property
    def rounded_units(self) -> float:
        """The most that ‖g_j‖ is let be after its entries were rounded at random."""
        return math.sqrt(self.most_units**2 + self._rounding)

    @property
    def _rounding(self) -> float:
        # At least 39 % of all roundings keep to this (Kairouz, Liu and Steinke, 2021); others are drawn again.
        return self.width / 4 + self.most_units + math.sqrt(self.width) / 2

    @property
    def contribution(self) -> float:
        """The most that one row adds to all gradients together, as a norm."""
        rounding = self._rounding * self.unit**2 if self.unit else 0.0
        return math.sqrt(self.attributes * (self.clip**2 + self.row**2 * rounding))

    @property
    def deviation(self) -> float:
        """σ of the noise on every entry of the summed gradient."""
        return self.noise * self.contribution

    @property
    def increment_deviation(self) -> float:
        """The same for an increment Xᵀ·G of integers."""
        return self.deviation * 2.0**VALUE_BITS / self.unit


def make_mechanism(privacy: Privacy, attributes: int, width: int, releases: int, unit: float = 0.0) -> Mechanism:
    """What a run of so many epochs needs."""
    noise = noise_for(privacy.epsilon, privacy.delta, releases)
    made = Mechanism(privacy.clip, privacy.values * math.sqrt(attributes), attributes, width, noise, unit)
    if unit and (made.rounded_units > GRADIENT_LIMIT or made.increment_deviation > MOST_NOISE):
        raise InputError(
            f"privacy: epsilon {privacy.epsilon:g} with clip {privacy.clip:g} over {releases} epochs asks for steps or "
            "noise that shares can not hold; take a smaller clip, larger batches or a lower rate"
        )
    return made


def mechanism_of(plan: Plan, privacy: Privacy) -> Mechanism:
    """That of a federation: gradients are averaged over a batch, times the rate, and integers."""
    unit = len(plan.batches[0]) / (plan.settings.rate * 2.0**GRADIENT_BITS)
    return make_mechanism(privacy, plan.d, plan.settings.width, plan.epochs, unit)


NOT_COVERED = (
    "the features that a target opens (each party sees them of every row)",
    "means and deviations that columns were standardised by (they count as public)",
    "other runs on the same rows, whose budgets add up",
)


SEEDED = "a simulation: the noise follows from a seed, and who has it can take it off again"


def statement(privacy: Privacy, releases: int, planned: int, seeded: bool = False) -> dict[str, object]:
    """What can be said of a run with so many releases of each row, of which so many were planned."""
    account = Account(noise_for(privacy.epsilon, privacy.delta, planned), releases, privacy.delta)
    return {
        "mechanism": "gaussian noise on clipped gradients",
        "guarantee": SEEDED if seeded else "differential privacy",
        "epsilon": account.epsilon,
        "delta": account.delta,
        "mu": account.mu,
        "rho": account.rho,
        "noise": account.noise,
        "releases": releases,
        "neighbours": "one row of all parties replaced",
        "against": "the validator and readers of the graph, none of whom works with a party",
        "not_covered": list(NOT_COVERED),
    }


def said(stated: Mapping[str, object]) -> str:
    """The statement as a sentence; noise without an ε only says so."""
    if "epsilon" not in stated:
        return f"{stated['mechanism']}: {stated['guarantee']}"
    return (
        f"{stated['guarantee']}: epsilon {stated['epsilon']:.4g} at delta {stated['delta']:.3g} for one row, "
        f"{stated['releases']} releases, against {stated['against']}; not covered: {'; '.join(NOT_COVERED)}"
    )
