"""Values as distributions over bins: the 261 colours of the ab plane, or any other palette of centres.

A palette is `centres`, (Q, d): d = 2 for ab, d = 1 for intensity. Logits are (n, Q, H, W), values (n, d, H, W). A
target names only the few bins that have mass: as a map over all of them it would be as large as the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa.data.colour import rgb_to_lab

GRID = 10.0
"""The step of the ab grid."""


@dataclass(frozen=True)
class Target:
    """For each pixel its nearest bins, the nearest first, and how much mass each has; the masses sum to 1."""

    indices: Tensor
    """(n, k, H, W) int64."""
    masses: Tensor
    """(n, k, H, W)."""


@cache
def ab_bins() -> Tensor:
    """(261, 2) the centres of the grid cells of the ab plane that sRGB colours fall into."""
    # The usual list of 313 bins is a file that we do not have, and holds colours that no screen shows.
    levels = torch.arange(0, 256, 4, dtype=torch.float64)
    levels = torch.cat((levels, levels.new_tensor([255]))) / 255
    cube = torch.cartesian_prod(levels, levels, levels).T[:, :, None]
    cells = (rgb_to_lab(cube)[1:, :, 0].T / GRID).round().to(torch.int64)
    distinct: Tensor = torch.unique(cells, dim=0)
    return distinct.to(torch.float32) * GRID


def intensity_bins(count: int = 16) -> Tensor:
    """(count, 1) the middles of equal steps of [0, 1]."""
    return ((torch.arange(count, dtype=torch.float32) + 0.5) / count)[:, None]


def hard_encode(values: Tensor, centres: Tensor) -> Target:
    """All mass on the nearest bin."""
    indices = _distances(values, centres).argmin(1, keepdim=True)
    return Target(indices, torch.ones_like(indices, dtype=values.dtype))


def soft_encode(values: Tensor, centres: Tensor, neighbours: int = 5, sigma: float = 5.0) -> Target:
    """Mass on the nearest bins, falling with the distance as a Gaussian of width `sigma`."""
    nearest = _distances(values, centres).topk(min(neighbours, len(centres)), dim=1, largest=False)
    return Target(nearest.indices, torch.softmax(-nearest.values / (2 * sigma**2), dim=1))


def _distances(values: Tensor, centres: Tensor) -> Tensor:
    """(n, Q, H, W) squared distances."""
    total = torch.zeros((), dtype=values.dtype, device=values.device)
    for channel, centre in zip(values.unbind(1), centres.to(values).unbind(1), strict=True):
        total = total + (channel[:, None] - centre[:, None, None]).square()
    return total


def bin_counts(indices: Tensor, count: int) -> Tensor:
    """(count,) how often each bin is named."""
    return torch.bincount(indices.flatten(), minlength=count)


def rebalancing(counts: Tensor, uniform: float = 0.5, power: float = 1.0) -> Tensor:
    """(Q,) a weight a bin that makes rare colours count: without it a colouriser learns to answer grey.

    `counts` say how often each bin occurs. The prior is mixed with a uniform one over the bins that occur, and the
    weights are scaled so that the mean weight of a pixel is 1.
    """
    seen = counts > 0
    prior = counts.to(torch.float64) / counts.sum()
    mixed = (1 - uniform) * prior + uniform * seen / seen.sum()
    weights = torch.where(seen, mixed.clamp(min=1e-12) ** -power, 0.0)
    return (weights / (prior * weights).sum()).to(torch.float32)


def cross_entropy(log_p: Tensor, target: Target, weights: Tensor | None = None) -> Tensor:
    """The mean over pixels of −w Σ t log p (Eq. 8); w is the weight of the target's nearest bin."""
    loss = -(target.masses * log_p.gather(1, target.indices)).sum(1)
    return (loss if weights is None else loss * weights[target.indices[:, 0]]).mean()


def window_variance(values: Tensor, window: int = 4) -> Tensor:
    """(n, d, H // s, W // s) the population variance in each s×s window; a remainder is left out (Eq. 9)."""
    window = min(window, *values.shape[-2:])
    rows, columns = values.shape[-2] // window, values.shape[-1] // window
    whole = values[..., : rows * window, : columns * window]
    return whole.reshape(*values.shape[:-2], rows, window, columns, window).var((-3, -1), correction=0)


def expected_value(p: Tensor, centres: Tensor) -> Tensor:
    """The mean of the centres under the distribution; differentiable."""
    return torch.einsum("nqhw,qd->ndhw", p, centres.to(p))


def annealed_mean(logits: Tensor, centres: Tensor, temperature: float = 0.38) -> Tensor:
    """The mean of the sharpened distribution: between the dull mean and the patchy mode; differentiable."""
    return expected_value(torch.softmax(logits / temperature, dim=1), centres)


def argmax(logits: Tensor, centres: Tensor) -> Tensor:
    """The likeliest bin of each pixel."""
    return _looked_up(logits.argmax(1), centres)


def sample_pixel(logits: Tensor, centres: Tensor, rng: torch.Generator) -> Tensor:
    """A draw for each pixel; `rng` on the device of the logits."""
    return _looked_up(_drawn(torch.softmax(logits, dim=1), rng), centres)


def sample_window(logits: Tensor, centres: Tensor, window: int, rng: torch.Generator) -> Tensor:
    """One draw for each window, from the mean of its pixels' distributions; windows at the border may be smaller."""
    height, width = logits.shape[-2:]
    p = F.avg_pool2d(torch.softmax(logits, dim=1), window, ceil_mode=True, count_include_pad=False)
    drawn = _drawn(p, rng).repeat_interleave(window, -2).repeat_interleave(window, -1)
    return _looked_up(drawn[..., :height, :width], centres)


def _drawn(p: Tensor, rng: torch.Generator) -> Tensor:
    n, bins, height, width = p.shape
    flat = p.permute(0, 2, 3, 1).reshape(-1, bins)
    return torch.multinomial(flat, 1, generator=rng).view(n, height, width)


def _looked_up(indices: Tensor, centres: Tensor) -> Tensor:
    return centres.to(indices.device)[indices].permute(0, 3, 1, 2)
