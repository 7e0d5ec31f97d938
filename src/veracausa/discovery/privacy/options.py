"""What may be chosen about noise: a guarantee by the gradients' noise, or the published rule, which gives none."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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


class LaplaceHeuristic(BaseModel):
    """The published noise on strengths. A heuristic: it gives no guarantee."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epsilon: float = Field(128.0, gt=0)
    """b = 1/ε: one entry, one look, and as if one row could change a strength by 1 at most, which nobody has shown."""
    rule: Literal["published", "sum"] = "published"
    """published: every party's Laplace noise, b scaled by the root of the number of parties, on the strengths in the
    acyclicity term. sum: parts on the shares of squared strengths that make one Laplace(b), which nobody knows."""
