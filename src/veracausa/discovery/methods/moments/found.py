"""What a search on sums finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask

Model = Literal["linear", "lingam", "additive"]
"""Straight lines and normal noise; straight lines and other noise; curves that add up."""

MODELS = {
    "linear": "straight lines with normal noise, which leave some directions open",
    "lingam": "straight lines with noise that is not normal, which tells directions",
    "additive": "curves that add up, with noise beside them",
}


@dataclass(frozen=True)
class SumsFound:
    """A graph over the columns, and what the sums say of it. Matrices are (d, d) with row = cause."""

    adjacency: Mask
    """A DAG: one of those that fit equally well."""
    undirected: Mask
    """Symmetric: edges whose direction the sums do not tell."""
    strengths: Array
    """The root of the share of an effect's variance that would be unexplained without the cause; 0 where no edge is."""
    slopes: Array
    """By how many deviations the effect rises when the cause rises by one, on average; nan of nominal columns."""
    bends: Array
    """The share of a cause's own contribution that is not straight."""
    margins: Array
    """By how many nats the graph is likelier than the best one with this edge turned around."""
    explained: Array
    """(d,): the share of each column's variance that its causes explain."""
    model: Model
    order: tuple[int, ...]
    scores: dict[str, float] = field(default_factory=dict)
    """Penalised log-likelihoods of the models that were compared, in nats."""
    joined: tuple[tuple[int, int, float], ...] = ()
    """Pairs without an edge whose residuals are correlated, with that correlation: a hidden cause, perhaps."""
    residual_variances: Array = field(default_factory=lambda: np.zeros(0))

    def ordered(self, order: Sequence[int]) -> SumsFound:
        """The same with columns in another order, given as positions in this one."""
        made: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, np.ndarray) and value.size:
                value = value[np.ix_(*[order] * value.ndim)]
            made[name] = value
        place = np.argsort(order)
        made["order"] = tuple(int(place[at]) for at in self.order)
        pairs = ((*sorted((int(place[i]), int(place[j]))), value) for i, j, value in self.joined)
        made["joined"] = tuple(sorted(pairs))
        return SumsFound(**made)

    def spread_out(self, kept: Sequence[int], d: int) -> SumsFound:
        """The same over d columns, of which only the kept ones took part. The others have no edges."""
        if len(kept) == d:
            return self
        made: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            made[name] = spread_out(value, kept, d) if isinstance(value, np.ndarray) and value.size else value
        made["order"] = (*(int(kept[at]) for at in self.order), *sorted(set(range(d)) - set(kept)))
        made["joined"] = tuple((int(kept[i]), int(kept[j]), value) for i, j, value in self.joined)
        return SumsFound(**made)

    def without(self, edges: Mask) -> SumsFound:
        """The same without these edges."""
        gone = edges | (edges.T & self.undirected)
        cut: dict[str, Any] = {
            name: np.where(gone, 0, getattr(self, name)) for name in ("strengths", "slopes", "bends", "margins")
        }
        return replace(self, adjacency=self.adjacency & ~gone, undirected=self.undirected & ~(gone | gone.T), **cut)

    def state(self) -> dict[str, Any]:
        """All of it as lists and numbers, for a message or a file."""
        made: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            made[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return made


def spread_out(part: NDArray[Any], kept: Sequence[int], d: int) -> NDArray[Any]:
    """An array over the kept columns as one over all d, with 0 elsewhere."""
    whole = np.zeros((d,) * part.ndim, dtype=part.dtype)
    whole[np.ix_(*[kept] * part.ndim)] = part
    return whole
