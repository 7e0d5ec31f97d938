"""What may be chosen about privacy, and what of the graph the validator sends to a party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from veracausa.arrays import Array, Mask
from veracausa.wire.message import Kind, TensorSpec


class Privacy(BaseModel):
    """Differential privacy of one row, of all parties' attributes, against who sees strengths or the graph."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epsilon: float = Field(gt=0)
    """For the whole run."""
    delta: float = Field(1e-5, gt=0, lt=1)
    clip: float = Field(20.0, gt=0)
    """The most that one row may add to the gradient of one target's network, encoder and decoder together."""
    values: float = Field(1.5, gt=0)
    """The largest root mean square of one row's columns, party by party; longer rows are shortened."""
    noise_from: Literal["target", "both"] = "target"
    """Who draws an increment's noise: its target, or both holders, each all of it, so that either one's suffices."""


Output = Literal["own", "all"]

OUTPUTS: tuple[Output, ...] = ("own", "all")


def result_kind(output: Output, attributes: int, own: int) -> Kind:
    """From the validator to one party. Under `own` there is no place in the message for the others' edges."""
    shapes: dict[str, tuple[int, ...]] = {"whole": (attributes, attributes)}
    if output == "own":
        shapes = {"into": (attributes, own), "out": (own, attributes)}
    return Kind("result", {name: TensorSpec(torch.float64, shape) for name, shape in shapes.items()})


def sent_to(output: Output, graph: Mask, strengths: Array, own: slice) -> dict[str, Tensor]:
    """The strengths of the graph's edges that a party with these attributes is sent; 0: no edge."""
    weighted = np.where(graph, strengths, 0.0)
    parts = {"whole": weighted} if output == "all" else {"into": weighted[:, own], "out": weighted[own]}
    return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in parts.items()}


def received(tensors: Mapping[str, Tensor], attributes: int, own: slice) -> Array:
    """(d, d): what a party knows of the graph; nan where it was sent nothing."""
    if "whole" in tensors:
        return np.array(tensors["whole"].numpy())
    known = np.full((attributes, attributes), np.nan)
    known[:, own], known[own] = tensors["into"].numpy(), tensors["out"].numpy()
    return known
