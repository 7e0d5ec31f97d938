"""Noise, output and secrets as an estimator's parameters ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.discovery.discover import run_job
from veracausa.discovery.engines import launch as federation
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.vfedcd.estimator import VFedCD

SMALL = {"width": 3, "batch": 10, "epochs": 2, "refit_epochs": 1, "threshold": 0.1, "held_out": 0.0}
PARTIES = {"a": [0, 1], "b": [2]}
X = np.random.default_rng(0).standard_normal((60, 3))


def fitted(**more: Any) -> VFedCD:
    return VFedCD(**SMALL, **more).fit(X, parties=PARTIES)


def test_a_budget_is_told_before_the_fit_and_written_down() -> None:
    heard: list[Any] = []
    made = VFedCD(**SMALL, epsilon=30.0).fit(X, parties=PARTIES, observer=heard.append)
    events = [event["event"] for event in heard]
    assert events.index("noise") < events.index("progress")
    assert made.noise_ is not None
    assert made.noise_["epsilon"] == pytest.approx(30.0, rel=1e-6)
    assert made.noise_["guarantee"] == "differential privacy"
    assert any("epsilon 30 at delta 1e-05" in note for note in made.notes_)
    assert fitted().noise_ is None


def test_a_heuristic_is_called_one() -> None:
    made = fitted(laplace=64.0)
    assert any("heuristic, gives no guarantee" in note for note in made.notes_)


@pytest.mark.parametrize(("more", "seed"), [
    ({}, 5),
    ({"encryption": "bfv"}, None),
    ({"encryption": "paillier"}, None),
    ({"epsilon": 4.0}, None),
])  # fmt: skip
def test_where_secrets_matter_no_seed_is_handed_on(
    more: dict[str, Any], seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed is public, in the run's own folder: masks and first weights that followed from it would hide nothing."""

    class Stopped(Exception):
        pass

    def asked(*given: Any, **how: Any) -> None:
        assert how["seed"] == seed
        raise Stopped

    monkeypatch.setattr(federation, "run_federation", asked)
    with pytest.raises(Stopped):
        fitted(seed=5, **more)


@pytest.mark.slow
def test_the_record_has_the_policy_and_each_party_its_edges(tmp_path: Path) -> None:
    data = {"name": "synthetic", "attributes": 4, "rows": 60}
    parties = {"a": ("x0",), "b": ("x1",), "c": ("x2", "x3")}
    settings = {**SMALL, "threshold": 0.0, "reveal": "own", "epsilon": 9.0}
    job = DiscoveryJob(data=data, parties=parties, method="vfedcd", settings=settings)
    run = run_job(job, tmp_path / "run")
    assert run.summary["reveal"] == "own"
    assert run.summary["noise"]["epsilon"] == pytest.approx(9.0, rel=1e-6)
    lines = (tmp_path / "run" / "parties" / "a" / "edges.csv").read_text().splitlines()[1:]
    assert lines
    assert all("x0" in line for line in lines)


def test_the_strong_mode_is_one_word() -> None:
    made = fitted(strong=True)
    assert made.strengths_.shape == (3, 3)
    assert any("only sums over batches were opened" in note for note in made.notes_)
