"""A learned graph for other packages: networkx, dowhy and pgmpy.

Some edges may have no direction: the data do not tell which end is the cause. Other packages mostly take a DAG, which
has no such edge. So these edges are refused by name unless the caller says what becomes of them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from veracausa.errors import InputError

if TYPE_CHECKING:
    import networkx

Undirected = Literal["refuse", "member", "drop"]
"""What becomes of edges without a direction: they are refused by name; they point as in the one DAG that the search
stands for, which is one of several that fit equally well; they are left out."""
CHOICES = ("refuse", "member", "drop")

EFFECT = ("slope", "slope_in_units", "share", "shape")
"""What an edge of the graph says of its effect, where the method tells effects."""
SHOWN = 5
"""So many edges are named in a sentence."""


class GraphExports:
    """What a run and a fitted estimator offer to other packages. Both have a graph, `exported_graph`."""

    def exported_graph(self) -> networkx.DiGraph:
        raise NotImplementedError

    def to_networkx(self, undirected: Undirected | Literal["mark"] = "mark") -> networkx.DiGraph:
        """The graph for networkx. An edge has its `strength`, and its effect where the method tells it.

        `mark` leaves an edge without a direction in, with the attribute `directed = "no"`. `refuse`, `member` and
        `drop` are as in `to_dowhy`.
        """
        graph = self.exported_graph()
        return graph if undirected == "mark" else as_dag(graph, undirected)

    def to_dowhy(self, undirected: Undirected = "refuse") -> str:
        """The graph as GML, which dowhy takes: `CausalModel(data, treatment, outcome, graph=run.to_dowhy())`.

        undirected: what becomes of edges without a direction. `refuse`: they are an error that names them. `member`:
            they point as in one DAG of those that fit equally well. `drop`: they are left out.
        """
        return as_gml(as_dag(self.exported_graph(), undirected))

    def to_pgmpy(self, undirected: Undirected | Literal["pdag"] = "refuse") -> Any:
        """A `DAG` of pgmpy, or with `undirected = "pdag"` a `PDAG` that keeps edges without a direction as they are.

        `refuse`, `member` and `drop` are as in `to_dowhy`.
        """
        graph = self.exported_graph()
        base = _package("pgmpy.base", "pgmpy")
        if undirected == "pdag":
            open_ends = undirected_edges(graph)
            made = base.PDAG([edge for edge in graph.edges if edge not in set(open_ends)], open_ends)
        else:
            made = base.DAG(list(as_dag(graph, undirected).edges))
        made.add_nodes_from([name for name in graph.nodes if name not in made])
        return made


def undirected_edges(graph: networkx.DiGraph) -> list[tuple[str, str]]:
    """The edges whose direction is not told, each once."""
    return [(a, b) for a, b, directed in graph.edges(data="directed", default="yes") if directed == "no"]


def as_dag(graph: networkx.DiGraph, undirected: str = "refuse") -> networkx.DiGraph:
    """The graph with a direction at every edge, by the caller's choice."""
    if undirected not in CHOICES:
        raise InputError(f"undirected = {undirected!r}: is none of {', '.join(CHOICES)}; take one of them")
    open_ends = undirected_edges(graph)
    if open_ends and undirected == "refuse":
        named = ", ".join(f"{a} — {b}" for a, b in open_ends[:SHOWN])
        more = f" and {len(open_ends) - SHOWN} more" if len(open_ends) > SHOWN else ""
        raise InputError(
            f"undirected: the data do not tell which way {named}{more} point, and a DAG needs that; take "
            "undirected='member' for one DAG of those that fit equally well, or 'drop' to leave these edges out"
        )
    made = graph.copy()
    if undirected == "drop":
        made.remove_edges_from(open_ends)
    for _, _, values in made.edges(data=True):
        values.pop("directed", None)
    return made


def with_effects(
    graph: networkx.DiGraph, undirected: Iterable[tuple[str, str]], effects: Iterable[Mapping[str, Any]]
) -> networkx.DiGraph:
    """The graph with what is told of its edges as attributes; edges without a direction get `directed = "no"`."""
    for effect in effects:
        ends = effect["cause"], effect["effect"]
        if graph.has_edge(*ends):
            told = {name: effect.get(name) for name in EFFECT}
            graph.edges[ends].update({name: value for name, value in told.items() if value is not None})
    for ends in undirected:
        if graph.has_edge(*ends):
            graph.edges[ends]["directed"] = "no"
    return graph


_TAKEN_FOR_A_FILE = re.compile(r"\.(txt|dot|gml)|graph\s*\{|[\r\n]")
"""In a name: dowhy looks for these in the whole text, and then takes it for a path or for another format."""


def as_gml(graph: networkx.DiGraph) -> str:
    """The graph as a GML text of nodes and edges alone."""
    import networkx

    for name in graph.nodes:
        if _TAKEN_FOR_A_FILE.search(str(name)):
            raise InputError(
                f"column {name!r}: dowhy takes a graph with such a name for a file; rename it, or give dowhy the "
                "networkx graph, to_networkx(undirected=…)"
            )
    bare = networkx.DiGraph()
    bare.add_nodes_from(graph.nodes)
    bare.add_edges_from(graph.edges)
    return "\n".join(networkx.generate_gml(bare))


def _package(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{name}: is not installed here; install it with pip install {name}") from None
