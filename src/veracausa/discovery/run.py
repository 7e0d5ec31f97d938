"""A discovery as a run folder: what was asked, what was found, and a page to read it on."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import create_model

from veracausa.discovery.base import CausalDiscovery, as_edges, as_table
from veracausa.discovery.baselines import build, methods
from veracausa.discovery.constraints import edge_constraints
from veracausa.discovery.data import CausalData, checked
from veracausa.discovery.data.parties import owners
from veracausa.discovery.edges import COLUMNS, edge_rows, revealed
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.job import GIVEN, DiscoveryJob, Edges, load_columns, read_job
from veracausa.discovery.vfedcd import ONE_PARTY, VFedCD
from veracausa.errors import InputError, VeracausaError
from veracausa.metrics.graphs import graph_scores
from veracausa.registry import Options, did_you_mean
from veracausa.runs import folder
from veracausa.runs.atomic import write_whole
from veracausa.runs.folder import Run
from veracausa.runs.machine import describe_machine

if TYPE_CHECKING:
    import networkx

Observer = Callable[[Mapping[str, Any]], None]
Parties = dict[str, tuple[str, ...]]

FEDERATION = "federation"
"""The folder of what the parties themselves write: ledgers and checkpoints."""


class DiscoveryRun(Run):
    """The folder of a discovery."""

    @property
    def job(self) -> DiscoveryJob:  # type: ignore[override]
        return read_job(self.path / "config.toml")

    @property
    def edges(self) -> list[dict[str, Any]]:
        """The edges found, strongest first."""
        with (self.path / "edges.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        numbers = ("strength", "confidence")
        return [{k: (float(v) if v else None) if k in numbers else v for k, v in row.items()} for row in rows]

    @property
    def graph(self) -> networkx.DiGraph:
        import networkx

        return networkx.read_graphml(self.path / "graph.graphml")

    def report(self) -> Path:
        """Write `report.html` and say where it is."""
        from veracausa.runs.discovery_page import write_discovery_page

        return write_discovery_page(self.path)


def discover(
    X: Any,
    parties: Mapping[str, Sequence[str]] | None = None,
    *,
    method: str = "vfedcd",
    truth: Any = None,
    required: Any = None,
    forbidden: Any = None,
    seed: int = 0,
    name: str = "discovery",
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    **settings: Any,
) -> DiscoveryRun:
    """Learn a causal graph from a frame or an array, and return the run: its edges, its scores, its page.

    `parties` maps each party to its columns. `truth`, `required` and `forbidden` are pairs (cause, effect) of columns,
    matrices or graphs. Settings are those of the method.
    """
    values, names = as_table(X)

    def pairs(edges: Any, what: str) -> Edges | None:
        matrix = as_edges(edges, names, what)
        return None if matrix is None else [(names[i], names[j]) for i, j in np.argwhere(matrix)]

    held = {str(party): tuple(map(str, columns)) for party, columns in (parties or {}).items()}
    job = DiscoveryJob(
        name=name,
        seed=seed,
        method=method,
        data={"name": GIVEN, "rows": len(values), "columns": list(names)},
        parties=held,
        truth=pairs(truth, "truth"),
        required=pairs(required, "required") or [],
        forbidden=pairs(forbidden, "forbidden") or [],
        settings=settings,
    )
    data = CausalData(values, names, as_edges(truth, names, "truth"))
    return run_job(job, out, resume, observer, (data, held))


def run_job(
    job: DiscoveryJob,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    columns: tuple[CausalData, Parties] | None = None,
) -> DiscoveryRun:
    """Do what a job asks for, in a folder; `columns` where they were given in Python."""
    path = Path(out) if out is not None else _default_folder(job, resume)
    if resume:
        if DiscoveryRun(path).job.model_dump() != job.model_dump():
            raise InputError(f"{path}: this run was started with other settings or data; use a new --out")
        if DiscoveryRun(path).status.get("state") == "done":
            return DiscoveryRun(path)
    else:
        folder.check_free(path)
    data, parties = columns or load_columns(job)
    if parties:
        owners(parties, data.names)
    edge_constraints(job.required, job.forbidden, data.names)
    method = make_method(job)
    path.mkdir(parents=True, exist_ok=True)
    write_whole(path / "config.toml", job.to_toml().encode())
    run = DiscoveryRun(path)
    with folder.locked(path):
        _fit(run, job, method, data, parties, resume, observer)
    run.report()
    return run


def make_method(job: DiscoveryJob) -> CausalDiscovery:
    """The job's method with its settings checked, not yet fitted."""
    known = {"required": job.required or None, "forbidden": job.forbidden or None, "seed": job.seed}
    taken = sorted(set(job.settings) & {"required", "forbidden", "seed"})
    if taken:
        raise InputError(f"--set {taken[0]}: give it by --{taken[0]}")
    if job.method != "vfedcd":
        if job.method not in methods.names():
            raise InputError(
                f"--method {job.method}: no such method{did_you_mean(job.method, ['vfedcd', *methods.names()])}"
            )
        return build(job.method, **job.settings, **known)
    given = checked(_vfedcd_options(), "vfedcd", {**job.settings, **known})
    made = VFedCD(**{name: value for name, value in given if name != "name"})
    made.settings()
    return made


def _vfedcd_options() -> type[Options]:
    hints = get_type_hints(VFedCD)
    parameters: dict[str, Any] = {field.name: (hints[field.name], field.default) for field in fields(VFedCD)}
    return create_model("VFedCDOptions", __base__=Options, **parameters)


def _fit(
    run: DiscoveryRun,
    job: DiscoveryJob,
    method: CausalDiscovery,
    data: CausalData,
    parties: Parties,
    resume: bool,
    observer: Observer | None,
) -> None:
    path = run.path
    folder.set_status(path, state="running")
    started = time.monotonic()
    frame = Columns(data)
    try:
        if isinstance(method, VFedCD):
            method.fit(frame, parties=parties or None, observer=observer, out=path / FEDERATION, resume=resume)
        else:
            method.fit(frame)
    except (VeracausaError, KeyboardInterrupt) as error:
        folder.set_status(path, state="failed", error=str(error) or "interrupted")
        raise
    seconds = time.monotonic() - started
    _write_found(run, job, method, data, parties, seconds)
    folder.set_status(path, state="done")


class Columns:
    """Named columns as a frame, as far as an estimator looks at one."""

    def __init__(self, data: CausalData) -> None:
        self.columns = data.names
        self._values = data.values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, name: str) -> _Column:
        return _Column(self._values[:, self.columns.index(name)])


class _Column:
    def __init__(self, values: NDArray[np.float64]) -> None:
        self._values = values

    def to_numpy(self) -> NDArray[np.float64]:
        return self._values


def _write_found(
    run: DiscoveryRun, job: DiscoveryJob, method: CausalDiscovery, data: CausalData, parties: Parties, seconds: float
) -> None:
    """Everything that a reader or another program may want of the graph."""
    import networkx

    from veracausa import __version__

    path, names = run.path, data.names
    held = parties or {ONE_PARTY: names}
    confidence = getattr(method, "confidence_", None)
    rows = edge_rows(method.adjacency_matrix_, method.strengths_, confidence, names, held)
    write_whole(path / "edges.csv", _csv(COLUMNS, ([row[column] for column in COLUMNS] for row in rows)))
    strengths = ([name, *map(float, row)] for name, row in zip(names, method.strengths_, strict=True))
    write_whole(path / "strengths.csv", _csv(("cause", *names), strengths))
    for party, told in revealed(rows, tuple(held), getattr(method, "reveal", "all")).items():
        (path / "parties" / party).mkdir(parents=True, exist_ok=True)
        table = _csv(COLUMNS, ([row[column] for column in COLUMNS] for row in told))
        write_whole(path / "parties" / party / "edges.csv", table)
    graph = method.causal_graph_
    buffer = io.BytesIO()
    networkx.write_graphml(graph, buffer)
    write_whole(path / "graph.graphml", buffer.getvalue())
    lines = [{"event": "epoch", "epoch": at + 1, **row} for at, row in enumerate(method.history_)]
    write_whole(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    engine = getattr(method, "engine_", "one place")
    environment = {"veracausa": __version__, **describe_machine(cuda=False), "engine": engine, "seed": job.seed}
    folder.write_json(path / "environment.json", environment)
    folder.write_json(path / "summary.json", _summary(job, method, data, parties, rows, seconds))


def _summary(
    job: DiscoveryJob,
    method: CausalDiscovery,
    data: CausalData,
    parties: Parties,
    rows: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    adjacency = method.adjacency_matrix_
    sent = getattr(method, "sent_", {})
    names = data.names
    summary: dict[str, Any] = {
        "method": job.method,
        "edges": len(rows),
        "acyclic": is_acyclic(adjacency),
        "threshold": method.threshold_,
        "attributes": len(names),
        "rows": len(data.values),
        "seconds": round(seconds, 3),
        "engine": getattr(method, "engine_", None),
        "encryption": getattr(method, "encryption", None) if getattr(method, "engine_", "") == "federated" else None,
        "reveal": getattr(method, "reveal", "all"),
        "bootstrap": getattr(method, "bootstrap", 0),
        "held_out_log_likelihood": getattr(method, "held_out_log_likelihood_", None),
        "parties": {party: {"columns": list(columns), **sent.get(party, {})} for party, columns in parties.items()}
        | {name: figures for name, figures in sent.items() if name not in parties},
        "bytes_sent": sum(figures.get("bytes_sent", 0) for figures in sent.values()),
        "notes": [*data.notes, *method.notes_],
    }
    if data.truth is not None:
        holders = owners(parties, names) if parties else None
        summary |= graph_scores(data.truth, adjacency, holders)
        summary["true_edge_list"] = [[names[i], names[j]] for i, j in np.argwhere(data.truth)]
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in summary.items()}


def _csv(header: Sequence[str], rows: Any) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in row])
    return text.getvalue().encode()


def _default_folder(job: DiscoveryJob, resume: bool) -> Path:
    base = Path("runs") / job.name
    taken = [base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 10_000))]
    free = next(i for i, path in enumerate(taken) if not path.exists())
    if not resume:
        return taken[free]
    if free == 0:
        raise InputError(f"{base}: no run to resume; start one without --resume")
    return taken[free - 1]
