"""A model as an ordered list of units, and what the number of a cut means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from veracausa.errors import InputError
from veracausa.models.options import Convention


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
