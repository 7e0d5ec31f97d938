"""What a discovery leaves in its folder, for readers and for other programs.

A method may leave more than a graph: edges without a direction, effects, how much of a column is explained. What it
does not leave is left out here, so that every method and every plug-in writes the same files.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.atomic import atomic_write, safe
from veracausa.data.causal import CausalData
from veracausa.data.causal.parties import owners
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.edge_table import EDGE_FIELDS, finite, found_edges
from veracausa.discovery.graphs import is_acyclic, revealed
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.vfedcd.diagnostics import FIGURES
from veracausa.discovery.party_columns import ONE_PARTY
from veracausa.discovery.residual_tests import NOT_HERE, ResidualTest, rejections, summary_of
from veracausa.metrics.cpdag import cpdag_scores
from veracausa.metrics.graphs import graph_scores
from veracausa.runs import folder
from veracausa.runs.machine import describe_machine

Parties = dict[str, tuple[str, ...]]


def write_found(
    path: Path,
    job: DiscoveryJob,
    method: CausalDiscovery,
    data: CausalData,
    parties: Parties,
    seconds: float,
    tests: Sequence[ResidualTest] | None = None,
) -> None:
    """Everything that a reader or another program may want of the graph. `tests`: of residuals; None: no one place has
    the rows."""
    import networkx

    from veracausa import __version__

    names = data.names
    held = parties or {ONE_PARTY: names}
    rows = found_edges(method, names, held)
    atomic_write(path / "edges.csv", _csv(EDGE_FIELDS, ([row[field] for field in EDGE_FIELDS] for row in rows)))
    strengths = ([name, *map(float, row)] for name, row in zip(names, method.strengths_, strict=True))
    atomic_write(path / "strengths.csv", _csv(("cause", *names), strengths))
    for party, own in revealed(rows, tuple(parties), getattr(method, "reveal", "all")).items():
        (path / "parties" / party).mkdir(parents=True, exist_ok=True)
        table = _csv(EDGE_FIELDS, ([row[field] for field in EDGE_FIELDS] for row in own))
        atomic_write(path / "parties" / party / "edges.csv", table)
    graph = method.causal_graph_
    for row in rows:
        told = {name: finite(row[name]) for name in ("confidence", "direction_confidence", "margin")}
        graph.edges[row["cause"], row["effect"]].update({name: x for name, x in told.items() if x is not None})
    for party, columns in parties.items():
        graph.add_nodes_from(columns, party=party)
    buffer = io.BytesIO()
    networkx.write_graphml(graph, buffer)
    atomic_write(path / "graph.graphml", buffer.getvalue())
    lines = [{"event": "epoch", "epoch": at + 1, **row} for at, row in enumerate(method.history_)]
    atomic_write(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    engine = getattr(method, "engine_", "one place")
    environment = {"veracausa": __version__, **describe_machine(cuda=False), "engine": engine, "seed": job.seed}
    folder.write_json(path / "environment.json", environment)
    folder.write_json(path / "summary.json", _summary(job, method, data, parties, rows, seconds, tests))


def _summary(
    job: DiscoveryJob,
    method: CausalDiscovery,
    data: CausalData,
    parties: Parties,
    rows: Sequence[Mapping[str, Any]],
    seconds: float,
    tests: Sequence[ResidualTest] | None,
) -> dict[str, Any]:
    adjacency = method.adjacency_matrix_
    sent = getattr(method, "sent_", {})
    names = data.names
    summary: dict[str, Any] = {
        "method": job.method,
        "edges": len(rows),
        "acyclic": is_acyclic(adjacency),
        "threshold": method.threshold_,
        "threshold_rule": getattr(method, "rule_", None),
        "strongest": _strongest(method, names),
        "attributes": len(names),
        "rows": len(data.values),
        "seconds": round(seconds, 3),
        "engine": getattr(method, "engine_", None),
        "encryption": getattr(method, "encryption", None) if getattr(method, "engine_", "") == "federated" else None,
        "computing": getattr(method, "computing_", None),
        "reveal": getattr(method, "reveal", "all"),
        "noise": getattr(method, "noise_", None),
        "bootstrap": getattr(method, "bootstrap", 0),
        "model": getattr(method, "model_", None),
        "assumes": getattr(method, "assumes_", None),
        "undirected": [[row["cause"], row["effect"]] for row in rows if row["directed"] == "no"],
        "effects": finite(getattr(method, "effects_", [])),
        "explained": _by_column(getattr(method, "explained_", None), names),
        "hidden_causes": _joined(method, names),
        "compared": finite(getattr(method, "compared_", None)),
        "announced": finite(getattr(method, "announced_", None)),
        "privacy": _privacy(method, parties),
        "held_out_log_likelihood": getattr(method, "held_out_log_likelihood_", None),
        "parties": {party: {"columns": list(columns), **sent.get(party, {})} for party, columns in parties.items()}
        | {name: figures for name, figures in sent.items() if name not in parties},
        "bytes_sent": sum(figures.get("bytes_sent", 0) for figures in sent.values()),
        "residuals": summary_of(tests),
        "warnings": [*getattr(method, "warnings_", ()), *rejections(tests or ())],
        "notes": list(dict.fromkeys([*data.notes, *method.notes_, *([NOT_HERE] if tests is None else [])])),
    }
    if (found := getattr(method, "figures_", None)) is not None and np.isfinite(found).any():
        summary["diagnostics"] = {
            name: {what: round(float(value), 4) for what, value in zip(FIGURES, row, strict=True) if np.isfinite(value)}
            for name, row in zip(names, found, strict=True)
        }
    if data.truth is not None:
        holders = owners(parties, names) if parties else None
        summary |= graph_scores(data.truth, adjacency, holders)
        if summary["undirected"]:
            open_ends = cpdag_scores(data.truth, adjacency, method.undirected_)
            summary |= {name: open_ends[name] for name in ("partial_f1", "uncompelled")}
        summary["true_edge_list"] = [[names[i], names[j]] for i, j in np.argwhere(data.truth)]
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in summary.items()}


def _by_column(values: Any, names: Sequence[str]) -> dict[str, float | None] | None:
    if values is None:
        return None
    return {
        name: None if math.isnan(value) else round(float(value), 4) for name, value in zip(names, values, strict=True)
    }


def _joined(method: CausalDiscovery, names: Sequence[str]) -> list[dict[str, Any]]:
    """Pairs without an edge that a cause outside the table may join."""
    found = getattr(getattr(method, "found_", None), "joined", ())
    return [{"columns": [names[i], names[j]], "correlation": round(float(r), 4)} for i, j, r in found]


def _privacy(method: CausalDiscovery, parties: Parties) -> dict[str, Any] | None:
    """What was opened to whom, where parties opened sums; None: nothing was sent, or features of rows alone were."""
    receiver = getattr(method, "receiver", None)
    if receiver is None or getattr(method, "engine_", None) != "federated":
        return None
    told: dict[str, Any] = {
        "opened": "sums over rows",
        "opened_to": list(parties) if receiver == "all" else [str(receiver)],
    }
    if getattr(method, "opens_rows", False):
        told |= {"opened": "sums over rows, and features of every row", "features_opened_to": list(parties)}
    told |= {name: getattr(method, name, None) for name in ("encryption", "epsilon", "delta", "reveal")}
    return told | {"resamples": getattr(method, "bootstrap", 0), "link": getattr(method, "link", None)}


STRONGEST = 3


def _strongest(method: CausalDiscovery, names: Sequence[str]) -> list[dict[str, Any]]:
    """The strongest of all possible edges, in the graph or not."""
    order = np.argsort(-method.strengths_, axis=None, kind="stable")[:STRONGEST]
    ends = zip(*np.unravel_index(order, method.strengths_.shape), strict=True)
    found = [(names[cause], names[effect], float(method.strengths_[cause, effect])) for cause, effect in ends]
    return [{"cause": a, "effect": b, "strength": round(strength, 4)} for a, b, strength in found if strength > 0]


def _csv(header: Sequence[str], rows: Any) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(safe, header))
    for row in rows:
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else safe(value) for value in row])
    return text.getvalue().encode()
