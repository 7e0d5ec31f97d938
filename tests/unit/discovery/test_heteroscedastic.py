"""A likelihood whose variance follows from the causes: its gradients, when it is chosen, and parties that learn it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.data.causal import load_causal
from veracausa.data.causal.columns import standardised
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.shares.plaintext_twin import discover_plaintext
from veracausa.discovery.methods.vfedcd.decoders import FAR, LEAST, HeteroscedasticDecoders, rounding_variance
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Search, Settings
from veracausa.discovery.privacy.options import Privacy
from veracausa.errors import InputError, RunError


def decoders_and_rows(**changes: float) -> tuple[HeteroscedasticDecoders, np.ndarray, np.ndarray]:
    """Three targets, the last one binary, and eight rows."""
    rng = np.random.default_rng(0)
    decoders = HeteroscedasticDecoders(1, 3, 4, 1, "tanh", np.array([False, False, True]), "heteroscedastic", rng)
    decoders.values["readout_variance"] += rng.normal(0, 0.5, (1, 3, 4, 1))
    for name, value in changes.items():
        decoders.values[name] += value
    target = rng.normal(0, 1, (1, 3, 8))
    target[:, 2] = target[:, 2] > 0
    return decoders, rng.normal(0, 1, (1, 3, 8, 4)), target


@pytest.mark.parametrize("log_variance", [0.0, -4.0], ids=["near", "beyond"])
def test_a_step_goes_down_the_gradient_of_the_losses(log_variance: float):
    decoders, features, target = decoders_and_rows(log_variance=log_variance)
    before = {name: value.copy() for name, value in decoders.values.items()}
    spread = np.exp(0.5 * (decoders._forward(features)[0][-1] @ before["readout_variance"] + before["log_variance"]))
    far = np.abs(decoders._forward(features)[1] - target[..., None]) > FAR * spread
    assert far.any() == (log_variance < 0)

    def loss(name: str, at: tuple[int, ...], by: float) -> float:
        where = features if name == "features" else decoders.values[name]
        old, where[at] = where[at], where[at] + by
        total = float(decoders.losses(features, target).sum())
        where[at] = old
        return total

    step = decoders.step(features, target, 1.0)
    found = {name: before[name] - value for name, value in decoders.values.items()} | {"features": step.features}
    decoders.values = before
    for name, gradient in found.items():
        for at in [(0, 0, *[0] * (gradient.ndim - 2)), (0, 2, *[-1] * (gradient.ndim - 2))]:
            slope = (loss(name, at, 1e-6) - loss(name, at, -1e-6)) / 2e-6
            assert gradient[at] == pytest.approx(slope, abs=1e-6), name


def test_no_row_is_surer_than_rounding_and_the_bound_allow():
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.2, 500).astype(float)
    rows = np.stack([counts, rng.normal(size=500), np.zeros(500)], axis=1)
    rows, _, scale = standardised(rows)
    assert rounding_variance(rows[None])[0] == pytest.approx([1 / 12 / scale[0] ** 2, 0.0, 0.0], abs=1e-6)
    decoders, features, target = decoders_and_rows(log_variance=-50.0)
    decoders.observe(rows[None])
    assert np.exp(decoders.least[0, :, 0, 0]) == pytest.approx([1 / 12 / scale[0] ** 2, LEAST, LEAST])
    exact = target.copy()
    exact[:, :2] = decoders.predict(features)[:, :2]
    assert decoders.losses(features, exact)[0, :2] == pytest.approx(decoders.least[0, :2, 0, 0] / 2)
    frozen = decoders.values["log_variance"].copy()
    decoders.step(features, exact, 0.1)
    assert np.array_equal(decoders.values["log_variance"], frozen), "what is sure enough does not become surer"


SHORT: dict[str, Any] = {"epochs": 40, "refit_epochs": 40, "engine": "floating", "searches": []}


def test_where_rows_kept_apart_prefer_one_variance_every_bit_is_that_of_a_fit_without_the_choice():
    data = load_causal("synthetic", attributes=5, edges=7, rows=400, seed=100)
    before = VFedCD(**SHORT).fit(data.values)
    after = VFedCD(**SHORT, likelihood="auto").fit(data.values)
    assert after.search_ == 0
    assert "likelihood gaussian: held-out rows are likelier under it" in after.notes_
    assert np.array_equal(before.strengths_, after.strengths_)
    assert (before.threshold_, before.held_out_log_likelihood_) == (after.threshold_, after.held_out_log_likelihood_)


def test_rows_kept_apart_choose_it_where_noise_is_multiplied():
    data = load_causal("synthetic", attributes=5, edges=7, rows=400, seed=100, violation="multiplicative")
    found = VFedCD(**SHORT, likelihood="auto").fit(data.values)
    assert found.search_ == 1
    assert "likelihood heteroscedastic: held-out rows are likelier under it" in found.notes_


SMALL = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())
BOTH = SMALL.model_copy(update={"likelihood": "auto"})


def parties() -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    data = load_causal("synthetic", attributes=3, edges=3, rows=60, seed=1, violation="multiplicative")
    return {"a": data.values[:, :2], "b": data.values[:, 2:]}, data.names


def test_parties_learn_it_as_the_whole_does_and_go_on_in_it_after_a_kill(tmp_path: Path):
    columns, names = parties()
    whole = discover_plaintext(columns, names, BOTH, seed=3)
    alone = discover_plaintext(columns, names, SMALL, seed=3)
    assert whole.history[:3] == alone.history
    repeated = SMALL.model_copy(update={"searches": (Search(), Search())})
    assert whole.history[3:] != discover_plaintext(columns, names, repeated, seed=3).history[3:]

    def kill(event: Mapping[str, Any]) -> None:
        if event["step"] == 5:
            raise RunError("killed")

    how: dict[str, Any] = {"seed": 3, "checkpoint_every": 1, "out": tmp_path / "run"}
    with pytest.raises(RunError):
        run_federation(columns, names, BOTH, **how, observer=kill)
    resumed = run_federation(columns, names, BOTH, **how, resume=True)
    assert np.array_equal(resumed.strengths, whole.strengths)
    assert (resumed.search, resumed.threshold, resumed.history) == (whole.search, whole.threshold, whole.history)


def test_where_it_can_not_be_had_is_said():
    columns, names = parties()
    settings = SMALL.model_copy(update={"likelihood": "heteroscedastic"})
    for strong in (settings, BOTH):
        with pytest.raises(InputError, match=r"likelihood: the strong mode has no '(heteroscedastic|auto)'"):
            run_federation(columns, names, strong, strong=True)
    hidden = settings.model_copy(update={"held_out": 0.0, "threshold": 0.1})
    with pytest.raises(InputError, match=r"not built for the likelihood '(heteroscedastic|auto)'"):
        run_federation(columns, names, hidden, privacy=Privacy(epsilon=10.0))
    for lacking in ({"held_out": 0.0, "threshold": 0.1}, {"refit_epochs": 0}):
        with pytest.raises(InputError, match="likelihood: auto compares refits on held-out rows; set held_out"):
            VFedCD(likelihood="auto", **lacking).settings()


def test_auto_makes_every_search_with_both_and_the_simpler_ones_first():
    each = Settings(likelihood="auto").each
    plain = Settings().each
    assert each[: len(plain)] == plain
    assert [one.model_copy(update={"likelihood": "gaussian"}) for one in each[len(plain) :]] == list(plain)
    assert {one.likelihood for one in each[len(plain) :]} == {"heteroscedastic"}
