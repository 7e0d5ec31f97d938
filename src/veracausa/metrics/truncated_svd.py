"""The strongest singular directions of every sample's Jacobian, from products with random vectors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.jacobian import RowJacobian

EXTRA = 8
"""Directions beyond those asked for: they take the error of the weakest."""


@dataclass(frozen=True)
class Strongest:
    """J ≈ U Σ Vᵀ of n samples, k directions each, the strongest first."""

    left: Tensor
    """(n, m, k) U."""
    sigma: Tensor
    """(n, k); 0 for directions that J does not have, whose vectors are 0 too."""
    right: Tensor
    """(n, d, k) V."""


def truncated_svd(jacobian: RowJacobian, k: int, start: Tensor, power_iterations: int = 1) -> Strongest:
    """The k strongest directions of each Jacobian by subspace iteration from `start`, (d, k + EXTRA) ~ N(0, I).

    Takes k + EXTRA forward products, and as many backward and forward ones for each power iteration, and once more
    backward. All k are exact where the Jacobian has no more than k + EXTRA directions.
    """
    width = min(k + EXTRA, jacobian.inputs, jacobian.outputs)
    columns = start.T[:width].unsqueeze(1).expand(-1, jacobian.rows, -1)
    image = _pushed(jacobian, columns)
    for _ in range(power_iterations):
        back = _orthonormal(_pulled(jacobian, _orthonormal(image)))
        image = _pushed(jacobian, back)
    basis = _orthonormal(image)
    inner = _pulled(jacobian, basis)  # Bᵀ of B = QᵀJ
    values, turn = torch.linalg.eigh(torch.einsum("cnd,end->nce", inner.double(), inner.double()))
    values, turn = values.flip(1)[:, :k].clamp_min(0), turn.flip(2)[..., :k].to(inner.dtype)
    sigma = values.sqrt()
    there = sigma > 1e-6 * sigma[:, :1].clamp_min(1e-30)
    sigma = torch.where(there, sigma, 0).to(inner.dtype)
    right = torch.einsum("cnd,nck->ndk", inner, turn) / torch.where(there, sigma, torch.inf).unsqueeze(1)
    left = torch.einsum("cnm,nck->nmk", basis, turn * there.unsqueeze(1))
    return Strongest(left, sigma, right)


def _pushed(jacobian: RowJacobian, v: Tensor) -> Tensor:
    return jacobian.jv(v.to(jacobian.x.dtype).contiguous()).float()


def _pulled(jacobian: RowJacobian, u: Tensor) -> Tensor:
    return jacobian.jtu(u.to(jacobian.payload_dtype).contiguous()).float()


def _orthonormal(vectors: Tensor) -> Tensor:
    """(c, n, size) vectors that span, sample by sample, what the given ones do; those it takes none for are zero.

    From the c×c Gram matrix, in float64: a batched QR of long thin matrices runs one matrix after the other on a GPU.
    """
    doubled = vectors.double()
    values, turn = torch.linalg.eigh(torch.einsum("cnm,enm->nce", doubled, doubled))
    there = values > 1e-12 * values[:, -1:].clamp_min(1e-200)
    scaled = turn * torch.where(there, values.clamp_min(1e-200).rsqrt(), 0).unsqueeze(1)
    return torch.einsum("cnm,nce->enm", doubled, scaled).to(vectors.dtype)
