"""‖∂r_j/∂x‖ of every value of a representation: exactly, or estimated from random directions."""

from __future__ import annotations

import torch
from torch import Tensor

from veracausa.metrics.jacobian import RowJacobian


def exact_row_norms(jacobian: RowJacobian) -> Tensor:
    """(n, m) the norm of every row of the Jacobians, from all of their columns or rows, whichever are fewer."""
    return (_from_columns if jacobian.inputs < jacobian.outputs else _from_rows)(jacobian)


def estimated_row_norms(jacobian: RowJacobian, probes: Tensor) -> Tensor:
    """(n, m) estimates from `probes` (p, d) ~ N(0, I): E (J v)_j² = ‖J_j‖², relative deviation √(2/p) of the square.

    All samples share the probes: each one's estimate is as good as with its own.
    """
    return (_squares(jacobian, probes) / len(probes)).sqrt()


def _from_columns(jacobian: RowJacobian) -> Tensor:
    return _squares(jacobian, torch.eye(jacobian.inputs, dtype=jacobian.x.dtype, device=jacobian.x.device)).sqrt()


def _from_rows(jacobian: RowJacobian) -> Tensor:
    unit = torch.eye(jacobian.outputs, dtype=jacobian.payload_dtype, device=jacobian.x.device)
    parts = torch.split(unit.unsqueeze(1), jacobian.columns)
    norms = [jacobian.jtu(part.expand(-1, jacobian.rows, -1).contiguous()).float().norm(dim=2) for part in parts]
    return torch.cat(norms).T


def _squares(jacobian: RowJacobian, directions: Tensor) -> Tensor:
    """(n, m) Σ_v (J v)_j², a few directions at a time."""
    total = torch.zeros(jacobian.rows, jacobian.outputs, device=jacobian.x.device)
    for part in torch.split(directions.unsqueeze(1), jacobian.columns):
        total += jacobian.jv(part.expand(-1, jacobian.rows, -1).contiguous()).float().square_().sum(0)
    return total
