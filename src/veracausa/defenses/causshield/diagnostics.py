"""Numbers that say what an adaptation did to a batch: how far, in which direction, and whether the masker is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from veracausa.data.colour import without_chroma, without_luminance
from veracausa.defenses.causshield.losses import DEAD, correlation_sums
from veracausa.defenses.causshield.masker import always_up, top_k, upper_count

if TYPE_CHECKING:
    from veracausa.defenses.causshield.adaptation import Adaptation


@torch.no_grad()
def diagnostics(adaptation: Adaptation, before: Tensor, x: Tensor, surrogate: Tensor) -> dict[str, float]:
    """The diagnostics of an adapted generator on one batch; `before` is what the bottom itself gives for it."""
    before = before.float()
    sent = adaptation.payload(x).float()
    a, b = adaptation.matrix(sent), adaptation.matrix(adaptation.payload(surrogate).float())
    diagonal, off_diagonal = correlation_sums(a, b)
    pairs = max(1, a.shape[1] * (a.shape[1] - 1))
    numbers = {
        "drift": _ratio(sent - before, before),
        "cka": linear_cka(sent.flatten(1), before.flatten(1)),
        "correlation_diagonal": float(diagonal.mean()),
        "correlation_off_diagonal": float((off_diagonal.clamp(min=0) / pairs).sqrt()),
        "effective_rank": effective_rank(a),
        "dead_dimensions": float((a.std(0, unbiased=False) < DEAD).float().mean()),
        "generator_loss": float(adaptation.loss),
    }
    if x.ndim == 4 and x.shape[1] == 3:
        for name, without in (("chroma", without_chroma), ("luminance", without_luminance)):
            changed = adaptation.payload(adaptation.laid_out(without(x))).float()
            numbers[f"{name}_sensitivity"] = _ratio(sent - changed, sent)
    if adaptation.masker is not None:
        with adaptation.precision():
            logits = adaptation.masker(sent)
        chosen = top_k(logits, upper_count(adaptation.options.tau, adaptation.count), 1.0, None)
        numbers["mask_variance"] = float(torch.sigmoid(logits.float()).var(0).mean())
        numbers["mask_always_up"] = float(always_up(chosen))
    return numbers


def linear_cka(a: Tensor, b: Tensor) -> float:
    """Linear centred kernel alignment of two (rows, values) matrices: 1 where one is a rotation of the other."""
    a, b = a - a.mean(0), b - b.mean(0)
    first, second = (a @ a.T).double(), (b @ b.T).double()
    return float((first * second).sum() / (first.norm() * second.norm()).clamp(min=1e-30))


def effective_rank(a: Tensor) -> float:
    """exp of the entropy of the covariance's normalised spectrum: how many directions carry the variance."""
    centred = (a - a.mean(0)).double()
    gram = centred.T @ centred if a.shape[1] <= a.shape[0] else centred @ centred.T
    spectrum = torch.linalg.eigvalsh(gram).clamp(min=0)
    share = spectrum / spectrum.sum().clamp(min=1e-30)
    return float(torch.exp(-torch.xlogy(share, share).sum()))


def _ratio(difference: Tensor, whole: Tensor) -> float:
    return float(difference.norm() / whole.norm().clamp(min=1e-12))
