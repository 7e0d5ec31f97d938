"""The audit of a discovery from sums: each case is summed up as the parties' programs do it, and attacked.

The sums are those of the plaintext twin, whose integers are those of an encrypted run. Nothing is read from a run's
folder: what a receiver keeps of the sums stays there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from veracausa.attacks import column_attacks
from veracausa.audit.column_scores import declared, make_attack
from veracausa.audit.discovery import DiscoveryAudit
from veracausa.audit.settings import AS_RUN, AuditCase, chosen_cases
from veracausa.audit.sums_scores import attacked, baselines
from veracausa.audit.sums_system import SumsSystem
from veracausa.audit.sums_views import PARTY, VALIDATOR_ALONE, SumsViews
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.expansion import column_kinds
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.seeding import derive

EPSILONS = (4.0, 1.0)
FEW_ROWS = 2
"""Rows for each function of two parties in the case of few rows."""


@dataclass(frozen=True)
class SumsAudit(DiscoveryAudit):
    """What is attacked and how, of a discovery from sums."""

    opened: ClassVar[str] = "sums"

    @property
    def sums_settings(self) -> SumsSettings:
        method = self.made()
        assert isinstance(method, MomentSearch)
        return method.settings()

    def plan(self, changes: Mapping[str, Any], rows: int) -> SumsPlan:
        settings = self.sums_settings.model_copy(update={"encryption": "none", **changes})
        columns = {party: tuple(names) for party, names in self.parties.items()}
        return SumsPlan(settings, columns, rows, derive(self.job.seed, "discovery", "sums"))

    def system(self, case: AuditCase) -> SumsSystem:
        """All parties' rows as the case sums them up."""
        changes = dict(case.changes)
        rows = int(changes.pop("rows", len(self.data.values)))
        place = {name: at for at, name in enumerate(self.data.names)}
        values = {party: self.data.values[:rows, [place[name] for name in own]] for party, own in self.parties.items()}
        nominal = (*self.data.nominal, *map(str, getattr(self.made(), "nominal", None) or ()))
        kinds = {party: column_kinds(values[party], own, nominal) for party, own in self.parties.items()}
        return SumsSystem.of(self.plan(changes, rows), values, kinds)

    def cases(self) -> list[AuditCase]:
        settings, rows = self.sums_settings, len(self.data.values)
        found = [AuditCase(AS_RUN, "the job as it is")]
        if settings.receiver == "validator":
            found.append(AuditCase("opened to all", "every party receives the sums", {"receiver": "all"}))
        else:
            found.append(AuditCase("to a validator", "a validator receives the sums", {"receiver": "validator"}))
        if settings.epsilon is not None:
            found.append(AuditCase("exact", "sums without noise", {"epsilon": None}))
        for epsilon in EPSILONS:
            if epsilon != settings.epsilon:
                says = f"noise on every sum, epsilon = {epsilon:g} at delta = {settings.delta:g}"
                found.append(AuditCase(f"epsilon {epsilon:g}", says, {"epsilon": epsilon}))
        plan = self.plan({}, rows)
        few = FEW_ROWS * plan.together * (plan.functions + 2)
        if few < rows:
            says = f"the first {few} rows: {FEW_ROWS} for each function of two parties, which is refused otherwise"
            changes = {"rows": few, "functions": plan.functions, "allow_small_n": True, "epsilon": None}
            case = AuditCase("few rows", says, changes)
            found += [case] if self._possible(case) else []
        return chosen_cases(found, self.options.cases)

    def _possible(self, case: AuditCase) -> bool:
        """Whether a case can be summed up: of few rows a column may be the same for all, or its categories too rare."""
        try:
            self.system(case)
        except InputError:
            return False
        return True

    def asked(self, case: AuditCase) -> dict[str, Any]:
        return {**super().asked(case), "releases": self.options.releases}

    def run(self, case: AuditCase, progress: ProgressCallback = lambda share: None) -> dict[str, Any]:
        started = time.process_time()
        system = self.system(case)
        # A job that resamples rows has a release for each; else it is asked what so many would tell.
        releases = system.plan.releases - 1 or self.options.releases
        views = SumsViews(system, self.options.seed, self.options.known_rows, releases)
        made = time.process_time() - started
        settings = system.plan.settings
        together = views.all_but_one() if len(system.plan.parties) > 2 else []
        colluding = declared(self.attacks, "colluding") if together else []
        jobs = [(name, situation) for name in self.attacks for situation in situations_of(name)]
        steps, entries = len(jobs) + len(colluding), {}
        for number, (name, situation) in enumerate(jobs):
            progress(number / steps)
            seats = views.makers[situation]()
            try:
                found = attacked(seats, self._attack(name), settings.epsilon, settings.delta)
            except InputError:  # this case has no such thing
                continue
            several = len(situations_of(name)) > 1
            if found:
                label = f"{name}: {situation}" if several else name
                entries[label] = {"attack": name, "situation": situation, **found}
        result: dict[str, Any] = {
            "name": case.name,
            "says": case.says,
            "changes": dict(case.changes),
            "opened": "sums",
            "receiver": settings.receiver,
            "networks": bool(getattr(self.made(), "networks", None)),
            "epsilon": settings.epsilon,
            "delta": settings.delta,
            "noise": system.noise,
            "rows": system.rows,
            "functions": system.widths,
            "rows_a_function": system.rows_a_column,
            "blind": baselines(views.parties()),
            "attacks": entries,
            "graph": {},
        }
        if together:
            inside: dict[str, Any] = {}
            for number, name in enumerate(colluding):
                progress((len(jobs) + number) / steps)
                inside[name] = {
                    "attack": name,
                    **attacked(together, self._attack(name), settings.epsilon, settings.delta),
                }
            result["all_but_one"] = {"blind": baselines(together), "attacks": inside}
        seconds = {"sums": made, "attacks": time.process_time() - started - made}
        result["processor_seconds"] = {name: round(value, 1) for name, value in seconds.items()}
        return result

    def _attack(self, name: str) -> Any:
        return make_attack(name, self.settings.get(name, {}))


def situations_of(name: str) -> tuple[str, ...]:
    """In which situations an attack is tried."""
    attack = column_attacks.get(name)
    return attack.situations or ((PARTY,) if attack.seat == "party" else (VALIDATOR_ALONE,))
