"""Discovery from sums at one member's own site: functions of columns at home, encrypted sums, no row opened."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from veracausa.atomic import atomic_write
from veracausa.data.causal import CausalData
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.engines.sums.party import known_as_lists
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.program import SumsProgram
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.expansion import column_kinds
from veracausa.discovery.methods.moments.known import known_of
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.federation.columns import Attributes, all_kept, all_names
from veracausa.federation.consent import UNENCRYPTED, Row
from veracausa.federation.discovery_job import members_of
from veracausa.federation.discovery_site import DiscoverySite
from veracausa.federation.discovery_terms import described_moments
from veracausa.federation.moments_messages import SumsAhead, declared_moments
from veracausa.federation.moments_result import write_moments
from veracausa.federation.party_file import party_tree
from veracausa.federation.release_book import BOOK, ReleaseBook
from veracausa.runs.fit_status import FitStatus
from veracausa.seeding import derive
from veracausa.training.blind.book import enter_release, releases_in
from veracausa.wire.link import Link
from veracausa.wire.message import Declared


class MomentsSite(DiscoverySite):
    """One member of a discovery from sums; a validator opens them, or all parties do.

    A party's book keeps which rows it has released sums of. It lies beside the run, or where `book` of its party.toml
    says: a run that is removed, or another federation with the same book, does not make it forget.
    """

    def __init__(self, folder: Path, me: str, secret: bool, job: DiscoveryJob, method: MomentSearch) -> None:
        self.method: MomentSearch = method
        self.settings = method.settings()
        # Masks come from the system, but for a simulation, whose features cross in the clear. Noise always does.
        simulated = self.settings.encryption == "none" and self.settings.epsilon is None
        self.seed = method.seed if simulated else None
        self.book = None if me == VALIDATOR else _book(folder, job)
        if self.settings.encryption == "none":
            self.warnings = (
                f"{UNENCRYPTED}: this is a simulation, and a partner reads functions of your columns row by row; say "
                "no if any of them is real",
            )
        super().__init__(folder, me, secret, job, members_of(job, method))
        if self.columns is not None:
            self.ahead.least.check()  # rows that are too few even if all of them are common
        self.warnings += self._summed_before()
        self.plan: SumsPlan | None = None
        self.data: CausalData | None = None
        self.row_names: list[bytes] = []

    @property
    def ahead(self) -> SumsAhead:
        names, rows = ((), 0) if self.columns is None else (self.columns.names, self.columns.count)
        return SumsAhead(self.job, self.settings, self.me, names, rows)

    def _declared(self) -> Iterator[Declared]:
        return declared_moments(self.ahead)

    def _described(self, aligned: bool) -> tuple[Row, ...]:
        return described_moments(self.job, self.ahead, aligned)

    def _summed_before(self) -> tuple[str, ...]:
        """Said where rows of this party's table were released before, in another run than this one."""
        if self.book is None or self.columns is None:
            return ()
        own = set(releases_in(self.store.folder))
        before = set(self.book.earlier([id.encode() for id in self.columns.ids])) - own
        if not before:
            return ()
        return (
            f"sums over some of your rows were released before ({len(before)} times, {self.book.folder}): two releases "
            "that differ by a row tell that row, and this one is refused unless the job's budget has room for it",
        )

    def _prepare(self, found: Tensor | None) -> tuple[Attributes, tuple[str, ...]]:
        assert self.columns is not None
        self.data = self.columns.data(found)
        self.row_names = self.columns.row_names(found)
        self.kinds = column_kinds(self.data.values, self.data.names, self.data.nominal)
        rows = len(self.data.values)
        return Attributes(self.data.names, all_kept(self.data.names), self.kinds, rows), self.data.notes

    def _agree(self, link: Link) -> None:
        rows = next(iter(self.said.values())).rows
        columns = {party: theirs.names for party, theirs in self.said.items()}
        seed = derive(self.method.seed, "discovery", "sums")
        self.plan = SumsPlan(self.settings, columns, rows, seed, self.said[self.parties[0]].rows_name)
        self.plan.check()
        method = self.method
        self.known = known_of(method.required, method.forbidden, method.tiers, all_names(self.said))
        self._keep_plan(self.plan)

    def _keep_plan(self, plan: SumsPlan) -> None:
        path = self.store.folder / "plan.json"
        described = json.loads(json.dumps(plan.described() | {"known": known_as_lists(self.known)}))
        if path.is_file():
            before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            for name, value in described.items():
                if before.get(name) != value:
                    raise InputError(
                        f"{self.path}: this discovery was begun with another {name}; remove it to begin anew"
                    )
        atomic_write(path, json.dumps(described).encode())

    @property
    def _epochs(self) -> int:
        assert self.plan is not None
        return self.plan.releases

    def _take_part(self, link: Link, hear: Observer, start_step: int | None) -> None:
        assert self.plan is not None
        self.store.forget_after(start_step or 0)
        if start_step is None:
            self.store.ledger.resume(0, 0)
        started = time.monotonic()
        heard: dict[str, Event] = {}
        status = FitStatus(self.path)

        def also_here(event: Event) -> None:
            if event["event"] in ("found", "finished", "notes"):
                heard[event["event"]] = event
            elif event["event"] == "progress":
                status.tell(event["what"], event["share"])
            hear(event)

        program = SumsProgram(
            self.plan,
            self.me,
            None if self.data is None else self.data.values,
            None if self.data is None else self.kinds,
            self.known,
            self.seed,
            self.path,
            start_step,
            earlier={} if self.book is None else self.book.earlier(self.row_names),
            enter=self._enter,
            time_limit=self.method.time_limit,
        )
        program(link, also_here)
        write_moments(self, heard, time.monotonic() - started)

    def _enter(self, release: str, rho: float) -> None:
        """Write a release down before anything of it leaves."""
        enter_release(self.store.folder, release, rho)
        if self.book is not None:
            self.book.enter(release, rho, self.row_names)


def _book(folder: Path, job: DiscoveryJob) -> ReleaseBook | None:
    """The party's book; none of a simulation, where no column is real, unless the party names one."""
    named = party_tree(folder).get("book")
    if named is None:
        return None if job.simulation else ReleaseBook(folder / BOOK)
    if not isinstance(named, str) or not named:
        raise InputError(f"{folder / 'party.toml'}: book: names a folder, in quotes")
    return ReleaseBook(folder / Path(named).expanduser())
