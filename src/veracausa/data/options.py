"""What a job says about data: where it comes from, how it is split between parties, who lacks which rows."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from veracausa.registry import Options


class DataOptions(Options):
    """What every data source takes; a source adds its own settings."""

    train: int | None = Field(None, ge=1)
    """At most so many training rows, the first ones; only the files they need are read."""
    test: int | None = Field(None, ge=1)
    validation: float = Field(0.0, ge=0, lt=1)
    """The share of the training rows held out for validation, drawn with the job's seed."""


class Partition(BaseModel):
    """Which party holds which columns or pixels."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["auto", "strips", "columns", "random"] = "auto"
    """auto: strips for images; for tables, columns where they are named and else at random."""
    axis: Literal["width", "height"] = "width"
    parts: tuple[int, ...] | None = None
    """Strip sizes in pixels (or column counts for `random`), one a party that holds features; default: equal."""
    active_has_features: bool = False
    """Whether the active party takes the first part itself."""
    columns: dict[str, tuple[str, ...]] = {}
    """Party name -> its column names, for tables."""


class Overlap(BaseModel):
    """Partial overlap: some passive parties hold only a fraction of the training ids."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fraction: float = Field(1.0, ge=0.1, le=1)
    parties: tuple[str, ...] = ()
    """Which parties lack ids; default: the last passive one."""
    missing: Literal["gwd", "drop", "zero_fill"] = "gwd"
    dummy: Literal["zeros", "resample"] = "zeros"
    keep: Literal["steps", "epochs"] = "steps"
    """With `drop`: keep the number of optimiser steps of a full run, or its epochs over the common ids."""
