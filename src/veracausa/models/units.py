"""A model as an ordered list of units: what the number of a cut means, and what shape each unit gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from veracausa.errors import InputError
from veracausa.models.registry import Convention
from veracausa.models.runner import eval_mode


def units_of(model: nn.Module) -> list[nn.Module]:
    """The modules that, run in order, are the model."""
    declared = getattr(model, "units", None)
    if declared is None and isinstance(model, nn.Sequential):
        declared = list(model)
    units = list(declared) if isinstance(declared, Iterable) else []
    if not units or not all(isinstance(unit, nn.Module) for unit in units):
        raise InputError(
            f"model {type(model).__name__} has no units to cut between: make it an nn.Sequential, or give it an "
            "attribute `units`, a sequence of its modules that run in order equal the model"
        )
    return units


def resolve(model: nn.Module, number: int, convention: Convention = "N1", name: str | None = None) -> int:
    """How many units the bottom keeps when the job says cut `number` in `convention`."""
    name = name or type(model).__name__
    count = len(units_of(model))
    if convention == "N1":
        if not 1 <= number < count:
            raise InputError(f"model {name!r}: cut {number} does not exist: {_allowed(count)}")
        return number
    numbering = _numbering(model, convention, name)
    # The model's last layer has a number too, but a cut there would leave the top nothing.
    cuts = {layer: units for layer, units in sorted(numbering.items()) if 1 <= units < count}
    if number not in cuts:
        where = f"model {name!r}: cut {number} in convention {convention}"
        if cuts and min(cuts) < number < max(cuts):
            below = max(layer for layer in cuts if layer < number)
            above = min(layer for layer in cuts if layer > number)
            raise InputError(f"{where} falls inside a block; the nearest cuts that exist are {below} and {above}")
        raise InputError(f"{where} does not exist: the cuts are {', '.join(map(str, cuts))}")
    return cuts[number]


def _allowed(count: int) -> str:
    if count < 2:
        return "it has one unit, and bottom and top need one each"
    return f"it has {count} units and the top keeps at least one, so cut is in 1..{count - 1}"


def _numbering(model: nn.Module, convention: Convention, name: str) -> Mapping[int, int]:
    conventions: Mapping[str, Mapping[int, int]] = getattr(model, "conventions", {})
    if convention not in conventions:
        raise InputError(
            f"model {name!r} does not say what {convention} means: use cut_convention = 'N1', or give the model an "
            f"attribute `conventions` such as {{'{convention}': {{1: 3}}}}, {convention} numbers to counts of units"
        )
    return conventions[convention]


def infer_output(part: nn.Sequential, shape: Sequence[int], name: str, arriving: str, first: int = 1) -> Tensor:
    """What `part` gives for one sample of zeros; lazy layers have their sizes afterwards.

    Eval mode and no gradient: BatchNorm keeps its running statistics, dropout draws nothing. `first` is the number of
    the part's first unit in the whole model, `arriving` what its input is called in an error.
    """
    weight = next((p for p in part.parameters() if not is_lazy(p)), None)
    device, dtype = (weight.device, weight.dtype) if weight is not None else (None, None)
    values = torch.zeros((1, *shape), device=device, dtype=dtype)
    with eval_mode(part), torch.no_grad():
        for number, unit in enumerate(part, start=first):
            with _trail(unit) as trail:
                try:
                    values = unit(values)
                except InputError:
                    raise
                # A user's unit can raise anything when the shape does not suit it.
                except Exception as error:
                    where = f"model {name!r}: unit {number} ({type(unit).__name__})"
                    raise InputError(f"{where} {_misfit(trail, arriving, shape, error)}") from error
            if not isinstance(values, Tensor):
                raise InputError(
                    f"model {name!r}: unit {number} ({type(unit).__name__}) gives a {type(values).__name__}; "
                    "a unit takes one tensor and gives one tensor"
                )
            if any(is_lazy(parameter) for parameter in unit.parameters()):
                raise InputError(
                    f"model {name!r}: unit {number} ({type(unit).__name__}) has a lazy layer that its forward never "
                    "calls, so its size stays unknown; remove it"
                )
    return values


@contextmanager
def _trail(unit: nn.Module) -> Iterator[list[tuple[nn.Module, tuple[int, ...]]]]:
    """The leaf modules entered so far, each with the shape it was given: the last one is where a pass broke."""
    trail: list[tuple[nn.Module, tuple[int, ...]]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            trail.append((module, tuple(inputs[0].shape[1:])))

    leaves = [module for module in unit.modules() if next(module.children(), None) is None]
    hooks = [leaf.register_forward_pre_hook(note) for leaf in leaves]
    try:
        yield trail
    finally:
        for hook in hooks:
            hook.remove()


def _misfit(
    trail: list[tuple[nn.Module, tuple[int, ...]]], arriving: str, shape: Sequence[int], error: Exception
) -> str:
    origin = f"{arriving} of shape {shape_text(shape)}"
    if trail:
        leaf, given = trail[-1]
        if isinstance(leaf, nn.Linear) and given and given[-1] != leaf.in_features:
            return (
                f"expects {leaf.in_features} features, but {origin} brings {given[-1]}; "
                f"use nn.LazyLinear({leaf.out_features}), which takes its size from what arrives"
            )
        channels = getattr(leaf, "in_channels", None)
        if isinstance(channels, int) and (len(given) < 2 or given[0] != channels):
            return f"expects maps of {channels} channels, but {origin} brings {shape_text(given)}"
    return f"cannot take what {origin} brings: {type(error).__name__}: {error}"


def shape_text(shape: Sequence[int]) -> str:
    """`64×32×16`."""
    return "×".join(map(str, shape))
