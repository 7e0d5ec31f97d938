"""The risk meter: what the map from rows to payloads keeps of a row, by its Jacobian, without any attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.jacobian import RiskUnavailable, RowJacobian

__all__ = ["RiskUnavailable", "Spectrum", "area_under_inv_re", "inv_loss", "inv_re", "relative_rank", "risk_of"]

Noise = Tensor | Callable[[Tensor], Tensor]
FRACTIONS = (5, 10, 25, 50)
RELATIVE = 0.05
MOST = 6144
"""The most directions of a row: their matrix takes 0.3 GB in double precision, its decomposition minutes on a core."""
WHOLE = 2**27
"""The most numbers of Jacobians that are held at once."""


@dataclass(frozen=True)
class Spectrum:
    """J = U Σ Vᵀ of every sample, seen from x − μ: float64, r directions, the strongest first."""

    sigma: Tensor
    """(n, r) singular values."""
    power: Tensor
    """(n, r) (v_iᵀ(x − μ))², 0 in directions that J does not carry."""
    noise: Tensor
    """(n, r) E[(u_iᵀε)²] / σ_i², 0 without noise."""
    total: Tensor
    """(n,) ‖x − μ‖²."""
    inputs: int
    """d, the size of a row."""


def inv_loss(spectrum: Spectrum, k: Tensor | int) -> Tensor:
    """(n,) InvLoss_k = Σ_{i>k} (v_iᵀ(x−μ))² + Σ_{i≤k} E[(u_iᵀε)²]/σ_i².

    A direction with σ_i = 0 is lost whatever k is: no payload carries it, and a basis of the rest would be arbitrary.
    """
    at = torch.arange(spectrum.sigma.shape[1], device=spectrum.sigma.device)
    read = at < torch.as_tensor(k, device=at.device).view(-1, 1)
    return spectrum.total - torch.where(read, spectrum.power - spectrum.noise, 0).sum(1)


def inv_re(spectrum: Spectrum, k: Tensor | int) -> Tensor:
    """(n,) InvRE_k = 1 − min(1, InvLoss_k / ‖x−μ‖²), in [0, 1]; lower is safer."""
    share = inv_loss(spectrum, k) / spectrum.total.clamp_min(1e-30)
    return torch.where(spectrum.total > 0, 1 - share.clamp(0, 1), 0)


def relative_rank(sigma: Tensor, relative: float = RELATIVE) -> Tensor:
    """(n,) k = #{σ_i ≥ 0.05 σ_1}."""
    return ((sigma >= relative * sigma[:, :1]) & (sigma > 0)).sum(1)


def area_under_inv_re(spectrum: Spectrum) -> Tensor:
    """(n,) the area under InvRE_k over k/d from 0 to 1; needs all directions."""
    read = (spectrum.power - spectrum.noise).cumsum(1) / spectrum.total.clamp_min(1e-30).unsqueeze(1)
    values = torch.nn.functional.pad(read.clamp(0, 1), (1, 0))  # InvRE_0 = 0
    inside = (values[:, 1:] + values[:, :-1]).sum(1) / 2
    return (inside + values[:, -1] * (spectrum.inputs - spectrum.sigma.shape[1])) / spectrum.inputs


def risk_of(
    transmit: Callable[[Tensor], Tensor],
    x: Tensor,
    mean: Tensor,
    *,
    noise: Noise | None = None,
    chunk: int = 256,
) -> dict[str, float]:
    """InvRE of `transmit` at the rows `x` around `mean`, as means over the rows, in all directions of the rows.

    `transmit` maps all of `x`'s rows (always these, in this order) to their payloads, differentiably, each row apart
    from the others: BatchNorm in eval mode, noise left out. About `chunk` rows are in the model at once; beside that
    the memory is n·min(d, m)² numbers, and n·d·m where that is below `WHOLE`. A row or payload of more than `MOST`
    numbers, whichever is smaller, is refused: its directions cannot all be found.

    `noise` says what is added to the payload (m numbers): its variances (m,), (n, m) by row, or (n, m, r) factors F of
    its covariances F Fᵀ; or a function that gives E[(uᵀε)²], (c, n), of c vectors u a row, (c, n, m).

    Gives `invre` at `k` = #{σ_i ≥ 0.05 σ_1}, `invre_5` … `invre_50` at k = that percentage of d, `invre_area`, the mean
    over all percentages, `samples`, and `exact`, which is 1: files of earlier versions may hold figures of some
    directions alone, with `exact` 0.
    """
    if not len(x):
        raise RiskUnavailable("there is no row to measure the risk of")
    jacobian = RowJacobian(transmit, x, chunk)
    if (least := min(jacobian.inputs, jacobian.outputs)) > MOST:
        raise RiskUnavailable(
            f"a row has {jacobian.inputs} values and its payload {jacobian.outputs}: {least} directions are more than "
            f"the {MOST} that can be found"
        )
    spectrum = _all_directions(jacobian, mean, noise)
    k = relative_rank(spectrum.sigma)
    risk = {
        "invre": inv_re(spectrum, k).mean().item(),
        "k": k.double().mean().item(),
        "samples": float(len(x)),
        "exact": 1.0,
    }
    for percent in FRACTIONS:
        directions = max(1, round(jacobian.inputs * percent / 100))
        risk[f"invre_{percent}"] = inv_re(spectrum, directions).mean().item()
    risk["invre_area"] = area_under_inv_re(spectrum).mean().item()
    return risk


def rows_at_once(inputs: int, outputs: int) -> int:
    """So many rows of this size can be measured together in about a gigabyte."""
    return max(1, WHOLE // max(1, 4 * min(inputs, outputs) ** 2, inputs * outputs))


def _all_directions(jacobian: RowJacobian, mean: Tensor, noise: Noise | None) -> Spectrum:
    """From JᵀJ, or from JJᵀ where the payload is smaller than the row."""
    difference = _difference(jacobian, mean)
    if jacobian.inputs <= jacobian.outputs:
        values, projections, v = _eigen(_gram(jacobian), difference, noise is not None)
        return _spectrum(jacobian, values, projections, v, difference, noise)
    # v_i = Jᵀu_i/σ_i, so one J(x − μ) gives all its projections.
    sent = jacobian.jv(difference.to(jacobian.x.dtype).unsqueeze(0))[0].double()
    values, projections, u = _eigen(_cogram(jacobian), sent, noise is not None)
    projections = projections / values.clamp_min(1e-300).sqrt()
    v = None if u is None else _pulled(jacobian, u, values)
    return _spectrum(jacobian, values, projections, v, difference, noise)


def _gram(jacobian: RowJacobian) -> Tensor:
    """(n, d, d) JᵀJ: by J itself where it fits, else a few columns at a time, which takes a backward pass more."""
    if jacobian.rows * jacobian.inputs * jacobian.outputs > WHOLE:
        return _matrix(jacobian.gram, jacobian.inputs, jacobian)
    whole = _matrix(jacobian.jv, jacobian.inputs, jacobian)
    return whole @ whole.mT


def _cogram(jacobian: RowJacobian) -> Tensor:
    """(n, m, m) JJᵀ, in the same way."""
    if jacobian.rows * jacobian.inputs * jacobian.outputs > WHOLE:
        return _matrix(jacobian.cogram, jacobian.outputs, jacobian)
    whole = _matrix(jacobian.jtu, jacobian.outputs, jacobian)
    return whole @ whole.mT


def _spectrum(
    jacobian: RowJacobian,
    values: Tensor,
    projections: Tensor,
    v: Tensor | None,
    difference: Tensor,
    noise: Noise | None,
) -> Spectrum:
    sigma = values.clamp_min(0).sqrt()
    # Squared singular values keep half of the digits: below this a direction is zero for all we know.
    zero = sigma <= 4 * torch.finfo(jacobian.x.dtype).eps ** 0.5 * sigma[:, :1]
    sigma = torch.where(zero, 0, sigma)
    spread = torch.zeros_like(sigma)
    if noise is not None and v is not None:
        spread = torch.where(zero, 0, _noise_along(jacobian, v, noise) / sigma.clamp_min(1e-150) ** 4)
    power = torch.where(zero, 0, projections.square())
    return Spectrum(sigma, power, spread, difference.square().sum(1), jacobian.inputs)


def _noise_along(jacobian: RowJacobian, v: Tensor, noise: Noise) -> Tensor:
    """(n, r) E[((J v_i)ᵀε)²], which is σ_i² E[(u_iᵀε)²]."""
    if isinstance(noise, Tensor) and noise.ndim == 3 and noise.shape[:2] != (jacobian.rows, jacobian.outputs):
        raise ValueError(f"noise factors of shape {tuple(noise.shape)} do not fit {jacobian.outputs} numbers a payload")
    found = []
    for part in torch.split(v.to(jacobian.x.dtype).permute(2, 0, 1), jacobian.columns):
        sent = jacobian.jv(part.contiguous()).double()
        if not isinstance(noise, Tensor):
            found.append(noise(sent).double())
        elif noise.ndim == 3:
            found.append(torch.einsum("cnm,nmr->cnr", sent, noise.double()).square().sum(-1))
        else:
            found.append((sent.square() * noise.flatten(noise.ndim - 1).double()).sum(-1))
    return torch.cat(found).T


def _matrix(apply: Callable[[Tensor], Tensor], size: int, jacobian: RowJacobian) -> Tensor:
    """(n, size, …): what `apply` makes of every unit vector, for a symmetric matrix that matrix."""
    unit = torch.eye(size, dtype=jacobian.x.dtype, device=jacobian.x.device)
    parts = torch.split(unit.unsqueeze(1), jacobian.columns)
    columns = [apply(part.expand(-1, jacobian.rows, -1).contiguous()) for part in parts]
    return torch.cat(columns).permute(1, 0, 2)


def _eigen(matrices: Tensor, seen: Tensor, keep: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Eigenvalues, the largest first, the eigenvectors' products with `seen`, and the vectors where they are asked for.

    One matrix at a time: in float64, all of them with their vectors would take four times the memory.
    """
    values, products, vectors = [], [], []
    for matrix, one in zip(matrices, seen, strict=True):
        doubled = matrix.double()
        value, vector = torch.linalg.eigh((doubled + doubled.T) / 2)
        values.append(value.flip(0))
        products.append((one @ vector).flip(0))
        if keep:
            vectors.append(vector.flip(1))
    return torch.stack(values), torch.stack(products), torch.stack(vectors) if keep else None


def _pulled(jacobian: RowJacobian, u: Tensor, values: Tensor) -> Tensor:
    pulled = jacobian.jtu(u.to(jacobian.x.dtype).permute(2, 0, 1).contiguous()).double()
    return (pulled / values.clamp_min(1e-300).sqrt().T.unsqueeze(-1)).permute(1, 2, 0)


def _difference(jacobian: RowJacobian, mean: Tensor) -> Tensor:
    return (jacobian.x - mean.to(jacobian.x)).flatten(1).double()
