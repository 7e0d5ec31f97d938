"""What is refused: plans that tell rows or do not fit, rows that do not fit the plan, and messages that are wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from moment_runs import Run, plan_of, rows_of
from veracausa.crypto.moments import MomentPlan, column_support, cut, most_bits
from veracausa.crypto.moments.encoding import encode_block, encoded_blocks, exact_product
from veracausa.crypto.moments.protocol import moment_answer, moment_query
from veracausa.errors import InputError, WireError

BFV = pytest.param("bfv", marks=pytest.mark.skipif(find_spec("seal") is None, reason="no seal"))
GOOD = MomentPlan(("ann", "bob"), {"ann": 3, "bob": 4}, 1000, "ann", "none")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": 69}, "sums tell rows"),
        ({"rows": 0}, "no rows"),
        ({"parties": ("ann",), "widths": {"ann": 3}}, "two or more"),
        ({"parties": ("ann", "ann")}, "two or more"),
        ({"widths": {"ann": 3}}, "two or more"),
        ({"receiver": "eve"}, "'eve' is none of the parties"),
        ({"widths": {"ann": 3, "bob": 0}}, "'bob' has 0 columns"),
        ({"widths": {"ann": 3, "bob": 5000}}, "'bob' has 5000 columns"),
        ({"encryption": "rot13"}, "no such encryption"),
        ({"block_rows": 100}, "multiple of 128"),
        ({"block_rows": 0}, "multiple of 128"),
        ({"value_bits": 31}, "value_bits"),
        ({"limit": float("nan")}, "limit"),
        ({"limit": 0.0}, "limit"),
        ({"value_bits": 20}, "do not fit the field; take at most 19 bits"),
        ({"value_bits": 30}, "beyond 67108864"),
        ({"clip": -1.0}, "clip"),
        ({"epsilon": 1.0}, "epsilon needs clip"),
        ({"epsilon": 0.0, "clip": 1.0}, "take ε > 0"),
        ({"epsilon": 1.0, "clip": 1.0, "delta": 1.0}, "take ε > 0"),
        ({"epsilon": 1.0, "clip": 1.0, "budget": 0.5}, "more than the agreed budget"),
        ({"epsilon": 1e-6, "clip": 16.0, "value_bits": 16}, "noise that the field can not hold"),
    ],
)
def test_plans_that_are_refused(change: dict[str, Any], says: str) -> None:
    GOOD.check()
    with pytest.raises(InputError, match=says):
        replace(GOOD, **change).check()


def test_few_rows_can_be_allowed() -> None:
    replace(GOOD, rows=69, allow_small_n=True).check()
    replace(GOOD, rows=70).check()


def test_the_bits_that_fit() -> None:
    for rows, limit in ((1000, 16.0), (10**7, 16.0), (20_000, 3.0)):
        bits = most_bits(rows, limit)
        replace(GOOD, rows=rows, limit=limit, value_bits=bits).check()
        with pytest.raises(InputError):
            replace(GOOD, rows=rows, limit=limit, value_bits=bits + 1).check()


def test_every_part_of_a_plan_is_in_its_digest() -> None:
    changes: dict[str, Any] = {
        "parties": ("bob", "ann"),
        "widths": {"ann": 4, "bob": 3},
        "rows": 1001,
        "receiver": "bob",
        "encryption": "bfv",
        "value_bits": 11,
        "limit": 15.0,
        "clip": 1.0,
        "epsilon": 2.0,
        "delta": 1e-6,
        "block_rows": 256,
        "allow_small_n": True,
        "budget": 9.0,
        "rows_digest": "x",
        "receiver_noise": True,
    }
    assert set(changes) == set(GOOD.__dataclass_fields__)
    assert len({GOOD.digest(), *(replace(GOOD, **{name: value}).digest() for name, value in changes.items())}) == 16


@pytest.mark.parametrize(
    ("value", "says"), [(np.nan, "not numbers"), (np.inf, "not numbers"), (16.001, "beyond the agreed limit 16")]
)
def test_values_that_are_refused(value: float, says: str) -> None:
    block = np.zeros((10, 3))
    block[7, 1] = value
    with pytest.raises(InputError, match=says) as refused:
        encode_block(GOOD, "ann", block, 10)
    assert "feature 1 of 'ann'" in str(refused.value)
    assert "7" not in str(refused.value)  # it reaches the partners


def test_other_numbers_of_rows_are_refused() -> None:
    for rows, says in ((999, "999×3"), (1001, "1001×3")):
        with pytest.raises(InputError, match=says):
            list(encoded_blocks(GOOD, "ann", cut(np.zeros((rows, 3)), 8192)))
    small = replace(GOOD, block_rows=128, rows=256)
    for rows, says in ((128, "fewer than"), (384, "more than")):
        with pytest.raises(InputError, match=says):
            list(encoded_blocks(small, "ann", cut(np.zeros((rows, 3)), 128)))


def test_integers_at_the_edge_of_a_float() -> None:
    most = 1 << 26
    a = np.full((5, 1), float(most))
    b = a - np.arange(5.0)[:, None]
    assert exact_product(a, b, most)[0, 0] == sum(most * (most - n) for n in range(5))


def test_columns_on_few_rows() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(1000, 6))
    columns[:, 0] = 0.0
    columns[[3, 500, 900], 0] = 1.0  # an indicator of three rows
    columns[:, 1] = 1.0  # constant
    columns[:, 2] = rng.random(1000) < 0.03
    columns[:, 3] = 5.0 - (np.arange(1000) == 999)  # a flag the other way round, of the last row
    columns[:, 4] = np.where(np.arange(1000) == 17, 900.0, rng.normal(size=1000))  # all values differ, one rules
    scaled = (columns - columns.mean(0)) / np.maximum(columns.std(0), 1e-9)
    for rows in (128, 1000):
        support = column_support(cut(scaled, rows)(), 20)
        assert support.thin(20) == [0, 3]
        assert support.rows[0] == 3
        assert support.rows[3] == 1
        assert support.rows[1] == 0
        assert support.effective[0] == pytest.approx(3)
        assert support.effective[4] < 2
        assert support.effective[5] > 300
    assert column_support([scaled[:30]], 20).thin(20) == [0]  # fewer rows than the median needs
    with pytest.raises(InputError):
        column_support([], 20)


def test_another_plan_is_refused() -> None:
    plan = plan_of((2, 3), 300)
    with pytest.raises(WireError, match="another plan") as refused:
        Run(plan, rows_of(plan)).start(plans={"bob": replace(plan, limit=15.0)})
    assert refused.value.field == "agreed.fingerprint"


def changed(kind: str, name: str, change: Any, sender: str = "") -> Any:
    def apply(by: str, what: str, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**tensors, name: change(tensors[name].clone())} if what == kind and sender in ("", by) else tensors

    return apply


def flipped(data: torch.Tensor) -> torch.Tensor:
    data[data.numel() // 2] ^= 1
    return data


@pytest.mark.parametrize("encryption", ["none", BFV])
@pytest.mark.parametrize("kind", ["moment_query", "moment_answer"])
@pytest.mark.parametrize(
    "change", [lambda d: d[:-8], lambda d: torch.cat([d, d[:8]]), lambda d: d[:0], lambda d: d.to(torch.int32)]
)
def test_messages_of_another_size(encryption: str, kind: str, change: Any) -> None:
    plan = plan_of((2, 3), 300, encryption)
    with pytest.raises(WireError):
        Run(plan, rows_of(plan)).start(change=changed(kind, "rows" if kind == "moment_query" else "sums", change))


@pytest.mark.parametrize("kind", ["moment_query", "moment_answer", "key"])
def test_a_damaged_ciphertext(kind: str) -> None:
    pytest.importorskip("seal")
    plan = plan_of((2, 3), 300, "bfv")
    name = {"moment_query": "rows", "moment_answer": "sums", "key": "key"}[kind]
    with pytest.raises(WireError):
        Run(plan, rows_of(plan)).start(change=changed(kind, name, flipped, "" if kind != "key" else "bob"))


@pytest.mark.parametrize(
    ("kind", "name", "change", "says"),
    [
        ("moment_query", "rows", lambda d: torch.full_like(d, 127), "beyond the agreed range"),
        ("moment_answer", "sums", lambda d: torch.full_like(d, 255), "outside the field"),
        ("moment_share", "own", lambda d: d - (1 << 60), "outside the field"),
        ("moment_share", "shares", lambda d: (d + (1 << 57)) % ((1 << 59) - 212991), "wrong shares"),
        ("moment_share", "shares", lambda d: d[1:], "declared"),
        ("toss shown", "nonce", flipped, "another nonce"),
    ],
)
def test_numbers_that_can_not_be(kind: str, name: str, change: Any, says: str) -> None:
    plan = plan_of((2, 3), 300)
    with pytest.raises(WireError, match=says):
        Run(plan, rows_of(plan)).start(change=changed(kind, name, change))


def test_kinds_bound_what_may_come() -> None:
    """A message that announces more than the plan could need is refused by its declared size, before it is read."""
    packing = GOOD.packing("ann", "bob")
    for kind, name in ((moment_query(packing), "rows"), (moment_answer(packing), "sums")):
        most = kind.tensors[name].max_free
        assert most < 64 * 20 * 8192 + 300
        with pytest.raises(WireError):
            kind.check({name: (torch.uint8, (most + 1,))}, {})


def test_pairs_are_all_pairs_in_an_order_without_waiting_in_circles() -> None:
    plan = plan_of((3, 4, 5, 6), 1000)
    assert {frozenset(pair) for pair in plan.pairs} == {
        frozenset({a, b}) for a in plan.parties for b in plan.parties if a != b
    }
    assert len(plan.pairs) == 6
    assert not {*plan.pairs[0]} & {*plan.pairs[1]}  # two pairs at the same time
    reversed_names = replace(plan, parties=plan.parties[::-1])
    assert {*reversed_names.pairs} == {*plan.pairs}  # who encrypts does not depend on the order of names


def test_workers_of_an_engine_need_no_torch() -> None:
    """It would take them seconds to start, and hundreds of megabytes each."""
    pytest.importorskip("seal")
    words = "import sys, veracausa.crypto.moments.bfv_pairs; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "False\n"
