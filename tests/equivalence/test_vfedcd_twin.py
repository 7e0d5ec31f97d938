"""The federation on integer shares learns what the floating-point model learns."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.shares.plaintext_twin import discover_plaintext
from veracausa.discovery.engines.shares.plan import Precomputing
from veracausa.discovery.methods.vfedcd.settings import Search, Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import RunError

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "vfedcd"))
from agreement import compare, means

SMALL = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())
SEVERAL = (Search(), Search(epochs=1, acyclicity_growth=0.2), Search(acyclicity="trace_exponential"))


def _parties(*sizes: int) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    values = np.random.default_rng(0).standard_normal((60, sum(sizes)))
    values[:, 1:] += np.sin(values[:, :-1])
    values = (values - values.mean(0)) / values.std(0)
    blocks = np.split(values, np.cumsum(sizes)[:-1], axis=1)
    return {f"p{at}": block for at, block in enumerate(blocks)}, tuple(f"x{at}" for at in range(sum(sizes)))


def _same(first: DiscoveryResult, second: DiscoveryResult) -> bool:
    arrays = (first.strengths == second.strengths).all() and (first.allowed == second.allowed).all()
    numbers = [(fit.threshold, fit.held_out_loss, fit.history, fit.search) for fit in (first, second)]
    assert first.figures is not None
    assert second.figures is not None
    figures = np.array_equal(first.figures, second.figures, equal_nan=True)
    return bool(arrays) and numbers[0] == numbers[1] and figures


@pytest.mark.parametrize(("sizes", "change", "more"), [
    ((2, 1, 3), {}, {}),
    ((1, 4), {"structure_every": 4}, {"local_steps": 2}),
    ((3, 2), {"refit_epochs": 0, "threshold": "mixture"}, {}),
    ((2, 2), {"threshold": "held_out_graphs"}, {}),
    ((2, 1, 1), {"searches": SEVERAL}, {}),
    ((1, 2), {"searches": SEVERAL, "threshold": "held_out_graphs"}, {"shares": "all"}),
])  # fmt: skip
def test_what_shares_open_is_what_the_weights_themselves_give(
    sizes: tuple[int, ...], change: dict[str, Any], more: dict[str, Any]
) -> None:
    columns, names = _parties(*sizes)
    settings = SMALL.model_copy(update=change)
    forbidden = np.zeros((len(names), len(names)), dtype=bool)
    forbidden[0, -1] = forbidden[1, 0] = True
    more = {"seed": 3, "forbidden": forbidden, **more}
    shared = run_federation(columns, names, settings, timeout=60.0, **more)
    more.pop("shares", None)
    assert _same(shared, discover_plaintext(columns, names, settings, **more))
    assert not _same(shared, discover_plaintext(columns, names, settings, **{**more, "seed": 4}))


def test_the_search_is_kept_that_makes_training_rows_likeliest_and_each_has_weights_of_its_own() -> None:
    columns, names = _parties(2, 2)
    settings = SMALL.model_copy(update={"searches": SEVERAL})
    several = discover_plaintext(columns, names, settings, seed=3)
    losses = [record["loss"] for record in several.history]
    last = np.cumsum([one.epochs + one.refit_epochs for one in settings.each])
    assert len(losses) == last[-1]
    assert several.search == np.argmin([losses[end - 1] for end in last])
    twice = discover_plaintext(columns, names, SMALL.model_copy(update={"searches": (Search(), Search())}), seed=3)
    first, second = twice.history[:3], twice.history[3:]
    assert first == several.history[:3]
    assert [record["loss"] for record in first] != [record["loss"] for record in second]


@pytest.mark.parametrize("at", [3, 5])
def test_searches_go_on_after_a_kill_in_any_of_them(tmp_path: Path, at: int) -> None:
    columns, names = _parties(2, 1)
    settings = SMALL.model_copy(update={"searches": SEVERAL})

    def kill(event: Mapping[str, Any]) -> None:
        if event["step"] == at:
            raise RunError("killed")

    how: dict[str, Any] = {"seed": 3, "checkpoint_every": 1, "out": tmp_path / "run"}
    with pytest.raises(RunError):
        run_federation(columns, names, settings, **how, observer=kill)
    resumed = run_federation(columns, names, settings, **how, resume=True)
    assert _same(resumed, discover_plaintext(columns, names, settings, seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("encryption", ["bfv", "paillier"])
@pytest.mark.parametrize("precompute", ["inline", "process"])
def test_an_encrypted_training_gives_the_integers_of_the_twin_also_after_a_resume(
    tmp_path: Path, encryption: str, precompute: Precomputing
) -> None:
    pytest.importorskip({"bfv": "seal", "paillier": "gmpy2"}[encryption])
    columns, names = _parties(2, 1)
    searches = (Search(epochs=1), Search(acyclicity_growth=0.2))
    settings = SMALL.model_copy(update={"epochs": 1, "candidates": 2, "searches": searches})
    twin = discover_plaintext(columns, names, settings, seed=3)
    how: dict[str, Any] = {"encryption": encryption, "precompute": precompute, "timeout": 900.0, "checkpoint_every": 1}

    def kill(event: Mapping[str, Any]) -> None:
        if event["step"] == 3:
            raise RunError("killed")

    with pytest.raises(RunError):
        run_federation(columns, names, settings, seed=3, **how, out=tmp_path / "run", observer=kill)
    resumed = run_federation(columns, names, settings, seed=3, **how, out=tmp_path / "run", resume=True)
    assert _same(resumed, twin)


@pytest.mark.slow
def test_the_twin_finds_the_chain_that_the_floats_find() -> None:
    rows = [compare(4, 3, 100, seed, Settings(epochs=60, refit_epochs=60)) for seed in range(2)]
    for row in rows:
        assert row["float"]["shd"] <= 1
        assert row["twin"]["shd"] <= 1


@pytest.mark.slow
def test_over_several_graphs_the_twin_is_as_near_to_the_truth_as_the_floats() -> None:
    # The mean over six fits: single ones differ by several edges with another seed, in floats as well, and the mean of
    # six still by one or two to either side. To be nearer is no fault; results/vfedcd/twin has the mean of many.
    rows = [compare(10, 40, graph, seed, Settings(searches=[])) for graph in (200, 201, 202) for seed in range(2)]
    found = means(rows)["10/40"]
    assert found["difference"] <= 1.5
    assert found["twin"] < 20  # the empty graph has 40
