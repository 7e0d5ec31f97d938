"""Attack success rates: four definitions of "it worked", each a share of the samples, and re-identification.

Published rates are mostly the first, and that one flatters: a grey picture passes MSE ≤ 0.1 on four of five
photographs. Its rate stands beside the attack's for that reason. Re-identification asks whose row a reconstruction is:
colours may be off and contrast lost, if the picture still points at the person it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.images import mse, squared_distances, ssim
from veracausa.metrics.leakage import grey
from veracausa.metrics.lpips import LpipsNetwork, embedding

MSE_THRESHOLDS = (0.1, 0.025)
"""What the literature calls a success of UnSplit, and of URVFL."""
SSIM_THRESHOLD = 0.5
_CLASSIFIED_AT_ONCE = 512
TOP = (1, 5)
_ROWS_AT_ONCE = 256
_TIE = 1e-9
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
        found = torch.cat([_classes(classify(part)).cpu() for part in torch.split(guess, _CLASSIFIED_AT_ONCE)])
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

    Args:
        guess: The reconstructions, n rows.
        truth: The rows they stand for, in the same order and shape. `ssim_0.5` needs pictures.
        labels: The true classes, for `class`.
        classify: A classifier that had no part in the attack, for `class`.
        candidates: Rows to look for the own one among, for `identification`.
        own: Where the own rows are among them (see `reidentify`).
        network: An LPIPS network to rank the candidates by, in place of MSE.
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


@dataclass(frozen=True)
class Identified:
    """How often the right candidate was among the k nearest, and how often chance alone would have it there."""

    candidates: int
    found: Mapping[int, Tensor]
    """By k, (n,) 1 where the sample's own row is among the k nearest, 0 where not, a share where several tie."""

    def rate(self, k: int = 1) -> float:
        """The share of samples found among the k nearest."""
        return float(self.found[k].mean())

    def chance(self, k: int = 1) -> float:
        """What guessing finds."""
        return min(1.0, k / self.candidates)


def reidentify(
    guess: Tensor,
    candidates: Tensor,
    own: Tensor | None = None,
    network: LpipsNetwork | None = None,
    top: Sequence[int] = TOP,
) -> Identified:
    """Rank the candidate rows by MSE to each guess, or by LPIPS where a network is given.

    Args:
        guess: The reconstructions, n rows.
        candidates: The rows to look among, the true ones with them.
        own: The position of each guess's true row among the candidates; unset: guess i belongs to candidate i.
        network: An LPIPS network, for pictures.
        top: The numbers k of nearest candidates that are counted.
    """
    if network is not None:
        return identify(embedding(guess, network), embedding(candidates, network), own, top)
    return identify(guess.flatten(1), candidates.flatten(1), own, top)


def identify(guess: Tensor, candidates: Tensor, own: Tensor | None = None, top: Sequence[int] = TOP) -> Identified:
    """Rank (c, d) candidates by their distance to each of (n, d) guesses; ties are broken by a fair die."""
    if own is None:
        if len(guess) > len(candidates):
            raise ValueError(f"{len(guess)} guesses have no own row among {len(candidates)} candidates")
        own = torch.arange(len(guess))
    if len(own) != len(guess) or (len(own) and not 0 <= int(own.min()) <= int(own.max()) < len(candidates)):
        raise ValueError("every guess needs the position of its own row among the candidates")
    own = own.to(guess.device)
    found: dict[int, list[Tensor]] = {k: [] for k in top}
    for some, at in zip(torch.split(guess, _ROWS_AT_ONCE), torch.split(own, _ROWS_AT_ONCE), strict=True):
        distances = squared_distances(some, candidates)
        true = distances.gather(1, at.unsqueeze(1))
        # Equal candidates (a blank half of a digit) must tie although their sums were rounded apart.
        slack = _TIE * (1 + distances.amax(1, keepdim=True))
        closer = (distances < true - slack).sum(1)
        tied = ((distances - true).abs() <= slack).sum(1)
        for k in top:
            found[k].append(((k - closer) / tied).clamp(0, 1))
    empty = guess.new_zeros(0)
    return Identified(len(candidates), {k: torch.cat(parts) if parts else empty for k, parts in found.items()})
