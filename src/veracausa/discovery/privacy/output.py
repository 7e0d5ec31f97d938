"""What a party is told of the graph at the end: the edges that touch its attributes, or all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.wire.message import Kind, TensorSpec

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Output = Literal["own", "all"]

OUTPUTS: tuple[Output, ...] = ("own", "all")


def result_kind(output: Output, attributes: int, own: int) -> Kind:
    """From the validator to one party. Under `own` there is no place in the message for the others' edges."""
    shapes: dict[str, tuple[int, ...]] = {"whole": (attributes, attributes)}
    if output == "own":
        shapes = {"into": (attributes, own), "out": (own, attributes)}
    return Kind("result", {name: TensorSpec(torch.float64, shape) for name, shape in shapes.items()})


def told(output: Output, graph: Mask, strengths: Array, own: slice) -> dict[str, Tensor]:
    """The strengths of the graph's edges that a party with these attributes is told; 0: no edge."""
    weighted = np.where(graph, strengths, 0.0)
    parts = {"whole": weighted} if output == "all" else {"into": weighted[:, own], "out": weighted[own]}
    return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in parts.items()}


def received(tensors: Mapping[str, Tensor], attributes: int, own: slice) -> Array:
    """(d, d): what a party knows of the graph; nan where it was told nothing."""
    if "whole" in tensors:
        return np.array(tensors["whole"].numpy())
    known = np.full((attributes, attributes), np.nan)
    known[:, own], known[own] = tensors["into"].numpy(), tensors["out"].numpy()
    return known
