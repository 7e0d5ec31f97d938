"""Total variation: how rough a picture is."""

from __future__ import annotations

import torch
from torch import Tensor


def total_variation(pictures: Tensor) -> Tensor:
    """UnSplit's TV of (n, c, h, w): [Σ vertical differences² / n_v + Σ horizontal differences² / n_h] / n.

    n_v and n_h count the values of one picture's difference maps. A side of one pixel has no differences.
    """
    down = pictures[..., 1:, :] - pictures[..., :-1, :]
    across = pictures[..., 1:] - pictures[..., :-1]
    means = [differences.square().mean() for differences in (down, across) if differences.numel()]
    return torch.stack(means).sum() if means else pictures.new_zeros(())
