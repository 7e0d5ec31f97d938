"""Learning from randomised labels whose noise is known: the forward-corrected loss."""

from __future__ import annotations

import torch
from torch import Tensor


def forward_corrected_loss(logits: Tensor, told: Tensor, transition: Tensor | None) -> Tensor:
    """Mean cross-entropy of the told labels under the model's classes and the known noise (Patrini et al., 2017).

    `transition[i, j]` is the chance that class i was told as j. It is (classes, classes), or (n, classes, classes)
    where it differs by row. The loss of the told labels is smallest at the true classes' probabilities. None: the
    labels are true.
    """
    if transition is None:
        return torch.nn.functional.cross_entropy(logits, told)
    # In float32 at least: the sum of small probabilities is what the loss lives on.
    true = logits.float().softmax(1)
    column = transition.to(true).mT[told] if transition.ndim == 2 else _told_column(transition.to(true), told)
    return -(true * column).sum(1).clamp_min(torch.finfo(true.dtype).tiny).log().mean()


def _told_column(transition: Tensor, told: Tensor) -> Tensor:
    """(n, classes): for each row, the chance of what was told under every class."""
    return transition.gather(2, told.view(-1, 1, 1).expand(-1, transition.shape[1], 1)).squeeze(2)
