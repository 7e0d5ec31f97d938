"""What causal discovery costs: how a step of the federation grows with d, K and n, and what other methods take."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.rows import Row, alternate
from veracausa.data.causal.parties import block_sizes
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult

WORD = 8
SHORT, LONG, IN_ONE_PLACE = 1, 5, 20
"""Epochs. Of two fits as parties the difference is taken: it is free of set-up and of what comes at the end."""


@dataclass(frozen=True)
class Case:
    """A federation: attributes, parties, rows of a batch."""

    d: int
    parties: int
    batch: int

    def __str__(self) -> str:
        return f"d = {self.d}, K = {self.parties}, n = {self.batch}"


GROWTH = (
    *(Case(d, 3, 16) for d in (10, 20, 40)),
    *(Case(20, parties, 16) for parties in (2, 5)),
    *(Case(20, 3, batch) for batch in (64, 256)),
)
BASELINES = ("sortnregress", "notears", "nobears", "dagma", "sdcd", "dcdfg", "dcdi", "notears_mlp", "dagma_mlp")


@dataclass(frozen=True)
class Cost:
    """What crosses, all parties and the validator together."""

    messages: float
    words: float


def step_cost(sizes: Sequence[int], batch: int, width: int) -> Cost:
    """One step without a look at the whole graph: two messages an ordered pair of parties.

    To the source go a target's masked share, d_k·d_t·h words, and its masked gradients of the batch before, n·d_t·h;
    back comes the source's part of the features, n·d_t·h.
    """
    d, parties = sum(sizes), len(sizes)
    return Cost(2 * parties * (parties - 1), 2 * batch * width * d * (parties - 1) + width * _between(sizes))


def look_cost(sizes: Sequence[int], width: int) -> Cost:
    """One look at the whole graph: both holders' masked shares, then d × d numbers to the validator and back."""
    d, parties = sum(sizes), len(sizes)
    to_validator = 2 * _between(sizes) + sum(size**2 for size in sizes)
    return Cost(2 * parties * (parties - 1) + 2 * parties, 2 * width * _between(sizes) + to_validator + 2 * d**2)


def ahead_cost(sizes: Sequence[int], width: int, looks: float) -> Cost:
    """What is sent ahead for one step without encryption: the targets' masks of norms, as plain numbers.

    For products of the masks with rows goes a seed an epoch and ordered pair, which is not in it.
    """
    return Cost(0, looks * width * _between(sizes))


def _between(sizes: Sequence[int]) -> int:
    """Ordered pairs of attributes that lie with different parties."""
    return sum(sizes) ** 2 - sum(size**2 for size in sizes)


def run(
    repeats: int = 1,
    cases: Sequence[Case] = GROWTH,
    methods: Sequence[str] = BASELINES,
    attributes: int = 15,
    time_limit: float = 120.0,
    epochs: int | None = None,
) -> list[Row]:
    """A row for every case of growth, then one for every method; `epochs` shortens VFedCD's own fits."""
    rows = [growth_row(case, repeats) for case in cases]
    return rows + method_rows(methods, attributes, time_limit, epochs)


def growth_row(case: Case, repeats: int) -> Row:
    """Seconds of a step as parties in threads, beside a step of the same model in one place."""
    sizes = block_sizes(case.d, case.parties)
    steps = 10
    values = np.random.default_rng(0).normal(size=(steps * case.batch, case.d))
    ends = np.cumsum(sizes)[:-1]
    columns = {f"party_{at}": part for at, part in enumerate(np.split(values, ends, axis=1))}
    names = [f"x{at}" for at in range(case.d)]
    fits: dict[int, DiscoveryResult] = {}

    def settings(epochs: int) -> Settings:
        return Settings(epochs=epochs, refit_epochs=0, batch=case.batch, threshold=0.1, held_out=0.0)

    def federated() -> float:
        seconds = {}
        for epochs in (SHORT, LONG):
            started = time.perf_counter()
            fits[epochs] = run_federation(columns, names, settings(epochs), seed=0)
            seconds[epochs] = time.perf_counter() - started
        # On a busy machine the longer fit may even be the faster one; a time is never negative.
        return max(seconds[LONG] - seconds[SHORT], 1e-9) / ((LONG - SHORT) * steps)

    def in_one_place() -> float:
        model = CentralizedVFedCD(settings(IN_ONE_PLACE), case.d, np.random.default_rng(0))
        started = time.perf_counter()
        model.fit(values[None], values[None, :0])
        return (time.perf_counter() - started) / (IN_ONE_PLACE * steps)

    seconds = alternate({"parties": federated, "one place": in_one_place}, repeats)
    exact = settings(1)
    step, look = step_cost(sizes, case.batch, exact.width), look_cost(sizes, exact.width)
    assert isinstance(exact.structure_every, int)
    looks = 1 / exact.structure_every
    ahead = ahead_cost(sizes, exact.width, looks)
    return Row(
        f"a step, {case}",
        median(seconds["parties"]),
        "in one place",
        median(seconds["one place"]),
        {
            "messages": _counted(fits, "messages", steps) - _counted(fits, "offline_messages", steps),
            "formula": step.messages + looks * look.messages,
            "kB": (_counted(fits, "bytes", steps) - _counted(fits, "offline_bytes", steps)) / 1e3,
            "formula kB": WORD * (step.words + looks * look.words) / 1e3,
            "kB ahead": _counted(fits, "offline_bytes", steps) / 1e3,
            "formula kB ahead": WORD * ahead.words / 1e3,
        },
    )


def _counted(fits: dict[int, DiscoveryResult], what: str, steps: int) -> float:
    total = {epochs: sum(sent[what] for sent in fit.sent.values()) for epochs, fit in fits.items()}
    return (total[LONG] - total[SHORT]) / ((LONG - SHORT) * steps)


def method_rows(
    methods: Sequence[str], attributes: int, time_limit: float, epochs: int | None = None, rows: int = 1000
) -> list[Row]:
    """Whole fits of one graph: every method beside VFedCD in one place."""
    from veracausa.data.causal import load_causal
    from veracausa.discovery.methods import build
    from veracausa.discovery.methods.vfedcd.estimator import VFedCD
    from veracausa.errors import InputError
    from veracausa.metrics.graphs import graph_scores

    data = load_causal("synthetic", attributes=attributes, rows=rows, seed=200)
    short: dict[str, Any] = {} if epochs is None else {"epochs": epochs, "refit_epochs": epochs}
    third = [data.names[start::3] for start in range(3)]
    parties = {f"party_{at}": list(names) for at, names in enumerate(third)}
    frame = dict(zip(data.names, data.values.T, strict=True))

    def fitted(estimator: Any, **how: Any) -> tuple[float, dict[str, float]]:
        import polars as pl

        started, computed = time.perf_counter(), time.process_time()
        estimator.fit(pl.DataFrame(frame), **how)
        # On a machine that others use, too, only the second of the two says what a method needs.
        seconds, processor = time.perf_counter() - started, time.process_time() - computed
        scores = graph_scores(data.truth, estimator.adjacency_matrix_)  # type: ignore[arg-type]
        return seconds, {"processor s": processor, "F1": float(scores["f1"]), "SHD": float(scores["shd"])}

    base, found = fitted(VFedCD(**short))
    against = "VFedCD in one place"
    timed = [Row(f"fit, {attributes} attributes: VFedCD in one place", base, against, base, found)]
    seconds, found = fitted(VFedCD(**short), parties=parties)
    timed.append(Row("VFedCD as three parties in threads", seconds, against, base, found))
    for name in methods:
        try:
            seconds, found = fitted(build(name, time_limit=time_limit, timer="processor"))
        except InputError as problem:  # a package that is not installed
            print(f"{name}: left out: {problem}", file=sys.stderr)
            continue
        out_of_time = {"stopped at s": time_limit} if found["processor s"] >= time_limit else {}
        timed.append(Row(name, seconds, against, base, found | out_of_time))
    return timed
