"""Shared by several methods: a network for every column, and the probability of every edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from veracausa.discovery.graphs import is_acyclic

Activation = Callable[[Tensor], Tensor]


class Conditionals(nn.Module):
    """E[x_j | the other columns] for every j, with a learned variance each.

    `first` is (d, d, h): `first[i, j]` maps column i into the hidden units of column j's own network. What stands on
    the diagonal never counts.
    """

    off_diagonal: Tensor

    def __init__(self, d: int, hidden: Sequence[int], activation: Activation, rng: torch.Generator) -> None:
        super().__init__()

        def uniform(fan_in: int, *shape: int) -> nn.Parameter:
            return nn.Parameter((2 * torch.rand(shape, generator=rng) - 1) / math.sqrt(fan_in))

        widths = [*hidden, 1]
        self.activation = activation
        self.first = uniform(d, d, d, widths[0])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(d, width)) for width in widths])
        self.deeper = nn.ParameterList([uniform(before, d, before, after) for before, after in pairwise(widths)])
        self.log_variance = nn.Parameter(torch.zeros(d))
        self.register_buffer("off_diagonal", 1 - torch.eye(d))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(n, d) means; the mask weighs the edges, (d, d) for all rows or (n, d, d) for each its own."""
        if mask is not None and mask.ndim == 3:
            z = torch.einsum("nij,ijh->njh", x[:, :, None] * mask * self.off_diagonal, self.first)
        else:
            weights = self.first * (self.off_diagonal if mask is None else self.off_diagonal * mask)[:, :, None]
            z = torch.einsum("ni,ijh->njh", x, weights)
        z = z + self.biases[0]
        for weight, bias in zip(self.deeper, list(self.biases)[1:], strict=True):
            z = torch.einsum("njh,jhk->njk", self.activation(z), weight) + bias
        means: Tensor = z.squeeze(2)
        return means

    def strengths(self) -> Tensor:
        """(d, d) norms of the first layer; the tiny addend keeps the gradient at zero finite."""
        return ((self.first**2).sum(2) + 1e-16).sqrt() * self.off_diagonal

    def negative_log_likelihood(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Of Gaussian residuals, without the constant: summed over columns, mean over rows."""
        return gaussian_loss(x, self(x, mask), self.log_variance)


def gaussian_loss(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """½ [(x − mean)² exp(−s) + s], summed over columns, mean over rows."""
    return (0.5 * ((x - mean) ** 2 * torch.exp(-log_variance) + log_variance)).mean(0).sum()


def batches(rows: int, size: int, rng: torch.Generator) -> list[Tensor]:
    """The positions of one epoch in a fresh order; the last, smaller batch is left out."""
    order = torch.randperm(rows, generator=rng)
    return list(torch.split(order, size))[: max(1, rows // size)]


def gumbel_sigmoid(logits: Tensor, rows: int, rng: torch.Generator) -> Tensor:
    """Hard 0/1 draws, one set a row, whose gradient is the soft draw's (straight through)."""
    u = torch.rand((rows, *logits.shape), generator=rng).clamp(1e-6, 1 - 1e-6)
    soft = torch.sigmoid(logits + torch.log(u) - torch.log1p(-u))
    return (soft > 0.5).float() + soft - soft.detach()


def gumbel_softmax(logits: Tensor, rows: int, rng: torch.Generator) -> Tensor:
    """One of the last axis a row, as hard 0/1 draws whose gradient is the soft draw's (straight through)."""
    u = torch.rand((rows, *logits.shape), generator=rng).clamp(1e-6, 1 - 1e-6)
    soft = torch.softmax(logits - torch.log(-torch.log(u)), -1)
    hard = torch.nn.functional.one_hot(soft.argmax(-1), logits.shape[-1]).to(soft.dtype)
    return hard + soft - soft.detach()


LOOKS = 120
"""How often, over all epochs, the constraint is looked at and its weight may grow."""
START, GROWTH = 0.001, 1.07
"""Of the penalty, at each look: slow enough for the fit to say which edge of a cycle it can spare."""

LIMIT = 5.0
"""Of the log-odds either way: an edge that is never drawn any more could not come back."""


def descend(
    loss: Callable[[Tensor], Tensor],
    probabilities: Callable[[], Tensor],
    parameters: Sequence[Tensor],
    logits: Sequence[Tensor],
    *,
    epochs: int,
    batches: Callable[[], Sequence[Tensor]],
    learning_rate: float,
    structure_rate: float,
    time_is_up: Callable[[], bool],
    log: Callable[..., None],
) -> None:
    """Minimise the loss of batches of rows under tr(exp(P)) = d, P the (d, d) probabilities of edges.

    The first tenth of the epochs is without the constraint. Then its multiplier and penalty grow every few epochs,
    faster where it does not shrink, until the graph of likely edges is acyclic; the other epochs go to fitting.
    """
    optimiser = torch.optim.RMSprop(
        [{"params": parameters, "lr": learning_rate}, {"params": logits, "lr": structure_rate}]
    )
    multiplier, penalty, before = 0.0, 0.0, float("inf")
    window = max(1, epochs // LOOKS)
    for epoch in range(epochs):
        total = 0.0
        for rows in batches():
            p = probabilities()
            # A full graph's exponential is astronomic: hence its logarithm, zero in the same place, and doubles.
            h = len(p) * torch.log(torch.matrix_exp(p.double()).trace() / len(p))
            fit = loss(rows)
            objective = fit + multiplier * h + 0.5 * penalty * h * h
            optimiser.zero_grad()
            objective.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            with torch.no_grad():
                for odds in logits:
                    odds.clamp_(-LIMIT, LIMIT)
            total += float(fit.detach())
            if time_is_up():
                return
        value = float(h.detach())
        log(epoch=epoch, loss=total, h=value, penalty=penalty)
        if epoch < epochs // 10 or epoch % window or is_acyclic((probabilities().detach() > 0.5).numpy()):
            continue
        penalty = penalty or START
        multiplier += penalty * value
        if value > 0.9 * before:
            penalty *= GROWTH
        before = value
