"""What a discovery from encrypted sums costs: seconds and bytes between processes, beside the same in one place.

Everything counts: features at home, keys, sums of every pair, the search, and the start of the processes, which is told
apart. `search` is the part of the seconds that the validator searches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.rows import Row
from veracausa.data.causal import CausalData, load_causal
from veracausa.data.causal.parties import block_sizes
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.errors import InputError
from veracausa.events import Event

HERE = "one place"


@dataclass(frozen=True)
class SumsCase:
    """A table of so many columns that so many parties share out."""

    columns: int
    rows: int
    parties: int
    functions: int | None = None
    generator: Literal["linear", "gp_additive"] = "gp_additive"
    link: Literal["threads", "processes"] = "processes"
    encryption: Literal["bfv", "none"] = "bfv"

    @property
    def name(self) -> str:
        curves = "" if self.functions is None else f", {self.functions} functions"
        lines = ", straight lines" if self.generator == "linear" else ""
        return f"d = {self.columns}, n = {self.rows:,}, K = {self.parties}{curves}{lines}"

    def data(self) -> CausalData:
        edges = min(2 * self.columns, self.columns * (self.columns - 1) // 2)
        given = {"attributes": self.columns, "edges": edges, "rows": self.rows, "seed": 0}
        return load_causal("suite", generator=self.generator, **given)

    def held(self, names: Sequence[str]) -> dict[str, list[str]]:
        ends = np.cumsum([0, *block_sizes(self.columns, self.parties)])
        return {f"p{at}": list(names[ends[at] : ends[at + 1]]) for at in range(self.parties)}


README = SumsCase(6, 800, 2, generator="linear")
ASKED = SumsCase(15, 1000, 3, 6)
LARGE = SumsCase(100, 10_000, 3)
GROWTH = (
    *(SumsCase(15, rows, 3, 6) for rows in (4000, 16_000)),
    *(SumsCase(columns, 4000, 3, 6) for columns in (30, 60)),
    *(SumsCase(15, 4000, parties, 6) for parties in (2, 5)),
)
GROUPS = {"asked": (README, ASKED), "growth": GROWTH, "large": (LARGE,)}


def run(groups: Sequence[str] = ("asked",)) -> list[Row]:
    """Wall seconds of each case."""
    return [_row(case) for group in groups for case in _cases(group)]


def _cases(group: str) -> Iterator[SumsCase]:
    if group not in GROUPS:
        raise InputError(f"--group {group}: there is no such group; take {', '.join(GROUPS)}")
    yield from GROUPS[group]


def _row(case: SumsCase) -> Row:
    data = case.data()
    start = time.perf_counter()
    here = MomentSearch(functions=case.functions).fit(data)
    beside = time.perf_counter() - start
    marks: dict[str, float] = {}

    def observer(event: Event) -> None:
        if event["event"] == "progress":
            marks.setdefault(event["what"], time.perf_counter())

    method = MomentSearch(functions=case.functions, link=case.link, encryption=case.encryption)
    start = time.perf_counter()
    found = method.fit(data, parties=case.held(data.names), observer=observer)
    end = time.perf_counter()
    sent = sum(figures["bytes_sent"] for figures in found.sent_.values())
    both = here.adjacency_matrix_ | here.adjacency_matrix_.T, found.adjacency_matrix_ | found.adjacency_matrix_.T
    extra = {
        "start": marks["sums"] - start,
        "sums": marks["search"] - marks["sums"],
        "search": end - marks["search"],
        "MB": sent / 1e6,
        "announced s": found.announced_["seconds"],
        "announced MB": found.announced_["bytes"] / 1e6,
        "features": found.announced_["features"],
        "same skeleton": float((both[0] == both[1]).mean()),
    }
    return Row(case.name, end - start, HERE, beside, extra)
