"""The audit of a discovery: each case is trained as the parties' programs, watched, and attacked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.attacks.columns import feature_attacks
from veracausa.audit.discovery import measure
from veracausa.audit.discovery.cases import STRONG, AuditCase, AuditOptions, cases_of
from veracausa.audit.discovery.mpc import ATTACKS, prepared_columns, strong_scenes, train_strong
from veracausa.audit.discovery.record import write_audit
from veracausa.audit.discovery.recorder import DiscoveryRecording
from veracausa.audit.discovery.views import all_but_one, single
from veracausa.data.causal import CausalData
from veracausa.data.causal.parties import owners
from veracausa.discovery.discover import make_method
from veracausa.discovery.job import DiscoveryJob, load_columns
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.privacy.countermeasures import accounted, most_exposed
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.atomic import atomic_write

Parties = Mapping[str, Sequence[str]]


def audit_discovery(
    job: DiscoveryJob,
    out: Path,
    *,
    attacks: Sequence[str] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    options: AuditOptions | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
) -> dict[str, Any]:
    """Train and attack all cases, write `summary.json`, `audit.md` and `report.html` into `out`, give the summary.

    `settings` are those of attacks by name. With `resume` a case that is there already is kept.
    """
    options, names = (
        options or AuditOptions(),
        [feature_attacks.canonical(name) for name in attacks] or feature_attacks.names(),
    )
    for name in names:
        measure.make_attack(name, (settings or {}).get(name, {}))
    method = make_method(job)
    if not isinstance(method, VFedCD):
        raise InputError(f"method {job.method!r}: only a discovery of several parties by 'vfedcd' can be audited")
    data, parties = load_columns(job)
    if len(parties) < 2:
        raise InputError("parties: with one party nobody opens anything of another; name two at least")
    sizes = [len(columns) for columns in parties.values()]
    cases = cases_of(method.settings(), method.get_params(), sizes, options)
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for case in cases:
        asked = json.loads(json.dumps(_asked(job, case, names, settings, options)))
        path = out / "cases" / f"{case.name.replace(' ', '-')}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if resume and path.is_file() else {}
        if kept.get("asked") != asked:

            def tell(share: float, case: AuditCase = case) -> None:
                observer({"event": "progress", "what": case.name, "share": share})

            kept = {"asked": asked, **run_case(job, case, data, parties, names, settings or {}, options, tell)}
            path.parent.mkdir(exist_ok=True)
            atomic_write(path, (json.dumps(kept, indent=1) + "\n").encode())
        found.append(kept)
    return write_audit(out, job, data, parties, options, names, found)


def _asked(
    job: DiscoveryJob,
    case: AuditCase,
    names: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None,
    options: AuditOptions,
) -> dict[str, Any]:
    """What a case's numbers depend on."""
    return {
        "job": job.model_dump(mode="json"),
        "changes": dict(case.changes),
        "attacks": list(names),
        "settings": {name: dict(each) for name, each in (settings or {}).items()},
        "known_rows": options.known_rows,
        "seed": options.seed,
        **({"strong_epochs": options.strong_epochs} if case.name == STRONG else {}),
    }


def run_case(
    job: DiscoveryJob,
    case: AuditCase,
    data: CausalData,
    parties: Parties,
    names: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    options: AuditOptions,
    tell: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """One case: trained, watched, attacked."""
    if case.name == STRONG:
        return run_strong(job, case, data, parties, names, settings, options)
    started = time.process_time()
    # The twin's integers are those of an encrypted run; what it sends in the clear is not looked at.
    changes = {"engine": "federated", "encryption": "none", "link": "threads", "bootstrap": 0, **case.changes}
    method = make_method(job.model_copy(update={"settings": {**job.settings, **changes}}))
    assert isinstance(method, VFedCD)
    recording = train(method, data, parties, lambda share: tell(0.8 * share))
    trained = time.process_time() - started
    scenes = single(recording, options.known_rows, options.seed)
    found = measure.measured(scenes, names, settings, lambda share: tell(0.8 + 0.15 * share))
    result: dict[str, Any] = {
        "name": case.name,
        "says": case.says,
        "changes": dict(case.changes),
        "validator": method.validator,
        "parts_opened": next(iter(recording.parties.values())).apart,
        **found,
        "graph": {"edges": int(method.adjacency_matrix_.sum())},
        "strengths": np.round(method.strengths_, 9).tolist(),
        "processor_seconds": {"training": round(trained, 1)},
    }
    if result["parts_opened"] and len(parties) > 2:
        together = [name for name in measure.TOGETHER if name in names]
        result["all_but_one"] = measure.measured(
            all_but_one(recording, options.known_rows, options.seed), together, settings
        )
    if data.truth is not None:
        scores = graph_scores(data.truth, method.adjacency_matrix_, owners(parties, data.names))
        result["graph"] = {name: float(value) for name, value in scores.items() if np.isfinite(value)}
    if noise := method.settings().row_noise:
        result["account"] = _account(recording, method, noise)
    result["processor_seconds"]["attacks"] = round(time.process_time() - started - trained, 1)
    return result


def run_strong(
    job: DiscoveryJob,
    case: AuditCase,
    data: CausalData,
    parties: Parties,
    names: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    options: AuditOptions,
) -> dict[str, Any]:
    """The strong mode for a few epochs: too few for a graph, enough to see what is opened."""
    started = time.process_time()
    epochs = {"epochs": options.strong_epochs, "refit_epochs": options.strong_epochs}
    method = make_method(job.model_copy(update={"settings": {**job.settings, **epochs, "searches": []}}))
    assert isinstance(method, VFedCD)
    columns, labels, train_rows = prepared_columns(method, data, parties)
    programs = train_strong(columns, labels, method.settings(), train_rows, job.seed)
    trained = time.process_time() - started
    tried = [name for name in names if name in ATTACKS]
    found = measure.measured(strong_scenes(programs, options.known_rows, options.seed), tried, settings)
    found["attacks"] = {name: found["attacks"].get(name) for name in names}
    seconds = {"training": round(trained, 1), "attacks": round(time.process_time() - started - trained, 1)}
    return {
        "name": case.name,
        "says": f"{case.says}; {2 * options.strong_epochs} epochs, so its graph is not scored",
        "changes": epochs,
        "validator": "dealer",
        "parts_opened": False,
        **found,
        "graph": {},
        "processor_seconds": seconds,
    }


def train(
    method: VFedCD, data: CausalData, parties: Parties, progress: Callable[[float], None] = lambda share: None
) -> DiscoveryRecording:
    """Fit with every party a program, somebody watching each."""
    import polars as pl

    recording = DiscoveryRecording()
    # What a party sees of a further search is the same again, with weights drawn anew: one is watched.
    method.searches = []
    frame = pl.DataFrame(data.values, schema=list(data.names))

    def hear(event: Event) -> None:
        if event["event"] == "progress":  # what is said of noise, the account says
            progress(event["share"])

    method.fit(frame, parties=parties, observer=hear, watch=recording.watch)
    return recording


def _account(recording: DiscoveryRecording, method: VFedCD, noise: float) -> dict[str, float]:
    """What the worst target learns of the attribute that is most exposed to it, over all openings of a row."""
    worst = 0.0
    at = {str(name): position for position, name in enumerate(method.feature_names_in_)}
    for name, recorder in recording.parties.items():
        own = [at[column] for column in recorder.plan.names[recorder.plan.own(name)]]
        foreign = [position for position in at.values() if position not in own]
        worst = max(worst, most_exposed(method.strengths_, own, foreign))
    epochs = next(iter(recording.parties.values())).epochs
    account = accounted(noise, epochs, worst)
    once = accounted(noise, 1, worst)
    return {
        "openings": epochs,
        "strength": worst,
        "mu": account.mu,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "mu_once": once.mu,
        "epsilon_once": once.epsilon,
    }
