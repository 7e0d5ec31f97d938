"""A model of a party's own columns: what it could say of the labels without any federation."""

from __future__ import annotations

import torch
from torch import Tensor


class SoftmaxModel:
    """A softmax regression on standardised features; called, it gives (n, classes) chances."""

    def __init__(self, mean: Tensor, scale: Tensor, weights: Tensor) -> None:
        self.mean, self.scale, self.weights = mean, scale, weights

    @classmethod
    def fit(
        cls, features: Tensor, told: Tensor, transition: Tensor, iterations: int = 60, decay: float = 1e-3
    ) -> SoftmaxModel:
        """By the forward-corrected loss: the chance of the label that was told, through the randomisation."""
        x = features.flatten(1).double()
        mean, spread = x.mean(0), x.std(0, correction=0)
        scale = torch.where(spread > 1e-9, spread, 1.0)
        x = torch.cat([(x - mean) / scale, x.new_ones(len(x), 1)], 1)
        weights = torch.zeros(x.shape[1], len(transition), dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=iterations, line_search_fn="strong_wolfe")
        at = told.long()

        def closure() -> Tensor:
            optimizer.zero_grad()
            chances = (x @ weights).softmax(1) @ transition
            loss = -chances.gather(1, at.unsqueeze(1)).clamp_min(1e-12).log().mean()
            loss = loss + decay * weights.square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return cls(mean, scale, weights.detach())

    def __call__(self, features: Tensor) -> Tensor:
        x = (features.flatten(1).double() - self.mean) / self.scale
        return torch.cat([x, x.new_ones(len(x), 1)], 1).matmul(self.weights).softmax(1)


def own_model_chances(
    features: Tensor,
    told: Tensor,
    classes: int,
    rng: torch.Generator,
    transition: Tensor | None = None,
    folds: int = 2,
    iterations: int = 60,
) -> Tensor:
    """(n, classes): what a model of the party's own columns says of each row, fitted on the other rows' labels."""
    through = torch.eye(classes, dtype=torch.float64) if transition is None else transition
    order = torch.randperm(len(features), generator=rng)
    chances = torch.zeros(len(features), classes, dtype=torch.float64)
    for part in order.chunk(folds):
        rest = torch.ones(len(features), dtype=torch.bool)
        rest[part] = False
        chances[part] = SoftmaxModel.fit(features[rest], told[rest], through, iterations)(features[part])
    return chances
