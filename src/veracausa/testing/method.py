"""What every method of causal discovery must keep to, as one call: for our tests and for those who write plug-ins.

::

    from veracausa.testing import check_method

    def test_my_method():
        check_method(MyMethod, {"epochs": 5})
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from sklearn.base import clone

from veracausa.arrays import Array
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.methods import build, methods

ROWS = 200
NAMES = ("a", "b", "c", "d")
LIMIT, PATIENCE = 0.05, 30.0
"""Seconds that a fit is given, and those after which it has plainly not looked at the clock."""


def check_method(method: str | type[CausalDiscovery], settings: Mapping[str, Any] | None = None) -> None:
    """Raise `AssertionError`, with what is wrong, unless the method keeps to its contract.

    `method` is a registered name or a class. `settings` are parameters that make a fit short, by default the class's
    own `fast_settings`. The method is fitted three times, on a made-up table of four columns.
    """
    kind = methods.get(method) if isinstance(method, str) else method
    assert issubclass(kind, CausalDiscovery), f"{kind.__name__} is no CausalDiscovery; subclass it"
    assert (kind.__doc__ or "").strip(), f"{kind.__name__} has no docstring; say what it does in a sentence"
    chosen = dict(kind.fast_settings if settings is None else settings)

    def make(**more: Any) -> CausalDiscovery:
        given = {**chosen, **more}
        return build(method, **given) if isinstance(method, str) else kind(**given)

    _check_parameters(make)
    table = _table()
    found = _check_fit(make, table)
    _check_repeats(make, table, found)
    _check_constraints(make, table)


def _check_parameters(make: Callable[..., CausalDiscovery]) -> None:
    method = make(seed=3)
    params = method.get_params()
    assert clone(method).get_params() == params, "a clone has other parameters; let the dataclass write __init__"
    again = type(method)(**params)
    assert again.get_params() == params, "its own parameters do not make the same method again"
    left = sorted(name for name in vars(method) if name.endswith("_") and not name.startswith("_"))
    assert not left, f"{left[0]} is there before a fit; what ends in _ is what a fit leaves"


def _check_fit(make: Callable[..., CausalDiscovery], table: Array) -> CausalDiscovery:
    before, method = table.copy(), make(seed=3)
    params = {name: str(value) for name, value in method.get_params().items()}
    assert method.fit(table) is method, "fit must return the method itself"
    assert np.array_equal(table, before), "fit changed the table that it was given"
    after = {name: str(value) for name, value in method.get_params().items()}
    assert after == params, "fit changed the method's own parameters"
    d = len(NAMES)
    strengths, graph = method.strengths_, method.adjacency_matrix_
    assert strengths.shape == (d, d), f"strengths_ has shape {strengths.shape}, not (d, d)"
    assert np.isfinite(strengths).all(), "strengths_ holds values that are not numbers"
    assert (strengths >= 0).all(), "a strength is below 0"
    assert not strengths.diagonal().any(), "an attribute is its own cause"
    assert graph.shape == (d, d), f"adjacency_matrix_ has shape {graph.shape}, not (d, d)"
    assert graph.dtype == bool, "adjacency_matrix_ holds no booleans"
    assert is_acyclic(graph), "the graph has a cycle"
    lines = method.undirected_
    assert lines.shape == (d, d), f"undirected_ has shape {lines.shape}, not (d, d)"
    assert np.array_equal(lines, lines.T), "undirected_ is not symmetric"
    assert not (lines & ~(graph | graph.T)).any(), "undirected_ marks an edge that the graph does not have"
    assert isinstance(method.history_, list), "history_ is a list of mappings, one an epoch"
    assert all(isinstance(note, str) for note in method.notes_), "notes_ are sentences"
    return method


def _check_repeats(make: Callable[..., CausalDiscovery], table: Array, first: CausalDiscovery) -> None:
    again = make(seed=3).fit(pl.DataFrame(table, schema=list(NAMES)))
    assert np.array_equal(first.strengths_, again.strengths_), "the same seed gave other strengths, or a frame did"
    assert tuple(again.feature_names_in_) == NAMES, "feature_names_in_ are not the frame's columns"


def _check_constraints(make: Callable[..., CausalDiscovery], table: Array) -> None:
    constant = np.column_stack([table, np.ones(len(table))])
    frame = pl.DataFrame(constant, schema=[*NAMES, "same"])
    method = make(seed=3, required=[("d", "a")], forbidden=[("a", "b")], time_limit=LIMIT)
    began = time.monotonic()
    graph = method.fit(frame).adjacency_matrix_
    assert time.monotonic() - began < PATIENCE, "time_limit was not kept; ask time_is_up() in every step"
    assert graph[3, 0], "a required edge is missing"
    assert not graph[0, 1], "a forbidden edge is there"
    assert is_acyclic(graph), "with a required edge the graph has a cycle"
    assert not graph[4].any(), "a constant column has effects"
    assert not graph[:, 4].any(), "a constant column has causes"


def _table() -> Array:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, len(NAMES)))
    values[:, 1] = np.tanh(2 * values[:, 0]) + 0.3 * values[:, 1]
    values[:, 3] = values[:, 1] ** 2 + np.sin(2 * values[:, 2]) + 0.3 * values[:, 3]
    return values
