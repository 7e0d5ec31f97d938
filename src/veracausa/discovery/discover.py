"""A discovery as a run folder: what was asked, what was found, and a page to read it on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.atomic import atomic_write
from veracausa.data.causal import CausalData
from veracausa.data.causal.frames import as_causal
from veracausa.data.causal.parties import owners
from veracausa.discovery import DEFAULT_METHOD
from veracausa.discovery.base import CausalDiscovery, as_edges, clock, column_named, edge_constraints
from veracausa.discovery.edge_table import read_rows
from veracausa.discovery.export import GraphExports
from veracausa.discovery.job import GIVEN, DiscoveryJob, Edges, load_columns, read_job
from veracausa.discovery.methods import build, methods
from veracausa.discovery.result_files import Parties, write_found
from veracausa.errors import InputError, VeracausaError
from veracausa.events import Event, Observer, event_of
from veracausa.registry import did_you_mean
from veracausa.runs import folder
from veracausa.runs.fit_status import FitStatus
from veracausa.runs.folder import Run

if TYPE_CHECKING:
    import networkx


FEDERATION = "federation"
"""The folder of what the parties themselves write: ledgers and checkpoints."""
CHECKPOINTS = "checkpoints"
"""The folder of a fit in one place, while it runs."""


class DiscoveryRun(Run, GraphExports):
    """The folder of a discovery: what `discover` returns, and what can be opened again later.

    >>> run = veracausa.DiscoveryRun("runs/discovery")
    >>> run.edges[0]["cause"], run.edges[0]["effect"], run.edges[0]["strength"]
    """

    @property
    def job(self) -> DiscoveryJob:  # type: ignore[override]
        return read_job(self.path / "config.toml")

    @property
    def edges(self) -> list[dict[str, Any]]:
        """The edges found, strongest first."""
        return read_rows(self.path / "edges.csv")

    @property
    def graph(self) -> networkx.DiGraph:
        import networkx

        return networkx.read_graphml(self.path / "graph.graphml")

    def exported_graph(self) -> networkx.DiGraph:
        return self.graph

    def report(self) -> Path:
        """Write `report.html` and say where it is."""
        from veracausa.report.discovery_page import write_discovery_page

        return write_discovery_page(self.path)

    def _repr_html_(self) -> str | None:
        from veracausa.report.notebook import discovery_html

        with suppress(VeracausaError, OSError, ValueError, TypeError, KeyError):
            return discovery_html(self.path)
        return None


def discover(
    X: Any,
    parties: Mapping[str, Sequence[str]] | None = None,
    *,
    method: str = DEFAULT_METHOD,
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

    X: a pandas or polars frame, or an array. Words of a frame are categories.
    parties: party -> its columns. Default: one party holds all.
    method: which method; `veracausa list methods` names them.
    truth: the true edges to compare with: pairs (cause, effect) of columns, a matrix or a graph.
    required, forbidden: edges that the graph must or must not have, written in the same ways.
    seed: for all that is drawn.
    name, out: the run's name, and its folder. Default: `runs/NAME`, numbered if it is taken.
    resume: go on with the run in `out`.
    observer: hears every `veracausa.events.Event`.
    settings: those of the method.

    >>> run = veracausa.discover(frame, {"lab": ["crp", "ldl"], "clinic": ["age", "dose"]})
    >>> run.edges
    """
    named = {str(column) for columns in (parties or {}).values() for column in columns}
    data = X if isinstance(X, CausalData) else as_causal(X, named)
    names = data.names

    def pairs(edges: Any, what: str) -> Edges | None:
        matrix = as_edges(edges, names, what)
        return None if matrix is None else [(names[i], names[j]) for i, j in np.argwhere(matrix)]

    held = {str(party): tuple(column_named(c, names) for c in columns) for party, columns in (parties or {}).items()}
    job = DiscoveryJob(
        name=name,
        seed=seed,
        method=method,
        data={"name": GIVEN, "rows": len(data.values), "columns": list(names)},
        parties=held,
        truth=pairs(truth, "truth"),
        required=pairs(required, "required") or [],
        forbidden=pairs(forbidden, "forbidden") or [],
        settings=settings,
    )
    known = data.truth if truth is None else as_edges(truth, names, "truth")
    return run_job(job, out, resume, observer, (replace(data, truth=known), held))


def run_job(
    job: DiscoveryJob,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    columns: tuple[CausalData, Parties] | None = None,
) -> DiscoveryRun:
    """Do what a job asks for, in a folder; `columns` where they were given in Python."""
    path = Path(out) if out is not None else _default_folder(job, resume)
    method = make_method(job)
    job = resolved(job, method)
    if resume:
        if _asked(DiscoveryRun(path).job) != _asked(job):
            raise InputError(f"{path}: this run was started with other settings or data; use a new --out")
        if DiscoveryRun(path).status.get("state") == "done":
            return DiscoveryRun(path)
    else:
        folder.check_free(path)
    data, parties = columns or load_columns(job)
    if parties:
        owners(parties, data.names)
    edge_constraints(job.required, job.forbidden, data.names)
    fresh = not path.exists()
    if not resume:
        folder.make(path)
    atomic_write(path / "config.toml", job.to_toml().encode())
    run = DiscoveryRun(path)
    try:
        with folder.locked(path):
            _fit(run, job, method, data, parties, resume, observer)
    except InputError:
        if fresh:  # what can not be used leaves nothing behind
            shutil.rmtree(path)
        raise
    run.report()
    return run


def _asked(job: DiscoveryJob) -> dict[str, Any]:
    """What a resumed run must have the same, with the settings' names of today."""
    return resolved(job, make_method(job)).model_dump()


OWN = ("required", "forbidden", "seed")
"""What a job says of every method, beside its settings."""


def make_method(job: DiscoveryJob) -> CausalDiscovery:
    """The job's method with its settings checked, not yet fitted."""
    known = {"required": job.required or None, "forbidden": job.forbidden or None, "seed": job.seed}
    taken = sorted(set(job.settings) & set(OWN))
    if taken:
        raise InputError(f"--set {taken[0]}: give it by --{taken[0]}")
    if job.method not in methods.names() and job.method.replace("-", "_") not in methods.names():
        raise InputError(f"--method {job.method}: no such method{did_you_mean(job.method, methods.names())}")
    made = build(job.method, **job.settings, **known)
    made.job_settings()  # what contradicts itself is refused here
    return made


def resolved(job: DiscoveryJob, method: CausalDiscovery) -> DiscoveryJob:
    """The job with every setting of its method written out, those of a profile among them."""
    settings = {name: value for name, value in method.job_settings().items() if name not in OWN}
    return job.model_copy(update={"settings": settings})


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
    if observer is not None:
        observer({"event": "folder", "path": str(path)})
    started = time.monotonic()
    tell = _also_in_status(path, method, observer)
    try:
        how: dict[str, Any] = {}
        if method.federated:
            own = FEDERATION if method.engine_for(len(parties), bool(parties)) == "federated" else CHECKPOINTS
            how = {"parties": parties or None, "observer": tell, "out": path / own, "resume": resume}
        method.fit(data, **how)
    except (VeracausaError, KeyboardInterrupt) as error:
        folder.set_ended(path, error)
        raise
    seconds = time.monotonic() - started
    tests = None
    if getattr(method, "engine_", None) != "federated":

        def progress(share: float) -> None:
            tell(event_of("progress", {"what": "residuals", "share": share}))

        tests = method.residual_tests(data, clock(TESTING), progress)
    write_found(path, job, method, data, parties, seconds, tests)
    folder.set_status(path, state="done")
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)


TESTING = 60.0
"""Seconds after which no more columns are tested for residuals that depend on their causes."""


def _also_in_status(path: Path, method: CausalDiscovery, observer: Observer | None) -> Observer:
    """Hands events on, and keeps in `status.json` how far a fit is, and what it was said to take before it began."""
    settings = getattr(method, "settings", None)
    epochs = 0 if settings is None else getattr(settings(), "total_epochs", 0)
    status = FitStatus(path)

    def tell(event: Event) -> None:
        if observer is not None:
            observer(event)
        if event["event"] == "announced":
            told = {name: event.get(name) for name in ("seconds", "bytes") if event.get(name) is not None}
            folder.set_status(path, announced=told)
        if event["event"] == "progress":
            part = event["what"]
            status.tell(part, float(event["share"]), epochs * {"graph": 1}.get(part, getattr(method, "bootstrap", 0)))

    return tell


def _default_folder(job: DiscoveryJob, resume: bool) -> Path:
    base = Path("runs") / job.name
    taken, free = folder.numbered(base)
    if not resume:
        return free
    if not taken:
        raise InputError(f"{base}: no run to resume; start one without --resume")
    return taken[-1]
