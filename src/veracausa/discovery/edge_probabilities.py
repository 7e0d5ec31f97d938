"""Gradient descent on a loss and on the acyclicity of edge probabilities together, as DCDI and DCD-FG do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from veracausa.discovery.graphs import is_acyclic

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
