"""Noise of a covariance of its own for every row: drawn, and how much of it lies along a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from veracausa.defenses.base import Defense
from veracausa.defenses.draws import Draws
from veracausa.defenses.sensitivity import jacobian_of


class Spread(Protocol):
    """Noise ε with mean 0 for n rows of m values."""

    def draw(self, draws: Draws) -> Tensor:
        """(n, m) ε."""

    def power(self, u: Tensor) -> Tensor:
        """(c, n) E[(uᵀε)²] for c vectors u a row, (c, n, m)."""


class Diagonal:
    """Independent in every value, with these standard deviations (n, m)."""

    def __init__(self, deviations: Tensor) -> None:
        self.deviations = deviations

    def draw(self, draws: Draws) -> Tensor:
        return self.deviations * draws.normal(*self.deviations.shape)

    def power(self, u: Tensor) -> Tensor:
        return (u * self.deviations.to(u.dtype)).square().sum(-1)


class Factors:
    """Covariance F Fᵀ, F (n, m, k)."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def draw(self, draws: Draws) -> Tensor:
        w = draws.normal(len(self.factors), self.factors.shape[2])
        return torch.einsum("nmk,nk->nm", self.factors, w)

    def power(self, u: Tensor) -> Tensor:
        return torch.einsum("cnm,nmk->cnk", u, self.factors.to(u.dtype)).square().sum(-1)


class Products:
    """Covariance J Jᵀ, of a defense's bottom at the rows `x`, by one product with J or Jᵀ."""

    def __init__(self, defense: Defense, x: Tensor, r: Tensor) -> None:
        self.defense, self.x, self.r = defense, x, r

    def draw(self, draws: Draws) -> Tensor:
        w = draws.normal(*self.x.shape).flatten(1).to(self.x.dtype)
        with jacobian_of(self.defense, self.x, self.r) as jacobian:
            return jacobian.jv(w.unsqueeze(0))[0].float()

    def power(self, u: Tensor) -> Tensor:
        with jacobian_of(self.defense, self.x, self.r) as jacobian:
            return jacobian.jtu(u.to(self.r.dtype)).to(u.dtype).square().sum(-1)


class Signed(Products):
    """The diagonal of J Jᵀ by one product: each value of J w is normal with its own variance, and a sign of its own
    takes the correlations away. Not independent, since all magnitudes come from one w; `deviations` are for `power`."""

    def __init__(self, defense: Defense, x: Tensor, r: Tensor, deviations: Callable[[], Tensor]) -> None:
        super().__init__(defense, x, r)
        self.deviations = deviations

    def draw(self, draws: Draws) -> Tensor:
        along = super().draw(draws)
        return along * draws.normal(*along.shape).sign()

    def power(self, u: Tensor) -> Tensor:
        return Diagonal(self.deviations()).power(u)
