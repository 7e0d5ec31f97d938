"""The losses of causal representation learning, and numbers that say what an adaptation did to a batch.

Decomposition: Eqs. 11-14. Masker: Eqs. 17-18. Generator: Eq. 19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from veracausa.data.colour import without_chroma, without_luminance
from veracausa.defenses.causshield.masker import always_up, top_k, upper_count

if TYPE_CHECKING:
    from veracausa.defenses.causshield.adaptation import Adaptation


EPS = 1e-6
DEAD = 1e-5
"""Below this standard deviation a dimension says nothing: its correlations are zero and send no gradient."""


def correlations(r: Tensor, other: Tensor) -> Tensor:
    """C, the (J, J) correlations between dimensions of two (N, J) matrices (Eqs. 11-13)."""
    a, b = _centred(r), _centred(other)
    return (a.T @ b) / len(r) * (_inverse_std(a)[:, None] * _inverse_std(b)[None, :])


def correlation_sums(r: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The diagonal of C, and Σ_{i≠j} C_ij².

    C itself is built only where it is the smaller matrix; for J > N its squares are sums over pairs of samples:
    ‖AᵀB‖² = ⟨AAᵀ, BBᵀ⟩. In float32 whatever comes in: the difference of the two sums cancels.
    """
    samples, dimensions = r.shape
    if dimensions <= samples:
        c = correlations(r, other)
        diagonal = c.diagonal()
        return diagonal, c.square().sum() - diagonal.square().sum()
    a, b = _centred(r), _centred(other)
    a = a * (_inverse_std(a) * samples**-0.5)
    b = b * (_inverse_std(b) * samples**-0.5)
    diagonal = (a * b).sum(0)
    return diagonal, _squares_by_samples(a, b).to(diagonal.dtype) - diagonal.square().sum()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _squares_by_samples(a: Tensor, b: Tensor) -> Tensor:
    """‖AᵀB‖² from products of samples. The compiler leaves it alone: what it makes of them ends a GPU's context."""
    return ((a @ a.T).double() * (b @ b.T).double()).sum()


def decomposition(r: Tensor, other: Tensor, beta: float) -> Tensor:
    """½/J [Σ_j (1 - C_jj)² + β Σ_{i≠j} C_ij²]: Eq. 14 over J at β = 1."""
    diagonal, off_diagonal = correlation_sums(r, other)
    return ((1 - diagonal).square().sum() + beta * off_diagonal) / (2 * r.shape[1])


def off_diagonal_weight(beta: float | Literal["auto", "cirl"], samples: int, dimensions: int) -> float:
    """β for this many correlation samples; unrelated dimensions alone make off-diagonals of about β·J/N."""
    if beta == "auto":
        return min(1.0, (samples - 1) / dimensions)
    if beta == "cirl":
        return 0.005 / max(1, dimensions - 1)
    return float(beta)


def generator_score(z: Tensor) -> Tensor:
    """Mean over rows and dimensions of (1 - z)²: what the generator adds to the decomposition (Eq. 19)."""
    return (1 - z).square().mean()


def masker_loss(z: Tensor, upper: Tensor) -> Tensor:
    """l_upp + l_low of one branch, over J (Eqs. 17-18)."""
    return ((1 - z).square() * upper + z.square() * (1 - upper)).mean()


def _centred(r: Tensor) -> Tensor:
    # All that follows is products of centred columns, whose gradients have no mean: none need flow through this one.
    r = r.float()
    return r - r.detach().mean(0)


def _inverse_std(centred: Tensor) -> Tensor:
    variance = centred.square().mean(0)
    alive = variance > DEAD**2
    # The square root's slope at zero is infinite: a dead dimension must not reach it, not even behind a `where`.
    std = torch.where(alive, variance, 1.0).sqrt()
    return torch.where(alive, 1 / (std + EPS), 0.0)


@torch.no_grad()
def diagnostics(adaptation: Adaptation, before: Tensor, x: Tensor, surrogate: Tensor) -> dict[str, float]:
    """The diagnostics of an adapted generator on one batch; `before` is what the bottom itself gives for it."""
    before = before.float()
    sent, other = adaptation.payload(x).float(), adaptation.payload(surrogate).float()
    a, b = adaptation.matrix(sent), adaptation.matrix(other)
    diagonal, off_diagonal = correlation_sums(a, b)
    pairs = max(1, a.shape[1] * (a.shape[1] - 1))
    numbers = {
        "drift": _ratio(sent - before, before),
        "causal_error": float((other - before).square().sum(tuple(range(1, other.ndim))).mean()),
        "cka": linear_cka(sent.flatten(1), before.flatten(1)),
        "correlation_diagonal": float(diagonal.mean()),
        "correlation_off_diagonal": float((off_diagonal.clamp(min=0) / pairs).sqrt()),
        "effective_rank": effective_rank(a),
        "dead_dimensions": float((a.std(0, unbiased=False) < DEAD).float().mean()),
        "generator_loss": float(adaptation.loss),
    }
    if x.ndim == 4 and x.shape[1] == 3:
        for name, without in (("chroma", without_chroma), ("luminance", without_luminance)):
            changed = adaptation.payload(adaptation.to_memory_format(without(x))).float()
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
