"""What finding the common rows in private costs, beside the same in the clear and, where installed, openmined-psi."""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any, Literal

from benchmarks.rows import Row
from veracausa.alignment.embedded import align_embedded
from veracausa.alignment.program import Aligned
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.errors import RunError
from veracausa.events import Event


@dataclass(frozen=True)
class Case:
    """So many ids at each of so many parties, of which all have some in common."""

    ids: int = 100_000
    common: int = 50_000
    parties: int = 2
    mode: Literal["all", "active"] = "all"

    def __str__(self) -> str:
        return f"{self.mode}: {' × '.join([f'{self.ids:,}'] * self.parties)}, {self.common:,} common"

    def sets(self, seed: int = 0) -> dict[str, list[str]]:
        """Made-up ids, each party's in an order of its own."""
        sets = {}
        for party in range(self.parties):
            own = [f"{row:09d}" for row in range(self.common)]
            own += [f"{party + 1}{row:08d}" for row in range(self.ids - self.common)]
            random.Random(seed + party).shuffle(own)
            sets[f"party{party}"] = own
        return sets


def run(cases: Sequence[Case], repeats: int = 1, workers: int | None = None, others: bool = True) -> list[Row]:
    """A row a case and what it is measured against. The middle of several rounds counts."""
    rows = []
    for case in cases:
        sets = case.sets()
        rounds = [_ours(case, sets, workers) for _ in range(repeats)]
        seconds = median([one["seconds"] for one in rounds])
        extra = {name: median([one[name] for one in rounds]) for name in rounds[0] if name != "seconds"}
        plain = _timed(_in_the_clear, sets)
        rows.append(Row(str(case), seconds, "the same in the clear", plain.seconds, {**extra, "its_cpu": plain.cpu}))
        if others and case.parties == 2 and case.mode == "all":
            for name, one in _openmined(sets, case.common):
                rows.append(Row(str(case), seconds, name, one.seconds, {**extra, "its_cpu": one.cpu}))
    return rows


def _ours(case: Case, sets: Mapping[str, Sequence[str]], workers: int | None) -> dict[str, float]:
    sent: dict[str, int] = {}

    def hear(event: Event) -> None:
        if event["event"] == "aligned":
            sent[event["party"]] = event["bytes"]

    settings = AlignmentSettings(parties=tuple(sets), mode=case.mode)
    one = _timed(align_embedded, sets, settings, OwnOptions(workers=workers), None, hear)
    _check(case, sets, one.result)
    return {
        "seconds": one.seconds,
        "cpu": one.cpu,
        # all: every party masks every set; active: each passive one its own and the active party's, which masks all.
        "exponentiations": float(case.ids * (case.parties**2 if case.mode == "all" else 3 * case.parties - 2)),
        "mb_active": sent["party0"] / 1e6,
        "mb_passive": sent["party1"] / 1e6,
    }


def _check(case: Case, sets: Mapping[str, Sequence[str]], found: Mapping[str, Aligned]) -> None:
    """A time counts only with the right answer."""
    agreed = [sets["party0"][row] for row in found["party0"].rows.tolist()]
    for party, own in sets.items():
        rows = found[party].rows.tolist()
        if [own[row] for row in rows if row >= 0] != [key for key, row in zip(agreed, rows, strict=True) if row >= 0]:
            raise RunError(f"bench align: {party} has another order")
        if found[party].held != (case.ids if case.mode == "active" and party == "party0" else case.common):
            raise RunError(f"bench align: {party} found {found[party].held} of {case.common}")


def _in_the_clear(sets: Mapping[str, Sequence[str]]) -> list[list[int]]:
    rows = [{key: row for row, key in enumerate(own)} for own in sets.values()]
    common = sorted(set(rows[0]).intersection(*rows[1:]))
    return [[of[key] for key in common] for of in rows]


def _openmined(sets: Mapping[str, Sequence[str]], common: int) -> list[tuple[str, _Timed]]:
    """Its client and its server one after the other, by the kind of set-up message."""
    try:
        psi = import_module("private_set_intersection.python")
    except ImportError:
        print("openmined-psi: left out: it is not installed; pip install openmined-psi", file=sys.stderr)
        return []
    server_ids, client_ids = map(list, sets.values())

    def intersect(structure: Any) -> list[int]:
        server, client = psi.server.CreateWithNewKey(True), psi.client.CreateWithNewKey(True)
        setup = server.CreateSetupMessage(1e-9, len(client_ids), server_ids, structure)
        answer = server.ProcessRequest(client.CreateRequest(client_ids))
        found: list[int] = client.GetIntersection(setup, answer)
        return found

    measured = []
    for name, structure in (("raw", psi.DataStructure.RAW), ("GCS", psi.DataStructure.GCS)):
        one = _timed(intersect, structure)
        if len(one.result) != common:
            raise RunError(f"bench align: openmined-psi found {len(one.result)} of {common}")
        measured.append((f"openmined-psi, {name}", one))
    return measured


@dataclass(frozen=True)
class _Timed:
    seconds: float
    cpu: float
    """Processor seconds, of processes that were started and waited for, too: less disturbed by others' work."""
    result: Any


def _timed(work: Callable[..., Any], *arguments: Any) -> _Timed:
    start, before = time.perf_counter(), _cpu()
    result = work(*arguments)
    return _Timed(time.perf_counter() - start, _cpu() - before, result)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
