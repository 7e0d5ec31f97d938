"""The page of a discovery: the graph drawn, how sure it is, what was sent and what was protected."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from veracausa.atomic import as_written
from veracausa.data.causal import edges_between
from veracausa.discovery.edge_table import read_rows
from veracausa.report.discovery_sections import (
    BREAKS,
    assumed,
    candidate_rows,
    certain,
    effect_rows,
    explained_rows,
    kept_because,
    open_for_good,
    receivers,
    saw,
    tells_more,
    uncertain,
)
from veracausa.report.figures import Chart, Curve, bytes_svg, chart_svg
from veracausa.report.graph_figures import COLOURS, DrawnEdge, compared, graph_svg, heat_map_svg, legend
from veracausa.report.opening import opening_of_discovery
from veracausa.report.page import format_bytes, format_seconds, render, write_page
from veracausa.runs.folder import read_lines
from veracausa.runs.record import RunRecord, mapping, number, read_run

IN_WORDS = {
    "key": "public keys",
    "moment_query": "encrypted functions of rows",
    "moment_answer": "encrypted sums",
    "moment_share": "shares of sums",
    "sums_opened": "opened sums",
    "sums_found": "what was found",
    "first share": "first shares of weights",
}
"""What kinds of messages are called in the figure; all others by their own names."""
CHARTS = {"loss": "Loss", "acyclicity": "How far from acyclic"}


def write_discovery_page(path: Path) -> Path:
    """Write `report.html` into the folder of a discovery, and return its path."""
    run = read_run(Path(path))
    summary = run.summary
    graph = drawn_graph(run)
    names, strengths, rows, drawn = graph.names, graph.strengths, graph.rows, graph.drawn
    colours = [graph.owner.get(name, 0) for name in names]
    by_kind = _bytes_by_kind(run.path)
    ways = Counter("directed" if edge.directed else "undirected" for edge in drawn if edge.kind != "missing")
    page = render(
        "discovery.html.j2",
        run=run,
        summary=summary,
        opening=opening_of_discovery(summary, discovery_headline(summary, scored=False), beside_truth(summary)),
        empty=empty_graph_sentence(summary),
        key_numbers=discovery_numbers(summary),
        graph=Markup(graph.svg),
        legend=Markup(legend(Counter(edge.kind for edge in drawn) + ways)),
        colour={column: at % COLOURS + 1 for column, at in graph.owner.items()},
        parties=[(name, at % COLOURS + 1, columns) for at, (name, columns) in enumerate(graph.parties.items())],
        heat_map=Markup(heat_map_svg(names, strengths, graph.found, graph.truth, "Strength of every possible edge")),
        all_strengths=bool((strengths * ~graph.found).any()),
        charts=[Markup(chart_svg(chart)) for chart in _charts(run)],
        rows=rows,
        missing=graph.missing,
        truth=graph.truth is not None,
        bytes_figure=Markup(bytes_svg(by_kind)) if by_kind else None,
        sent=_sent(run),
        more=tells_more(summary),
        certain=certain(rows, summary),
        uncertain=uncertain(rows, summary),
        effects=effect_rows(rows),
        explained=explained_rows(summary, rows),
        assumed=assumed(summary),
        open_for_good=open_for_good(summary),
        breaks=BREAKS,
        candidates=_candidates(summary, names, colours),
        kept_because=kept_because(summary),
        privacy=mapping(summary.get("privacy")),
        receivers=receivers(summary),
        in_one_place=sum("messages" in party for party in mapping(summary.get("parties")).values()) != 1,
    )
    return write_page(run.path / "report.html", page)


@dataclass(frozen=True)
class DrawnGraph:
    """The graph of a discovery as its folder says it, and as it is drawn."""

    names: tuple[str, ...]
    strengths: NDArray[np.float64]
    found: NDArray[np.bool_]
    truth: NDArray[np.bool_] | None
    parties: Mapping[str, list[str]]
    drawn: Sequence[DrawnEdge]
    rows: list[dict[str, Any]]
    """Of `edges.csv`, each with the kind of its edge."""

    @property
    def owner(self) -> dict[str, int]:
        """Column -> which party's it is."""
        return {column: at for at, columns in enumerate(self.parties.values()) for column in columns}

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Edges of the true graph that were not found."""
        return [(self.names[edge.cause], self.names[edge.effect]) for edge in self.drawn if edge.kind == "missing"]

    @property
    def svg(self) -> str:
        colours = [self.owner.get(name, 0) for name in self.names]
        return graph_svg(self.names, colours, self.drawn, "The causal graph")


def drawn_graph(run: RunRecord) -> DrawnGraph:
    """The graph that a discovery's folder holds."""
    summary = run.summary
    names, strengths = _matrix(run.path / "strengths.csv")
    rows = read_rows(run.path / "edges.csv")
    found = edges_between([(row["cause"], row["effect"]) for row in rows], names, "edges.csv")
    open_ends = [(row["cause"], row["effect"]) for row in rows if row.get("directed") == "no"]
    undirected = edges_between(open_ends, names, "edges.csv")
    true_edges = summary.get("true_edge_list")
    truth = edges_between([(a, b) for a, b in true_edges], names, "truth") if true_edges is not None else None
    parties = {name: list(p["columns"]) for name, p in mapping(summary.get("parties")).items() if "columns" in p}
    drawn = compared(found, strengths, truth, undirected)
    kinds = {(names[edge.cause], names[edge.effect]): edge.kind for edge in drawn}
    rows = [{**row, "kind": kinds[row["cause"], row["effect"]]} for row in rows]
    return DrawnGraph(names, strengths, found, truth, parties, drawn, rows)


def discovery_headline(summary: Mapping[str, Any], scored: bool = True) -> str:
    """The result in one sentence; `scored`: with how near it is to a true graph, where there is one."""
    edges, attributes = summary.get("edges", 0), summary.get("attributes", 0)
    parties = [p for p in mapping(summary.get("parties")).values() if "columns" in p]
    among = f"{attributes} attributes of {len(parties)} parties" if len(parties) > 1 else f"{attributes} attributes"
    open_ends = len(summary.get("undirected") or ())
    what = "edge" if open_ends else "causal edge"
    sentence = f"{edges} {what}{'' if edges == 1 else 's'} among {among}"
    if open_ends:
        sentence += f", {edges - open_ends or 'none'} of them with a direction"
    sentence += f", from {summary.get('rows', 0):,} rows"
    told = _score(summary) if scored else ""
    return f"{sentence}: {told}" if told else f"{sentence}."


def beside_truth(summary: Mapping[str, Any]) -> str:
    """How near the graph is to the true one, in a sentence of its own; empty where none was given."""
    told = _score(summary)
    return f"Beside the true graph: {told}" if told else ""


def _score(summary: Mapping[str, Any]) -> str:
    if summary.get("shd") is None:
        return ""
    f1, partial, skeleton = (number(summary.get(name)) for name in ("f1", "partial_f1", "skeleton_f1"))
    if summary.get("undirected") and partial is not None and skeleton is not None:
        return (
            f"F1 {skeleton:.2f} without directions and {partial:.2f} with them, where an edge without one "
            "counts a half."
        )
    score = f"SHD {summary['shd']} to the true graph (an empty graph: {summary['empty_graph_shd']})"
    return score + (f", F1 {f1:.2f}." if f1 is not None else ".")


def empty_graph_sentence(summary: Mapping[str, Any]) -> str:
    """What was tried, where no edge was found."""
    if summary.get("model"):
        return "No edge was found: no column explains enough of another one to be worth its coefficients."
    threshold = number(summary.get("threshold"))
    strongest = [f"{row['cause']} → {row['effect']} {row['strength']:.2f}" for row in summary.get("strongest") or ()]
    if threshold is None or not strongest:
        return "No edge was found: no strength is above 0, or none was told here."
    rule = f" ({summary['threshold_rule']})" if summary.get("threshold_rule") else ""
    return (
        f"No edge was found: the threshold is {threshold:.2f}{rule}, and the strongest of all possible edges are "
        f"{', '.join(strongest)}. `--set threshold=NUMBER` sets another one."
    )


def discovery_numbers(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader looks for first, as (name, value)."""
    shown = [("edges", str(summary.get("edges", 0)))]
    open_ends = bool(summary.get("undirected"))
    # The directions of one DAG of the class are a matter of luck.
    scores = {"skeleton_f1": "F1 without directions", "partial_f1": "F1, open ones half"}
    if not open_ends:
        scores = {"f1": "F1", "intra_party_f1": "F1 inside parties", "inter_party_f1": "F1 between parties"}
    for name, title in scores.items():
        if (value := number(summary.get(name))) is not None:
            shown.append((title, f"{value:.2f}"))
    if summary.get("shd") is not None:
        shown.append(("SHD, open ones as drawn" if open_ends else "SHD", str(summary["shd"])))
    if (likelihood := number(summary.get("held_out_log_likelihood"))) is not None:
        shown.append(("held-out log-likelihood", f"{likelihood:.2f}".replace("-", "−")))
    if (seconds := number(summary.get("seconds"))) is not None:
        shown.append(("time", format_seconds(seconds)))
    if summary.get("bytes_sent"):
        shown.append(("sent, all parties", format_bytes(summary["bytes_sent"])))
    return shown


def _candidates(summary: Mapping[str, Any], names: Sequence[str], colours: Sequence[int]) -> list[dict[str, Any]]:
    """What was compared, each with its graph where its edges were written down."""
    found = candidate_rows(summary)
    for one in found:
        pairs = [(a, b) for a, b in one.get("edge_list") or ()]
        if pairs:
            edges = edges_between(pairs, names, "summary.json")
            lines = edges_between([(a, b) for a, b in one.get("undirected") or ()], names, "summary.json")
            drawn = compared(edges, np.zeros(edges.shape), None, lines | lines.T)
            one["graph"] = Markup(graph_svg(names, colours, drawn, f"The graph of {one['method']}"))
    return found


def _charts(run: RunRecord) -> list[Chart]:
    charts = []
    for name, title in CHARTS.items():
        points = [
            (float(record["epoch"]), value) for record in run.epochs if (value := number(record.get(name))) is not None
        ]
        if name == "acyclicity":  # it is of the search alone
            points = points[: sum(bool(record.get("weight")) for record in run.epochs)]
        if len(points) > 1 and any(value for _, value in points):
            charts.append(Chart(title, [Curve(name, points, series=0)]))
    return charts


def _sent(run: RunRecord) -> list[dict[str, Any]]:
    """Every party with what it holds, and what it sent where messages were sent."""
    rows = []
    for name, party in mapping(run.summary.get("parties")).items():
        rows.append(
            {
                "name": name,
                "columns": party.get("columns"),
                "messages": party.get("messages"),
                "bytes": party.get("bytes_sent"),
                "saw": saw(run.summary, name, "columns" in party),
            }
        )
    return rows


def _bytes_by_kind(path: Path) -> dict[str, Counter[str]]:
    """Party -> kind of message -> bytes, from the parties' own ledgers."""
    by_kind: dict[str, Counter[str]] = {}
    # Of a run in one place all parties' lie in a folder of their own; a site has its own party's alone.
    for ledger in sorted([*path.glob("federation/parties/*/ledger.jsonl"), *path.glob("parties/*/ledger.jsonl")]):
        by_kind[ledger.parent.name] = Counter()
        for line in read_lines(ledger):
            kind = str(line["kind"])
            by_kind[ledger.parent.name][IN_WORDS.get(kind, kind.replace("_", " "))] += int(line["bytes"])
    # There are as many colours as a reader can tell apart.
    largest = {kind for kind, _ in sum(by_kind.values(), Counter[str]()).most_common(COLOURS - 1)}
    for party, kinds in by_kind.items():
        rest = sum(size for kind, size in kinds.items() if kind not in largest)
        shown = {kind: size for kind, size in kinds.items() if kind in largest}
        by_kind[party] = Counter(shown | ({"all other kinds": rest} if rest else {}))
    return by_kind


def _matrix(path: Path) -> tuple[tuple[str, ...], Any]:
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return tuple(map(as_written, header[1:])), np.array([[float(value) for value in row[1:]] for row in rows])
