"""Regularised maximum likelihood: the rows whose payloads under the victim's own map come closest to the observed ones.

White box: the attacker has the victim's trained model and defense, and no row of its own. Minimises over x
MSE(T(x), P) + λ_tv · TV(x) + λ_2 · mean x², with the weights that GLASS's benchmark of inference attacks uses. It needs
no training, so it is an upper bound where auxiliary rows are few; where they are plenty a decoder usually reads more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack, Grant
from veracausa.attacks.matching import (
    FitStatistics,
    ProgressReporter,
    adam,
    batched,
    starting_rows,
    total_variation,
    validate_payload,
)
from veracausa.models.runner import capture, reset_optimizer_state
from veracausa.registry import Options

_LOOK_EVERY = 50


class LikelihoodOptions(Options):
    iterations: int = Field(2000, ge=1, le=20_000)
    """At most; a batch ends earlier once its objective no longer falls."""
    lr: float = Field(1e-2, gt=0)
    tv: float = Field(0.1, ge=0)
    """The weight of total variation; tables have none."""
    l2: float = Field(0.01, ge=0)
    """The weight of the mean square of the guessed rows."""
    project: bool = False
    """Bring pictures back into [0, 1] after every step, not only at the end."""
    batch_size: int = Field(250, ge=1)
    """Targets at once, at most; fewer where they would not fit into memory."""
    patience: int = Field(300, ge=1)
    """Iterations without progress after which a batch ends."""
    progress: float = Field(1e-3, ge=0, lt=1)
    """The relative fall of the objective that counts as progress."""


@attacks.register("likelihood", LikelihoodOptions)
class Likelihood(FeatureAttack):
    """Rows whose payloads under the victim's own map match the observed ones, by gradient descent on the rows."""

    needs = Grant.WEIGHTS
    options: LikelihoodOptions

    @property
    def most_victims(self) -> int:
        """One batch: it searches for every row."""
        return self.options.batch_size

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.view, self.transmit = view, view.transmit
        self.tally = FitStatistics()

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The rows behind these payloads; pictures in [0, 1]."""
        view = self.view
        batches = batched(validate_payload(payload, view, self.options.name), view, self.options.batch_size)
        found = [starting_rows(0, view)]
        with torch.enable_grad():
            for number, batch in enumerate(batches):
                pulse = ProgressReporter(view.progress, number, len(batches))
                start = starting_rows(len(batch), view)
                rows = likeliest(self.transmit, batch, start, self.options, view.pixels, pulse)
                self.tally.add(self.options.name, self.transmit, rows, batch, pulse.count)
                found.append(rows.clamp(0, 1) if view.pixels else rows)
        view.progress(1.0)
        return torch.cat(found)

    def notes(self) -> Mapping[str, float]:
        return self.tally.notes()


def likeliest(
    run: Callable[[Tensor], Tensor],
    target: Tensor,
    start: Tensor,
    options: LikelihoodOptions,
    pictures: bool,
    pulse: Callable[[float], None] = lambda share: None,
) -> Tensor:
    """Rows whose payloads under `run` match `target`, as far as the priors let them."""
    rows = start.clone().requires_grad_()
    value = torch.zeros((), device=target.device)

    def step() -> None:
        loss = F.mse_loss(run(rows).float(), target) + options.l2 * rows.square().mean()
        if pictures and options.tv:
            loss = loss + options.tv * total_variation(rows)
        # Of the sum over targets, not the mean: for Adam's epsilon a target must not shrink with its batch.
        (rows.grad,) = torch.autograd.grad(len(target) * loss, [rows])
        optimizer.step()
        with torch.no_grad():
            value.copy_(loss)
            if pictures and options.project:
                rows.clamp_(0, 1)

    optimizer = adam([rows], options.lr)
    advance = capture(step, target.device, [rows])
    reset_optimizer_state(optimizer)
    best, best_at = math.inf, 0
    for iteration in range(options.iterations):
        advance()
        pulse(iteration / options.iterations)
        # Reading the value makes a GPU wait, so not at every step.
        if iteration % _LOOK_EVERY == _LOOK_EVERY - 1:
            now = float(value)
            if now < best * (1 - options.progress):
                best, best_at = now, iteration
            elif iteration - best_at >= options.patience:
                break
    return rows.detach()
