"""Columns to discover a causal graph in, with the true graph where it is known: one file a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from veracausa.arrays import Mask
from veracausa.data.files import data_folder
from veracausa.errors import InputError, wrong_value
from veracausa.registry import Options, Registry, did_you_mean


@dataclass(frozen=True)
class CausalData:
    """Rows and columns, what is known of their causes, and what was done to them."""

    values: NDArray[np.float64]
    """(n, d); nan where a value is missing."""
    names: tuple[str, ...]
    truth: NDArray[np.bool_] | None = None
    """(d, d), row = cause and column = effect; None: nobody knows."""
    notes: tuple[str, ...] = ()
    nominal: tuple[str, ...] = ()
    """Columns of three or more categories without an order; their values, 0, 1, 2, only name the categories."""

    def columns(self, kept: Sequence[int], note: str | None = None) -> CausalData:
        """These columns in this order; the true graph becomes the one that they induce."""
        index = np.asarray(kept, dtype=int)
        names = tuple(self.names[at] for at in index)
        return replace(
            self,
            values=self.values[:, index],
            names=names,
            truth=None if self.truth is None else self.truth[np.ix_(index, index)],
            notes=self.notes if note is None else (*self.notes, note),
            nominal=tuple(name for name in self.nominal if name in names),
        )

    def head(self, rows: int | None) -> CausalData:
        """At most so many rows, the first ones."""
        if rows is None or rows >= len(self.values):
            return self
        note = f"the first {rows} of {len(self.values)} rows"
        return replace(self, values=self.values[:rows], notes=(*self.notes, note))


class CausalOptions(Options):
    """What every source takes; a source adds its own settings."""

    seed: int = 0
    """For what is drawn: a graph, rows of a network. A file's rows do not depend on it."""


causal_data: Registry[Callable[..., CausalData]] = Registry(
    "causal data set", "veracausa.data.causal", old_groups=("veracausa.discovery.data",)
)


def load_causal(name: str, **settings: Any) -> CausalData:
    """The data of this name with these settings, `load_causal("sachs", graph=20)`."""
    load, options = causal_data.get(name), causal_data.options(name)
    return load(checked(options, name, settings))


def checked(options: type[Options], name: str, settings: dict[str, Any]) -> Options:
    """The settings as their model, or one sentence on the first that is wrong."""
    try:
        return options.model_validate({"name": name, **settings})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            raise InputError(f"{name}: {place}: no such setting{did_you_mean(place, options.model_fields)}") from None
        message = wrong_value(problem)
        raise InputError(f"{name}: {place}: {message} (got {problem.get('input')!r})") from None


def held(relative: str) -> Path:
    """The file at this path of the data folder."""
    path = data_folder() / relative
    if not path.is_file():
        raise InputError(
            f"{path.name} is missing (looked for {path}); set VERACAUSA_DATA to the folder with {relative}"
        )
    return path


def edges_between(pairs: Sequence[tuple[str, str]], names: Sequence[str], where: str) -> NDArray[np.bool_]:
    """The (d, d) matrix of edges named by their columns."""
    position = {name: at for at, name in enumerate(names)}
    edges = np.zeros((len(names), len(names)), dtype=bool)
    for pair in pairs:
        for name in pair:
            if name not in position:
                raise InputError(f"{where}: edge {pair[0]} -> {pair[1]}: no column {name!r}{did_you_mean(name, names)}")
        if pair[0] == pair[1]:
            raise InputError(f"{where}: edge {pair[0]} -> {pair[1]}: nothing is its own cause; remove it")
        edges[position[pair[0]], position[pair[1]]] = True
    return edges


def topological_order(adjacency: ArrayLike) -> list[int] | None:
    """The nodes with every cause before its effects, the lowest number first; None if there is a cycle."""
    edges = as_adjacency(adjacency)
    waiting = edges.sum(axis=0)
    ready, order = [int(node) for node in np.flatnonzero(waiting == 0)], []
    while ready:
        node = min(ready)
        ready.remove(node)
        order.append(node)
        for effect in np.flatnonzero(edges[node]):
            waiting[effect] -= 1
            if waiting[effect] == 0:
                ready.append(int(effect))
    return order if len(order) == len(edges) else None


def as_adjacency(matrix: ArrayLike, name: str = "adjacency") -> Mask:
    """A square matrix as booleans: True where an entry is not zero."""
    square = np.asarray(matrix)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise InputError(f"{name}: a graph is a square matrix, this has shape {square.shape}; give one row a column")
    return np.asarray(square != 0)
