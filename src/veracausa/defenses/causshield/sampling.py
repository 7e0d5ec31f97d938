"""Which dimensions of a row are "upper": Gumbel top-k masks with a gradient (Eq. 16)."""

from __future__ import annotations

import torch
from torch import Tensor


def gumbel(shape: torch.Size, rng: torch.Generator) -> Tensor:
    """Gumbel(0, 1) noise on the generator's device."""
    return -torch.empty(shape, device=rng.device).exponential_(generator=rng).clamp_(min=1e-20).log_()


def top_k(logits: Tensor, k: int, temperature: float, noise: Tensor | None) -> Tensor:
    """(rows, J) masks with exactly k ones a row; backward they are sigmoids around the k-th largest (straight-through).

    Without `noise` the mask is that of the k highest logits.
    """
    u = logits.float() / temperature
    if noise is not None:
        u = u + noise
    ranked, index = u.topk(k + 1, dim=1)
    threshold = (ranked[:, -2:-1] + ranked[:, -1:]).detach() / 2
    hard = torch.zeros_like(u).scatter_(1, index[:, :k], 1.0)
    soft = torch.sigmoid(u - threshold)
    return hard + (soft - soft.detach())  # exactly 0 or 1 forward


def iterative_softmax(logits: Tensor, k: int, temperature: float, rng: torch.Generator) -> Tensor:
    """CIRL's mask: k Gumbel-softmax draws, each fed the one before, and their maximum. Slow for large J."""
    drawn = logits.float()
    mask = torch.zeros_like(drawn)
    for _ in range(k):
        drawn = torch.softmax((drawn + gumbel(drawn.shape, rng)) / temperature, dim=1)
        mask = torch.maximum(mask, drawn)
    return mask


def upper_count(tau: float, dimensions: int) -> int:
    """⌊τJ⌋, at least one and not all."""
    return min(max(1, int(tau * dimensions)), dimensions - 1)
