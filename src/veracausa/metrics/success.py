"""Attack success rates: four definitions of "it worked", each a share of the samples.

Published rates are mostly the first, and that one flatters: a grey picture passes MSE ≤ 0.1 on four of five
photographs. Its rate stands beside the attack's for that reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.identification import reidentify
from veracausa.metrics.images import mse, ssim
from veracausa.metrics.leakage import grey
from veracausa.metrics.lpips import LpipsNetwork

MSE_THRESHOLDS = (0.1, 0.025)
"""What the literature calls a success of UnSplit, and of URVFL."""
SSIM_THRESHOLD = 0.5
_ROWS_AT_ONCE = 512
Classify = Callable[[Tensor], Tensor]
"""Rows to logits (n, classes) or to classes (n,), by a classifier that had no part in the attack."""


@dataclass(frozen=True)
class Rate:
    """The share of samples an attack succeeded on, and the share a guess without the payload gets."""

    attack: float
    blind: float


def mse_success(guess: Tensor, truth: Tensor, threshold: float) -> Tensor:
    """(n,) whether MSE ≤ threshold."""
    return mse(guess, truth) <= threshold


def ssim_success(guess: Tensor, truth: Tensor, threshold: float = SSIM_THRESHOLD) -> Tensor:
    """(n,) whether SSIM ≥ threshold."""
    return ssim(guess, truth) >= threshold


def class_success(guess: Tensor, labels: Tensor, classify: Classify) -> Tensor:
    """(n,) whether the classifier gives the reconstruction the true class."""
    with torch.no_grad():
        found = torch.cat([_classes(classify(part)).cpu() for part in torch.split(guess, _ROWS_AT_ONCE)])
    return found == labels.cpu()


def success_rates(
    guess: Tensor,
    truth: Tensor,
    *,
    labels: Tensor | None = None,
    classify: Classify | None = None,
    candidates: Tensor | None = None,
    own: Tensor | None = None,
    network: LpipsNetwork | None = None,
) -> dict[str, Rate]:
    """All definitions that can be computed here: `mse_0.1`, `mse_0.025`, `class`, `identification`, `ssim_0.5`.

    The blind figure is a grey picture's; for `class` it is the majority class, for `identification` it is chance.
    `class` needs labels and a classifier, `identification` candidates (see `reidentify`), `ssim` pictures.
    """
    blank = grey(truth)
    rates = {}
    for threshold in MSE_THRESHOLDS:
        rates[f"mse_{threshold}"] = Rate(
            _share(mse_success(guess, truth, threshold)), _share(mse_success(blank, truth, threshold))
        )
    if classify is not None and labels is not None:
        majority = int(torch.unique(labels, return_counts=True)[1].max()) / len(labels)
        rates["class"] = Rate(_share(class_success(guess, labels, classify)), majority)
    if candidates is not None:
        identified = reidentify(guess, candidates, own, network)
        rates["identification"] = Rate(identified.rate(1), identified.chance(1))
    if truth.ndim == 4:
        rates[f"ssim_{SSIM_THRESHOLD}"] = Rate(_share(ssim_success(guess, truth)), _share(ssim_success(blank, truth)))
    return rates


def _share(succeeded: Tensor) -> float:
    return float(succeeded.float().mean())


def _classes(output: Tensor) -> Tensor:
    return output.argmax(1) if output.ndim == 2 else output
