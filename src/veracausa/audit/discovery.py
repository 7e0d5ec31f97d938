"""The audit of a discovery: each case is trained as the parties' programs, watched, and attacked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from veracausa.atomic import atomic_write
from veracausa.attacks import column_attacks
from veracausa.audit.column_scores import declared, make_attack, measured
from veracausa.audit.discovery_record import write_audit
from veracausa.audit.discovery_recorder import DiscoveryRecording
from veracausa.audit.discovery_views import all_but_one, mpc_views, prepared_columns, single, train_mpc
from veracausa.audit.numbered import tell_share
from veracausa.audit.record import read_kept
from veracausa.audit.settings import STRONG, AuditCase, DiscoveryAuditSettings, cases_of
from veracausa.data.causal import CausalData
from veracausa.data.causal.parties import owners
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.discover import make_method
from veracausa.discovery.job import DiscoveryJob, load_columns
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.privacy.countermeasures import accounted, most_exposed
from veracausa.errors import InputError
from veracausa.events import Event, Observer, ProgressCallback
from veracausa.metrics.graphs import graph_scores

Parties = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class DiscoveryAudit:
    """What is attacked and how: a discovery, its columns by party, the attacks and their settings."""

    opened: ClassVar[str] = "features"
    """What the method opens: features of rows, or sums over rows."""
    job: DiscoveryJob
    data: CausalData
    parties: Parties
    attacks: Sequence[str]
    settings: Mapping[str, Mapping[str, Any]]
    """Of attacks, by name."""
    options: DiscoveryAuditSettings

    @classmethod
    def of(
        cls,
        job: DiscoveryJob,
        attacks: Sequence[str],
        settings: Mapping[str, Mapping[str, Any]],
        options: DiscoveryAuditSettings,
    ) -> DiscoveryAudit:
        """Everything that can be refused is refused here, before anything is trained."""
        made = _class_for(job)
        names = [column_attacks.canonical(name) for name in attacks] or attacks_on(made.opened)
        for name in names:
            make_attack(name, settings.get(name, {}))
            if column_attacks.get(name).opened != made.opened:
                raise InputError(
                    f"attack {name!r}: it works on {column_attacks.get(name).opened}, and a discovery by "
                    f"{job.method!r} opens {made.opened}; take {', '.join(attacks_on(made.opened))}"
                )
        data, parties = load_columns(job)
        if len(parties) < 2:
            raise InputError("parties: with one party nobody opens anything of another; name two at least")
        return made(job, data, parties, names, settings, options)

    def made(self, **changes: Any) -> CausalDiscovery:
        """The job's method with some settings changed, whichever it is."""
        return make_method(self.job.model_copy(update={"settings": {**self.job.settings, **changes}}))

    def method(self, **changes: Any) -> VFedCD:
        """The job's method with some settings changed."""
        method = self.made(**changes)
        assert isinstance(method, VFedCD)
        return method

    def cases(self) -> list[AuditCase]:
        method, sizes = self.method(), [len(columns) for columns in self.parties.values()]
        return cases_of(method.settings(), method.get_params(), sizes, self.options)

    def asked(self, case: AuditCase) -> dict[str, Any]:
        """What a case's numbers depend on."""
        return {
            "job": self.job.model_dump(mode="json"),
            "changes": dict(case.changes),
            "attacks": list(self.attacks),
            "settings": {name: dict(each) for name, each in self.settings.items()},
            "known_rows": self.options.known_rows,
            "seed": self.options.seed,
            **({"strong_epochs": self.options.strong_epochs} if case.name == STRONG else {}),
        }

    def run(self, case: AuditCase, progress: ProgressCallback = lambda share: None) -> dict[str, Any]:
        """One case: trained, watched, attacked."""
        return self._run_mpc(case) if case.name == STRONG else self._run_shares(case, progress)

    def _run_shares(self, case: AuditCase, progress: ProgressCallback) -> dict[str, Any]:
        started, options = time.process_time(), self.options
        # The integers are those of an encrypted run; what is sent in the clear is not looked at.
        changes = {"engine": "federated", "encryption": "none", "link": "threads", "bootstrap": 0, **case.changes}
        method = self.method(**changes)
        recording = train(method, self.data, self.parties, lambda share: progress(0.8 * share))
        trained = time.process_time() - started
        views = single(recording, options.known_rows, options.seed)
        found = measured(views, self.attacks, self.settings, lambda share: progress(0.8 + 0.15 * share))
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
        if result["parts_opened"] and len(self.parties) > 2:
            together = all_but_one(recording, options.known_rows, options.seed)
            result["all_but_one"] = measured(together, declared(self.attacks, "colluding"), self.settings)
        if self.data.truth is not None:
            owned = owners(self.parties, self.data.names)
            scores = graph_scores(self.data.truth, method.adjacency_matrix_, owned)
            result["graph"] = {name: float(value) for name, value in scores.items() if np.isfinite(value)}
        if noise := method.settings().row_noise:
            result["account"] = _account(recording, method, noise)
        result["processor_seconds"]["attacks"] = round(time.process_time() - started - trained, 1)
        return result

    def _run_mpc(self, case: AuditCase) -> dict[str, Any]:
        """The strong mode for a few epochs: too few for a graph, enough to see what is opened."""
        started, options = time.process_time(), self.options
        epochs = {"epochs": options.strong_epochs, "refit_epochs": options.strong_epochs}
        method = self.method(**epochs, searches=[])
        columns, labels, train_rows = prepared_columns(method, self.data, self.parties)
        programs = train_mpc(columns, labels, method.settings(), train_rows, self.job.seed)
        trained = time.process_time() - started
        views = mpc_views(programs, options.known_rows, options.seed)
        found = measured(views, declared(self.attacks, "on_sums"), self.settings)
        found["attacks"] = {name: found["attacks"].get(name) for name in self.attacks}
        seconds = {"training": round(trained, 1), "attacks": round(time.process_time() - started - trained, 1)}
        return {
            "name": case.name,
            "says": f"{case.says}; {2 * options.strong_epochs} epochs, so its graph is not scored",
            "changes": epochs,
            "validator": STRONG,
            "parts_opened": False,
            **found,
            "graph": {},
            "processor_seconds": seconds,
        }


def attacks_on(opened: str) -> list[str]:
    """The attacks that work on features of rows, or those that work on sums."""
    return [name for name in column_attacks.names() if column_attacks.get(name).opened == opened]


def opened_by(job: DiscoveryJob) -> str:
    """What a job's method opens to others."""
    return _class_for(job).opened


def _class_for(job: DiscoveryJob) -> type[DiscoveryAudit]:
    from veracausa.audit.sums import SumsAudit
    from veracausa.discovery.methods.moments.estimator import MomentSearch

    method = make_method(job)
    if isinstance(method, MomentSearch):
        return SumsAudit
    if isinstance(method, VFedCD):
        return DiscoveryAudit
    raise InputError(
        f"method {job.method!r}: only 'auto', 'moments' and 'vfedcd' run between parties and can be audited"
    )


def audit_discovery(
    job: DiscoveryJob,
    out: Path,
    *,
    attacks: Sequence[str] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    options: DiscoveryAuditSettings | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
) -> dict[str, Any]:
    """Train and attack all cases, write `summary.json`, `audit.md` and `report.html` into `out`, give the summary.

    `settings` are those of attacks by name. With `resume` a case that is there already is kept.
    """
    audit = DiscoveryAudit.of(job, attacks, settings or {}, options or DiscoveryAuditSettings())
    found, cases = [], audit.cases()
    for number, case in enumerate(cases, 1):
        about: Event = {"event": "progress", "what": case.name, "number": number, "of": len(cases)}
        path, asked = out / "cases" / f"{case.name.replace(' ', '-')}.json", audit.asked(case)
        kept = read_kept(path, asked) if resume else None
        if kept is None:
            kept = {"asked": asked, **audit.run(case, partial(tell_share, observer, about))}
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, (json.dumps(kept, indent=1) + "\n").encode())
        found.append(kept)
    return write_audit(out, audit, found)


def train(
    method: VFedCD, data: CausalData, parties: Parties, progress: Callable[[float], None] = lambda share: None
) -> DiscoveryRecording:
    """Fit with every party a program, somebody watching each, in all searches."""
    import polars as pl

    recording = DiscoveryRecording()
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
    epochs = next(iter(recording.parties.values())).plan.epochs  # in each of them a row is opened once
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
