"""A model as it answers one batch, made a map of single rows: the batch's statistics are held."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from veracausa.models.dropout import Dropout


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
