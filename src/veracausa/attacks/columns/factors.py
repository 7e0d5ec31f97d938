"""What the factors that every holder is told say about the strengths of its edges."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.structure import Structure

STRONGEST = 1000.0
HALVINGS = 60


def strengths_of(factors: Array, settings: Settings, every: int) -> Array | None:
    """B after the step, for which the structure step of the refit gives just this κ; 0 for an edge that has ended.

    In the refit only sparsity acts, and κ grows with B: halving finds it. None where factors do not tell.
    """
    if settings.sparsity != "group_lasso" or not settings.refit_epochs or not settings.sparsity_weight:
        return None
    structure = Structure(settings, np.ones((1, *factors.shape), dtype=bool))
    structure.searching = False
    low, high = np.zeros_like(factors), np.full_like(factors, STRONGEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        less = structure.factors(middle[None], every)[0] < factors
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(np.where((factors > 0) & (factors < 1), low * factors, 0.0))
