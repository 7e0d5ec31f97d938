"""Gradient descent on a loss and on the acyclicity of edge probabilities together, as DCDI and DCD-FG do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from veracausa.discovery.graphs import is_acyclic

WINDOW = 5
"""Epochs between two looks at the constraint."""


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
    scale = None
    multiplier, penalty, before = 0.0, 0.0, float("inf")
    for epoch in range(epochs):
        total = 0.0
        for rows in batches():
            p = probabilities()
            h = torch.matrix_exp(p).trace() - len(p)
            # Relative to where it began: a full graph of many columns has an astronomic exponential.
            scale = float(h.detach()) or 1.0 if scale is None else scale
            h = h / scale
            fit = loss(rows)
            objective = fit + multiplier * h + 0.5 * penalty * h * h
            optimiser.zero_grad()
            objective.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += float(fit.detach())
            if time_is_up():
                return
        value = float(h.detach())
        log(epoch=epoch, loss=total, h=value, penalty=penalty)
        if epoch < epochs // 10 or epoch % WINDOW or is_acyclic((probabilities().detach() > 0.5).numpy()):
            continue
        penalty = 1.0 if penalty == 0.0 else penalty
        multiplier += penalty * value
        if value > 0.9 * before:
            penalty *= 2
        before = value
