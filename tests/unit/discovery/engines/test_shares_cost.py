"""What a discovery on shares says beforehand that it will take, beside what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.shares.cost import expected_cost
from veracausa.discovery.engines.shares.plan import make_plan
from veracausa.discovery.methods.vfedcd.settings import Search, Settings


@pytest.mark.parametrize("searches", [[], [Search(), Search(epochs=12), Search()]])
def test_bytes_and_messages_are_nearly_those_that_are_sent(searches: list[Search]) -> None:
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=(100, size)) for name, size in (("a", 2), ("b", 2), ("c", 1))}
    settings = Settings(epochs=6, refit_epochs=6, batch=16, searches=searches)
    names = [f"x{at}" for at in range(5)]
    told = expected_cost(make_plan(columns, names, settings, None, 1))
    sent = run_federation(columns, names, settings, seed=1).sent.values()
    assert told.bytes == pytest.approx(sum(one["bytes"] for one in sent), rel=0.3)
    assert told.messages == pytest.approx(sum(one["messages"] for one in sent), rel=0.15)
    assert told.seconds is not None
    assert told.seconds > 0


def test_the_time_of_encryption_is_not_guessed() -> None:
    columns = {"a": np.zeros((50, 1)), "b": np.zeros((50, 1))}
    assert expected_cost(make_plan(columns, ["x", "y"], Settings(encryption="bfv"), None, 1)).seconds is None


@pytest.mark.parametrize(("change", "expected"), [
    ({}, [0, 2, 4, 6, 7, 8, 8]),
    ({"shares": "all"}, [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 8]),
    ({"likelihood": "auto"}, [0, 2, 4, 6, 7, 8, 8, 10, 12, 14, 15, 16, 16]),
])  # fmt: skip
def test_epochs_are_counted_by_rounds(change: dict[str, str], expected: list[int]) -> None:
    settings = Settings(epochs=3, refit_epochs=2, searches=[Search(), Search(epochs=1)], **change)
    plan = make_plan({"a": np.zeros((50, 1)), "b": np.zeros((50, 1))}, ["x", "y"], settings, None, 1)
    done = [plan.epochs_done(rounds) for rounds in range(plan.groups[-1].last + 2)]
    assert done == expected
    assert done[-1] == plan.epochs
