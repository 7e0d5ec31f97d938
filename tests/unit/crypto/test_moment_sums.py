"""The sums that parties open together are exactly those of all rows in one place, encrypted or not."""

from __future__ import annotations

import math
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moment_runs import Run, plan_of, rows_of
from veracausa.arrays import Array
from veracausa.crypto.moments import InPlaceEngine, MomentParty, MomentPlan, Moments, cut, moments_of
from veracausa.crypto.moments.exchange import AHEAD
from veracausa.crypto.moments.packing import DEGREE, PairPacking
from veracausa.crypto.moments.plan import LARGEST_SUM
from veracausa.crypto.randomness import SecureDraws
from veracausa.crypto.ring import centred
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

ENCRYPTIONS = [
    "none",
    pytest.param("bfv", marks=pytest.mark.skipif(find_spec("seal") is None, reason="no seal")),
]


def reference(plan: MomentPlan, rows: dict[str, Array]) -> Moments:
    return moments_of({party: cut(rows[party], plan.block_rows) for party in plan.parties}, plan)


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
@pytest.mark.parametrize("widths", [(3, 5), (1, 1), (70, 2), (2, 130), (4, 2, 7), (2, 3, 1, 4), (0, 3, 4)])
def test_sums_of_all_parties(encryption: str, widths: tuple[int, ...]) -> None:
    plan = plan_of(widths, 700, encryption)
    rows = rows_of(plan)
    opened = Run(plan, rows).start()
    assert opened is not None
    assert np.array_equal(opened.integers, reference(plan, rows).integers)
    whole = np.concatenate([rows[party] for party in plan.parties], axis=1)
    # Each value is rounded by half a unit at most, and its partner is at most 5 here.
    assert np.abs(opened.gram - whole.T @ whole).max() <= 700 * 2 * 5 * 0.5**13


@settings(max_examples=8, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=3),
    rows=st.integers(1, 600),
    bits=st.integers(0, 14),
    zero=st.booleans(),
)
def test_the_twin_and_bfv_open_the_same_integers(widths: list[int], rows: int, bits: int, zero: bool) -> None:
    pytest.importorskip("seal")
    found = []
    for encryption in ("none", "bfv"):
        plan = plan_of(tuple(widths), rows, encryption, value_bits=bits)
        values = rows_of(plan, rows)
        if zero:
            values["bob"] = np.zeros_like(values["bob"])
        opened = Run(plan, values).start()
        assert opened is not None
        found.append(opened.integers)
    assert np.array_equal(*found)


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
def test_the_largest_sums_that_fit(encryption: str) -> None:
    """All values at the limit: sums at the bound of the plan, with both signs, and one bit more is refused."""
    most = math.isqrt(LARGEST_SUM // 512)
    plan = plan_of((2, 2), 512, encryption, limit=float(most), value_bits=0)
    rows = {party: np.full((512, 2), plan.limit) for party in plan.parties}
    rows["bob"][:, 1] *= -1
    opened = Run(plan, rows).start()
    assert opened is not None
    at = opened.slices["ann"], opened.slices["bob"]
    assert np.array_equal(opened.integers[at], 512 * most**2 * np.array([[1, -1], [1, -1]]))
    with pytest.raises(InputError, match="do not fit the field"):
        plan_of((2, 2), 512, encryption, limit=float(most + 1), value_bits=0).check()


@pytest.mark.parametrize("columns", [1, 3, 5, 64, 65, 200, 4096])
def test_products_of_polynomials_hold_the_inner_products(columns: int) -> None:
    """The packing alone, with integers in place of ciphertexts, for one column of the answerer."""
    packing = PairPacking.best(columns, 1, 256, 256)
    rng = np.random.default_rng(columns)
    rows, own = rng.integers(-9, 10, (256, columns)).astype(float), rng.integers(-9, 10, 256).astype(float)
    found = np.zeros(columns)
    polynomials = list(packing.polynomials(rows))
    assert len(polynomials) == packing.ciphertexts(256)
    for at, polynomial in enumerate(polynomials):
        start = at // packing.groups * packing.group_rows
        factor = packing.factor(own[start : start + packing.group_rows])
        assert factor is not None
        product = negacyclic(polynomial, factor)
        group = at % packing.groups
        results = packing.results(product, group)
        found[group * packing.group_columns :][: len(results)] += results
    assert np.array_equal(found, rows.T @ own)


def negacyclic(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a·b modulo X^DEGREE + 1, for small integers modulo P."""
    long = np.zeros(2 * DEGREE, dtype=np.int64)
    left, right = centred(a.astype(np.int64)), centred(b.astype(np.int64))
    for at in np.flatnonzero(right):
        long[at : at + DEGREE] += right[at] * left
    return long[:DEGREE] - long[DEGREE:]


def test_narrow_columns_waste_few_coefficients() -> None:
    for columns in (1, 2, 5, 7, 30, 64, 100, 512):
        packing = PairPacking.best(columns, 64, 1 << 20, 8192)
        used = columns * (1 << 20) / DEGREE
        assert packing.ciphertexts(8192) * 128 <= used * (1 + 1 / columns) + 128 * packing.groups


def _in_a_process(plan: MomentPlan, rows: Array, link: Link, observe: Observer) -> None:
    opened = MomentParty(plan, link.me, cut(rows, plan.block_rows), SecureDraws()).run(link)
    if opened is not None:
        observe({"event": "result", "integers": opened.integers.tolist()})  # type: ignore[typeddict-unknown-key]


def test_between_processes() -> None:
    pytest.importorskip("seal")
    plan = plan_of((3, 2), 300, "bfv")
    rows = rows_of(plan)
    heard: list[list[list[int]]] = []
    programs = {party: partial(_in_a_process, plan, rows[party]) for party in plan.parties}
    Launch("processes", timeout=60).run(programs, lambda event: heard.append(event["integers"]))  # type: ignore[typeddict-item]
    assert np.array_equal(heard, [reference(plan, rows).integers])


def test_memory_does_not_grow_with_rows() -> None:
    """Rows come from a generator, and few of their blocks are alive at a time."""
    peaks = []
    for rows in (40_000, 160_000):
        plan = plan_of((6, 6), rows, "none", block_rows=1024)
        made = partial(halves, plan)
        run = Run(plan, dict.fromkeys(plan.parties, made))
        run.watch = False
        tracemalloc.start()
        opened = run.start()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert opened is not None
        assert np.array_equal(opened.gram, np.full((12, 12), rows / 4))
    assert peaks[1] < 1.2 * peaks[0] + 100_000  # 160,000 rows alone are 7.7 MB


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
def test_few_blocks_and_queries_are_alive(encryption: str) -> None:
    """An owner that is faster than its answerer waits for it."""
    plan = plan_of((3, 3), 128 * 12, encryption, block_rows=128)
    alive: set[int] = set()
    most, under_way, most_under_way = 0, 0, 0

    def blocks() -> Iterator[Array]:
        nonlocal most
        for number, size in enumerate(plan.blocks):
            block = np.full((size, 3), 0.5)
            alive.add(key := hash((number, id(block))))
            weakref.finalize(block, alive.discard, key)
            most = max(most, len(alive))
            yield block

    def counted(sender: str, kind: str, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal under_way, most_under_way
        under_way += {"moment_query": 1, "moment_taken": -1}.get(kind, 0)
        most_under_way = max(most_under_way, under_way)
        return tensors

    class Slow(InPlaceEngine):
        def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
            for task in tasks:
                time.sleep(0.01)
                yield function(task)

    Run(plan, dict.fromkeys(plan.parties, blocks)).start(change=counted, engine=Slow())
    assert len(plan.blocks) == 12
    assert most <= 4  # two at each party
    assert most_under_way <= AHEAD + 1  # a query is counted before its predecessor's receipt is


def halves(plan: MomentPlan) -> Iterator[Array]:
    return (np.full((size, 6), 0.5) for size in plan.blocks)


def test_rows_in_any_order_of_memory() -> None:
    plan = plan_of((3, 4), 700)
    rows = rows_of(plan)
    opened = Run(plan, {party: np.asfortranarray(part) for party, part in rows.items()}).start()
    assert opened is not None
    assert np.array_equal(opened.integers, reference(plan, rows).integers)


def test_progress_ends_at_one() -> None:
    run = Run(plan_of((3, 4), 2000), rows_of(plan_of((3, 4), 2000)))
    run.start()
    for shares in run.shares.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        assert len(shares) > 5


def test_state_of_moments() -> None:
    plan = plan_of((2, 3), 100, epsilon=1.0, clip=2.0)
    opened = Run(plan, rows_of(plan)).start()
    assert opened is not None
    again = Moments.of(opened.state())
    assert np.array_equal(again.integers, opened.integers)
    assert np.array_equal(again.noise, opened.noise)
    assert (again.rows, again.slices, again.unit, again.account) == (
        opened.rows,
        opened.slices,
        opened.unit,
        opened.account,
    )
