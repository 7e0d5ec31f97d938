"""Batch normalisation of two views in one pass, each with statistics of its own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from veracausa.models.layers import Dropout

_SPLITTABLE = (nn.BatchNorm1d, nn.BatchNorm2d)


class SplitBatchNorm:
    """Makes a model take both halves of a batch in one pass as if each had passed alone.

    Only batch statistics tie rows together: with them kept apart, one pass over twice the rows computes what two passes
    do, with half the launches and larger convolutions. Worth it when the whole is compiled; as separate operations the
    split statistics cost more than they save.
    """

    def __init__(self, model: nn.Module) -> None:
        self.norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self.possible = all(
            type(norm) in _SPLITTABLE and norm.track_running_stats and norm.momentum is not None for norm in self.norms
        )
        if self.possible:
            for norm in self.norms:
                norm.__class__ = _PER_VIEW[type(norm)]

    def set_views(self, views: int) -> None:
        """From now on the model takes this many views a batch."""
        for norm in self.norms:
            norm.views = views  # type: ignore[assignment]


class _PerView:
    """What a normalisation does with a batch of several views."""

    views = 1

    def forward(self, x: Tensor) -> Tensor:
        if self.views == 1 or not self.training:  # type: ignore[attr-defined]
            return super().forward(x)  # type: ignore[misc, no-any-return]
        return _normalise(self, x, self.views)  # type: ignore[arg-type]


class _PerView1d(_PerView, nn.BatchNorm1d):
    pass


class _PerView2d(_PerView, nn.BatchNorm2d):
    pass


_PER_VIEW: dict[type, type] = {nn.BatchNorm1d: _PerView1d, nn.BatchNorm2d: _PerView2d}


def _normalise(norm: nn.BatchNorm2d, x: Tensor, views: int) -> Tensor:
    apart = x.view(views, len(x) // views, *x.shape[1:])
    apart = apart if apart.dtype == torch.float64 else apart.float()
    over = [1, *range(3, apart.ndim)]
    var, mean = torch.var_mean(apart, over, correction=0, keepdim=True)
    with torch.no_grad():
        rows = apart[0].numel() // apart.shape[2]
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        for view in range(views):
            norm.running_mean.lerp_(mean[view].flatten(), norm.momentum)
            norm.running_var.lerp_(var[view].flatten() * (rows / max(1, rows - 1)), norm.momentum)
        norm.num_batches_tracked.add_(views)  # type: ignore[union-attr]
    y = (apart - mean) * torch.rsqrt(var + norm.eps)
    if norm.weight is not None:
        shape = [1, 1, -1, *[1] * (apart.ndim - 3)]
        y = y * norm.weight.view(shape) + norm.bias.view(shape)
    return y.view(x.shape).to(x.dtype)


def held_batch(model: nn.Module, x: Tensor) -> nn.Module:
    """A copy of `model` that gives, for the rows `x`, what `model` in its present mode gives for them together.

    In training mode that depends on the batch: the copy normalises by this batch's statistics, whatever rows it gets.
    """
    held = copy.deepcopy(model)
    held.requires_grad_(False)
    norms = [module for module in held.modules() if isinstance(module, _BatchNorm) and _by_batch(module)]
    hooks = [norm.register_forward_pre_hook(_note) for norm in norms]
    try:
        with torch.no_grad():
            held(x)
    finally:
        for hook in hooks:
            hook.remove()
    for norm in norms:
        norm.running_mean, norm.running_var = norm.held_mean, norm.held_var  # type: ignore[assignment]
        norm.track_running_stats = True
    return held.eval()


def drops(model: nn.Module) -> bool:
    """Whether the model in its present mode drops values at random."""
    return any(isinstance(module, Dropout) and module.training and module.p > 0 for module in model.modules())


def _by_batch(norm: _BatchNorm) -> bool:
    return norm.training or norm.running_mean is None


def _note(norm: nn.Module, given: tuple[Tensor, ...]) -> None:
    """What the normalisation is about to normalise by; biased, as it takes the variance."""
    values = given[0].detach().float()
    over = [0, *range(2, values.ndim)]
    var, mean = torch.var_mean(values, over, correction=0)
    norm.register_buffer("held_mean", mean)
    norm.register_buffer("held_var", var)
