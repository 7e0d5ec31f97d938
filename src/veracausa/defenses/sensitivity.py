"""How the bottom's output changes with its rows, for defenses that are calibrated by its Jacobian."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa import seeding
from veracausa.defenses.base import Defense
from veracausa.metrics.jacobian import RowJacobian, estimated_row_norms, exact_row_norms
from veracausa.models.runner import eval_mode
from veracausa.registry import Options

_ROWS = 1024
"""About how many rows are in the bottom at once."""
_WORTH = 4
"""How many times the products of an estimate exact norms of vectors may take: layers of vectors are cheap."""


class SensitivityOptions(Options):
    norms: Literal["auto", "exact", "hutchinson"] = "auto"
    """How ‖∂r_j/∂x‖ is found: exactly, by as many Jacobian products as a row or its payload has values, or estimated
    from `probes` products. auto: exact where it takes no more products, for vectors up to four times as many."""
    probes: int = Field(32, ge=1)
    """Random directions of an estimate; the squares of the norms then have a relative deviation of √(2/probes)."""


@contextmanager
def jacobian_of(defense: Defense, x: Tensor, r: Tensor) -> Iterator[RowJacobian]:
    """The Jacobians of the bottom at rows `x`, whose output is like `r`; in eval mode, so that rows stay apart."""
    with eval_mode(defense.bottom), defense.run_bottom.precision():
        yield RowJacobian(defense.bottom, x, _ROWS, like=r)


def row_norms(defense: Defense, options: SensitivityOptions, seed: int, x: Tensor, r: Tensor) -> Tensor:
    """‖∂r_j/∂x‖ in the shape of `r`; the same for the same rows and weights."""
    with jacobian_of(defense, x, r) as jacobian:
        dearest = options.probes * (_WORTH if r.ndim == 2 else 1)
        few = min(jacobian.inputs, jacobian.outputs) <= dearest
        if options.norms == "exact" or (options.norms != "hutchinson" and few):
            norms = exact_row_norms(jacobian)
        else:
            norms = estimated_row_norms(jacobian, directions(seed, options.probes, x))
    return norms.view(r.shape)


def directions(seed: int, count: int, x: Tensor) -> Tensor:
    """(count, d) standard normal vectors always the same for a seed: a mask must not change from call to call."""
    rng = torch.Generator(x.device).manual_seed(seeding.derive(seed, "directions"))
    return torch.randn(count, x[0].numel(), generator=rng, device=x.device)
