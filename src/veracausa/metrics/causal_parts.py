"""What CausShield's Theorems 1 and 2 claim, in numbers: the Jacobians of the part that is sent and of the rest.

The paper writes a representation as r = r^s + r^u. Here r is what the bottom gives, r^s what is sent in its place and
r^u their difference. All three are maps of a row, so their Jacobians can be taken and compared (Eqs. 4-7, 39-45).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.jacobian import RiskUnavailable, RowJacobian
from veracausa.metrics.risk import RELATIVE, WHOLE

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class CausalParts:
    """A number a row, all (n,) in double precision; k is #{i: σ_i(G_x) ≥ 0.05 σ_1(G_x)} of that row."""

    k: Tensor
    ratio: Tensor
    """The median over i ≤ k of σ_i(G^U)/σ_i(G^S). Theorem 1 says: far above 1."""
    dominated: Tensor
    """The share of i ≤ k for which σ_i(G^U) > σ_i(G^S)."""
    overlap: Tensor
    """‖V_Sᵀ V_U‖²/k of the k strongest right singular vectors of both. Definition 1 says: 0; one space has 1."""
    chance: Tensor
    """What two random spaces of k directions among d have: k/d."""
    gamma: Tensor
    """σ_1(G^S), the γ of Assumption 2."""
    bound: Tensor
    """(1 − kγ²), the factor of Eq. 7's lower bound. At 0 and below the bound says nothing."""
    loss_sent: Tensor
    """InvLoss of r^s at rank k, as a share of ‖x − μ‖²: 0 is read back whole, 1 not at all."""
    loss_whole: Tensor
    """The same of r: the first term of τ_th."""
    threshold: Tensor
    """τ_th of Eq. 39 as a share of ‖x − μ‖², with noise of the shape n² J Jᵀ and p = 1: its first term and k·n²."""

    def means(self) -> dict[str, float]:
        """The mean of every number, and the share of rows for which Eq. 7's conclusion holds."""
        found = {name: float(value.mean()) for name, value in vars(self).items()}
        return {**found, "above_threshold": float((self.loss_sent > self.threshold).double().mean())}


def causal_parts(sent: Map, bottom: Map, x: Tensor, mean: Tensor, noise: float = 0.0, chunk: int = 256) -> CausalParts:
    """Compare what `sent` and `bottom` make of the rows `x`, around `mean`; `noise` is n of τ_th.

    Both maps take all of `x`'s rows, each apart from the others. Jacobians are held whole, so rows and payloads are
    bounded: `RiskUnavailable` says so.
    """
    if not len(x):
        raise RiskUnavailable("there is no row to take Jacobians of")
    first, second = RowJacobian(sent, x, chunk), RowJacobian(bottom, x, chunk)
    if first.outputs != second.outputs:
        raise RiskUnavailable(f"{first.outputs} numbers are sent where the bottom gives {second.outputs}")
    if first.inputs * first.outputs > WHOLE:
        raise RiskUnavailable(f"a Jacobian of {first.inputs} × {first.outputs} numbers does not fit")
    difference = (x - mean.to(x)).flatten(1).double()
    rows = [_of_one(first, second, i, difference[i], noise) for i in range(len(x))]
    return CausalParts(*(torch.stack(column) for column in zip(*rows, strict=True)))


def _of_one(sent: RowJacobian, whole: RowJacobian, row: int, difference: Tensor, noise: float) -> tuple[Tensor, ...]:
    kept, both = _jacobian(sent, row), _jacobian(whole, row)
    sigma, right = _spectrum(both)
    sigma_s, right_s = _spectrum(kept)
    sigma_u, right_u = _spectrum(both - kept)
    k = int(((sigma >= RELATIVE * sigma[:1]) & (sigma > 0)).sum())
    total = difference.square().sum().clamp_min(1e-30)
    ratios = sigma_u[:k] / sigma_s[:k].clamp_min(1e-30)
    overlap = (right_s[:k] @ right_u[:k].T).square().sum() / max(1, k)
    gamma = sigma_s[0]
    loss_whole = _lost(sigma, right, difference, k) / total
    return (
        torch.tensor(float(k)),
        ratios.median() if k else torch.tensor(0.0),
        (ratios > 1).double().mean() if k else torch.tensor(0.0),
        overlap,
        torch.tensor(k / len(difference)),
        gamma,
        1 - k * gamma.square(),
        _lost(sigma_s, right_s, difference, k) / total,
        loss_whole,
        loss_whole + k * noise**2 / total,
    )


def _jacobian(jacobian: RowJacobian, row: int) -> Tensor:
    """(m, d) of one row, from whichever side is smaller."""
    width = min(jacobian.inputs, jacobian.outputs)
    by_columns = jacobian.inputs <= jacobian.outputs
    unit = torch.eye(width, dtype=jacobian.x.dtype, device=jacobian.x.device)
    apply = jacobian.jv if by_columns else jacobian.jtu
    parts = []
    for part in torch.split(unit, jacobian.columns):
        vectors = torch.zeros(len(part), jacobian.rows, width, dtype=part.dtype, device=part.device)
        vectors[:, row] = part
        parts.append(apply(vectors)[:, row].double())
    found = torch.cat(parts)
    return found.T if by_columns else found


def _spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values, the largest first, and right singular vectors as rows."""
    _, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
    return sigma, right


def _lost(sigma: Tensor, right: Tensor, difference: Tensor, k: int) -> Tensor:
    """InvLoss at rank k: what the k strongest directions that J carries do not hold of x − μ."""
    carried = sigma[:k] > 1e-7 * sigma[:1].clamp_min(1e-30)
    return difference.square().sum() - ((right[:k] @ difference).square() * carried).sum()
