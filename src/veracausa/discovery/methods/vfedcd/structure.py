"""What looks at the graph as a whole: it keeps it sparse and drives it to be acyclic. The validator's part."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.acyclicity import ACYCLICITY
from veracausa.discovery.graphs import greedy_cut, is_acyclic
from veracausa.discovery.methods.vfedcd.settings import Settings

SMALL = 1e-9
WEAKEST = 0.05
"""Added to strengths where they divide, so that no edge is pulled without bound."""


class Structure:
    """From the strengths B (R, d, d) to the factor by which every block W[i, j] is scaled.

    A gradient step on a penalty that depends on the strengths alone scales each block: that is why holders of shares
    can do it without knowing the weights.
    """

    def __init__(self, settings: Settings, allowed: Mask, required: Mask | None = None) -> None:
        self.settings = settings
        self.allowed = allowed
        """(R, d, d): edges that may be there; never the diagonal."""
        self.required = np.zeros(allowed.shape[1:], dtype=bool) if required is None else required
        self.penalty = ACYCLICITY[settings.acyclicity]()
        self.weight = np.zeros(len(allowed))
        self.searching = True
        """Whether the acyclicity term is on; in the refit it is not needed."""
        self.value = np.zeros(len(allowed))

    def factors(self, strengths: Array, steps: int) -> Array:
        """κ (R, d, d) for this many steps of the optimiser; 0 ends an edge that the penalty would turn around."""
        settings = self.settings
        moved = settings.rate * steps
        shrink = np.zeros_like(strengths)
        if self.searching:
            self.value, gradient = self.penalty(strengths)
            shrink += self.weight[:, None, None] * gradient
        if settings.sparsity == "group_lasso":
            shrink += self.pull(strengths)
        shrink = np.where(self.required, 0.0, shrink)
        kept = 1 - moved * shrink / np.maximum(strengths, SMALL)
        if settings.sparsity == "l2":
            kept -= 2 * moved * settings.sparsity_weight
        return np.where(self.allowed, np.maximum(kept, 0.0), 0.0)

    def pull(self, strengths: Array) -> Array:
        """The slope of the group lasso by each strength.

        In the refit it is that of a logarithm, which pulls weak edges more and strong ones less: of causes that say
        nearly the same, one stays.
        """
        settings = self.settings
        share = np.ones_like(strengths)
        if settings.pivot and not self.searching:
            share = (settings.pivot + WEAKEST) / (strengths + WEAKEST)
        return settings.sparsity_weight * share

    def end_epoch(self, strengths: Array, epoch: int) -> None:
        """Let the acyclicity term's weight grow, but not where the graph of the strong edges is acyclic already."""
        if not self.searching:
            return
        settings = self.settings
        for replicate, strength in enumerate(strengths):
            if epoch < 2 or not is_acyclic(strength > settings.halt):
                self.weight[replicate] += settings.growth
        if settings.ceiling is not None:
            self.weight = np.minimum(self.weight, settings.ceiling)

    def settle(self, strengths: Array) -> Mask:
        """End the search: from now on an edge may only follow the order in which the strongest edges lie."""
        self.searching = False
        orders = [
            greedy_cut(strength + SMALL, 0.0, self.required, ~allowed)
            for strength, allowed in zip(strengths, self.allowed, strict=True)
        ]
        self.allowed = np.stack(orders)
        return self.allowed
