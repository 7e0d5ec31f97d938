"""The page of the demo: what a partner reads in split and in blind training, and a causal graph, with the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from veracausa.data.causal import edges_between
from veracausa.discovery.edge_table import read_rows
from veracausa.report.audit_figures import kept_pictures, picture_strip
from veracausa.report.graph_figures import compared, graph_svg, legend
from veracausa.report.page import format_bytes, format_score, format_seconds, render, write_page
from veracausa.runs.record import mapping, read_run

SHOWN = 10
"""Pictures in a line, drawn at random by the audit; the best read ones alone would flatter the attacker."""


@dataclass(frozen=True)
class DemoRead:
    """What partners read, as shares of what a guess misses; None where nobody attacked."""

    payloads: float | None
    """Of a training picture, from the payloads of split training."""
    sums: float | None
    """Of a training picture, from the sums that blind training opens."""
    scores: float | None
    """Of a predicted picture, from the scores that blind training opens."""


def demo_read(split: Path, blind: Path) -> DemoRead:
    """The figures of two audited runs."""
    return DemoRead(
        read_run(split).leakage,
        read_run(blind).read_of("training"),
        read_run(blind).read_of("predicted"),
    )


def demo_verdict(read: DemoRead) -> str:
    """What the two ways of training are worth, in one sentence."""
    if read.payloads is None or read.sums is None:
        return "Verdict: unknown, because an attack did not end."
    low, high = _percent(read.sums), _percent(read.payloads)
    both = f"{high} of the training pictures in split training, and {low} in blind training"
    if read.sums < read.payloads:
        return f"Verdict: a partner reads {both}."
    return f"Verdict: blind training did not protect here, because a partner reads {both}."


def demo_rows(split: Path, blind: Path) -> list[tuple[str, str, str]]:
    """What differs between the two runs: name, split, blind."""
    read, runs = demo_read(split, blind), [read_run(split), read_run(blind)]
    count = mapping(runs[1].summary.get("blind_training")).get("numbers")
    scores = [format_score("accuracy", run.scores["accuracy"]) if "accuracy" in run.scores else "?" for run in runs]
    sent = [format_bytes(run.bytes_sent) for run in runs]
    times = [format_seconds(run.seconds or 0.0) for run in runs]
    return [
        ("test accuracy", scores[0], scores[1]),
        ("training pictures opened", "all, in every epoch", "none: sums over all of them"),
        ("read of a training picture", _percent(read.payloads), _percent(read.sums)),
        ("opened of a predicted picture", "its payload", "scores" if count is None else f"{count} numbers"),
        ("read of a predicted picture", _percent(runs[0].read_of("predicted")), _percent(read.scores)),
        ("sent, all parties", sent[0], sent[1]),
        ("time to train", times[0], times[1]),
    ]


def write_demo_page(split: Path, blind: Path, graph: Path, out: Path) -> Path:
    """Write the page beside the three runs, and return its path."""
    page = render(
        "demo.html.j2",
        verdict=demo_verdict(demo_read(split, blind)),
        training=_training_wall(split, blind),
        predicted=_wall(blind, "score_decoder", "what its partner reads from the scores"),
        rows=demo_rows(split, blind),
        shown=SHOWN,
        **_graph(graph),
        pages=[
            (name, f"{run.name}/report.html") for name, run in (("split", split), ("blind", blind), ("graph", graph))
        ],
    )
    return write_page(out, page)


def graph_sentence(graph: Path) -> str:
    """How the graph stands to the true one, in one sentence."""
    summary = read_run(graph).summary
    told = _edges(graph)
    if told is None:
        return f"{summary.get('edges', 0)} edges were found."
    found, undirected, truth = told
    right = int((found & (truth | (undirected & truth.T))).sum())
    open_ends, wrong = int(undirected.sum()), int(found.sum()) - right
    sentence = f"{right} of the {int(truth.sum())} true edges were found"
    sentence += f", {open_ends} of them without a direction" if open_ends else ""
    return f"{sentence}, and {wrong or 'no'} wrong one{'' if wrong == 1 else 's'}."


def _training_wall(split: Path, blind: Path) -> list[tuple[str, Markup]]:
    """The same training pictures, as read from payloads and as read from sums."""
    payloads, sums = _whole(split, "inverse"), _whole(blind, "sum_regression")
    if payloads is None or sums is None:
        return []
    common = [at for at in payloads["positions"].tolist() if at in set(sums["positions"].tolist())][:SHOWN]
    lines = [
        ("the training picture", payloads, "truth"),
        ("split training: what its partner reads", payloads, "guess"),
        ("blind training: what its partner reads", sums, "guess"),
        ("a guess from the label alone", payloads, "blind"),
    ]
    return [(what, _line(source, kind, common)) for what, source, kind in lines]


def _wall(run: Path, attack: str, words: str) -> list[tuple[str, Markup]]:
    found = _whole(run, attack)
    if found is None:
        return []
    first = found["positions"].tolist()[:SHOWN]
    lines = [("the predicted picture", "truth"), (words, "guess"), ("a guess from the label alone", "blind")]
    return [(what, _line(found, kind, first)) for what, kind in lines]


def _whole(run: Path, attack: str) -> Mapping[str, Any] | None:
    """The pictures that an attack kept, with the parties' strips side by side again; each was read by itself."""
    files = sorted((run / "attacks" / attack).glob("pictures-*.safetensors"))
    parts = [kept_pictures(run / "attacks" / attack, path.stem.removeprefix("pictures-")) for path in files]
    known = [part for part in parts if part is not None]
    if not known or any(len(part["positions"]) != len(known[0]["positions"]) for part in known):
        return None
    if any((part["positions"] != known[0]["positions"]).any() for part in known):
        return None
    joined = {name: np.concatenate([part[name] for part in known], axis=3) for name in ("truth", "guess", "blind")}
    return {"positions": known[0]["positions"], **joined}


def _line(found: Mapping[str, Any], kind: str, positions: Sequence[int]) -> Markup:
    places = {int(position): i for i, position in enumerate(found["positions"])}
    pictures = found[kind][[places[position] for position in positions]]
    return Markup(picture_strip(pictures, len(positions)))


def _graph(path: Path) -> dict[str, Any]:
    run = read_run(path)
    columns = {name: list(p["columns"]) for name, p in mapping(run.summary.get("parties")).items() if "columns" in p}
    names = [name for held in columns.values() for name in held]
    owner = [at for at, held in enumerate(columns.values()) for _ in held]
    told = _edges(path)
    if told is None:
        return {"graph": None, "graph_words": "", "graph_legend": "", "parties": []}
    found, undirected, truth = told
    strengths = np.zeros(found.shape)
    for row in read_rows(path / "edges.csv"):
        strengths[names.index(row["cause"]), names.index(row["effect"])] = row["strength"]
    drawn = compared(found, strengths, truth, undirected)
    kinds = Counter(edge.kind for edge in drawn)
    kinds += Counter("directed" if edge.directed else "undirected" for edge in drawn if edge.kind != "missing")
    return {
        "graph": Markup(graph_svg(names, owner, drawn, "The causal graph")),
        "graph_words": graph_sentence(path),
        "graph_legend": Markup(legend(kinds)),
        "parties": [(name, at + 1, held) for at, (name, held) in enumerate(columns.items())],
    }


def _edges(path: Path) -> tuple[Any, Any, Any] | None:
    """Found, found without a direction, and true, in the order of the parties' columns; None without a true graph."""
    summary = read_run(path).summary
    true_edges = summary.get("true_edge_list")
    if true_edges is None:
        return None
    names = [name for p in mapping(summary.get("parties")).values() for name in mapping(p).get("columns", ())]
    rows = read_rows(path / "edges.csv")
    lines = [(row["cause"], row["effect"]) for row in rows if row.get("directed") == "no"]
    return (
        edges_between([(row["cause"], row["effect"]) for row in rows], names, "edges.csv"),
        edges_between(lines, names, "edges.csv"),
        edges_between([(a, b) for a, b in true_edges], names, "truth"),
    )


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{100 * share:.0f} %"
