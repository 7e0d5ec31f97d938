"""The settings of a discovery from sums."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SumsSettings(BaseModel):
    """How columns are expanded, how the graph is searched, and who may open what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # the search
    model: Literal["auto", "linear", "lingam", "additive"] = "auto"
    """Which relations are looked for. `auto` compares them."""
    functions: int | None = Field(None, ge=1, le=24)
    """Functions of each number. None: by the rows."""
    products: bool | None = None
    """Products of two columns of one party: two causes may do together what they do not do one by one. None: where
    columns are few enough, in one place, and rows many enough, between parties."""
    penalty: float = Field(1.0, gt=0)
    """Times BIC's price of a coefficient: more leaves fewer edges."""
    min_effect: float = Field(0.0, ge=0, lt=1)
    """A cause explains at least this share of what is left of its effect without it."""
    starts: int = Field(4, ge=1, le=1000)
    """Orders from which the search begins."""

    # confidence
    bootstrap: int = Field(0, ge=0, le=1000)
    """So many resamples, for the confidence of edges."""
    resampling: Literal["rows", "sums"] | None = None
    """What is drawn anew: rows by public weights, or the sums by their spread. Between parties each resample of rows is
    another release. None: rows in one place, sums between parties."""

    # who opens what
    encryption: Literal["bfv", "none"] = "bfv"
    receiver: Literal["validator", "all"] = "validator"
    """Who is sent the sums: a validator without columns, or every party."""
    reveal: Literal["all", "own"] = "all"
    """What a party is sent of the graph: all of it, or the edges that touch its own columns."""
    epsilon: float | None = Field(None, gt=0)
    """Differential privacy of a row in the sums."""
    delta: float = Field(1e-5, gt=0, lt=1)
    clip: float | None = Field(None, gt=0)
    """With `epsilon`: the largest norm of a party's part of a row. None: by the columns, so that few rows are cut."""
    budget: float | None = Field(None, gt=0)
    """The ε that all releases of the same rows may spend together. None: there is one release."""
    value_bits: int = Field(12, ge=1, le=20)
    """Fractional bits of a feature; fewer where sums over many rows would not fit."""
    rows_a_function: int | None = Field(None, ge=1, le=1_000_000)
    """Rows for each function of two parties at least. None: 10, and 25 where every party opens the sums. 10 protect
    rows from a validator that keeps the sums to itself. Against one in league with a party, take 25 or more."""
    allow_small_n: bool = False
    """Sum even where rows are so few that sums tell rows."""

    @property
    def resampling_between(self) -> Literal["rows", "sums"]:
        """What is drawn anew between parties."""
        return self.resampling or "sums"
