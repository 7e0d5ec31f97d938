"""Which party holds which columns of an estimator's table, and the edges with whose columns they join."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.parties import owners
from veracausa.discovery.base import CausalDiscovery, column_named
from veracausa.discovery.graphs import edge_rows, revealed
from veracausa.errors import InputError

if TYPE_CHECKING:
    import networkx

ONE_PARTY = "party"
"""What the only party is called."""


def held_columns(parties: Mapping[str, Sequence[Any]] | None, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each party's columns by name; every column has one party."""
    if parties is None:
        return {ONE_PARTY: tuple(names)}
    for party, columns in parties.items():
        if not re.fullmatch(r"\w[\w .-]*", str(party)):
            raise InputError(f"parties: {party!r} is no name for a party; use letters, digits, '_', '-' and '.'")
        if isinstance(columns, str) or not len(columns):
            raise InputError(f"parties: {party!r} needs a list of columns, one at least")
    held = {str(party): tuple(column_named(column, names) for column in columns) for party, columns in parties.items()}
    owners(held, names)
    return held


class FederatedDiscovery(CausalDiscovery):
    """A method whose columns several parties may hold, with its graph as a table of edges and as one a party."""

    federated: ClassVar[bool] = True
    parties_: dict[str, tuple[str, ...]]
    confidence_: Array | None

    def engine_for(self, count: int, given: bool) -> str:
        """How a fit of so many parties is run; says what can not be."""
        raise NotImplementedError

    def revealing(self) -> Literal["all", "own"]:
        """What a party is sent of the graph."""
        return "all"

    @property
    def edges_(self) -> list[dict[str, Any]]:
        """The edges, strongest first: cause, effect, strength, confidence, and whose columns they are."""
        names = [str(name) for name in self.feature_names_in_]
        return edge_rows(self.adjacency_matrix_, self.strengths_, self.confidence_, names, self.parties_)

    @property
    def party_edges_(self) -> dict[str, list[dict[str, Any]]]:
        """What each party is sent of the graph, by `reveal`."""
        return revealed(self.edges_, tuple(self.parties_), self.revealing())

    @property
    def causal_graph_(self) -> networkx.DiGraph:
        """The DAG with the columns' names; a node has its `party`, an edge its `strength` and its `confidence`."""
        graph = super().causal_graph_
        for party, columns in getattr(self, "parties_", {}).items():
            for column in columns:
                graph.nodes[column]["party"] = party
        if (confidence := getattr(self, "confidence_", None)) is not None:
            names = [str(name) for name in self.feature_names_in_]
            for cause, effect in np.argwhere(self.adjacency_matrix_):
                graph.edges[names[cause], names[effect]]["confidence"] = float(confidence[cause, effect])
        return graph
