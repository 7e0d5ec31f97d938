"""What one row can add is bounded, whatever it is: rows, gradients, integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.crypto.fixed_point import GRADIENT_BITS, encode_columns
from veracausa.crypto.randomness import Masks, make_draws
from veracausa.discovery.methods.vfedcd.decoders import Decoders
from veracausa.discovery.privacy.mechanism import Mechanism, PrivateDecoders, clip_rows, encode_clipped
from veracausa.discovery.privacy.options import Privacy

D, H = 4, 3


def source(seed: int | None) -> Masks:
    return make_draws(seed, "a").masks("noise")


def decoders(mechanism: Mechanism | None, likelihood: str = "gaussian", depth: int = 1, draws: int = 0) -> Decoders:
    binary = np.array([False, True, False, False])
    shape = (1, D, H, depth, "tanh", binary, likelihood, np.random.default_rng(7))
    return PrivateDecoders(*shape, mechanism=mechanism, source=source(draws)) if mechanism else Decoders(*shape)


def batch(rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    target = rng.standard_normal((1, D, rows))
    target[:, 1] = target[:, 1] > 0
    return 3 * rng.standard_normal((1, D, rows, H)), target


@pytest.mark.parametrize("likelihood", ["gaussian", "mse"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_without_clip_and_noise_the_step_is_the_plain_one(likelihood: str, depth: int) -> None:
    features, target = batch()
    plain, private = (decoders(m, likelihood, depth) for m in (None, Mechanism(1e9, 5.0, D, H, 0.0)))
    one, other = (made.step(features, target, 0.1, 0.01) for made in (plain, private))
    assert np.allclose(one.features, other.features, atol=1e-12)
    assert np.allclose(one.losses, other.losses)
    for name, value in plain.values.items():
        assert np.allclose(value, private.values[name], atol=1e-12), name


@pytest.mark.parametrize("outlier", [1.0, 1e6])
def test_replacing_a_row_moves_all_gradients_by_no_more_than_twice_the_contribution(outlier: float) -> None:
    """Encoder and decoders of all targets together, the encoder by the worst row x that parties let through."""
    features, target = batch()
    mechanism = Mechanism(0.7, 2.5, D, H, 0.0)
    moved, rate, rows = [], 1.0, features.shape[2]
    for replaced in (False, True):
        if replaced:
            features, target = features.copy(), target.copy()
            features[:, :, 2] *= -1
            target[:, [0, 2, 3], 2] += outlier
        made = decoders(mechanism)
        before = {name: value.copy() for name, value in made.values.items()}
        step = made.step(features, target, rate)
        parts = [(made.values[name] - value).ravel() for name, value in before.items()]
        moved.append((np.concatenate(parts) * rows, step.features[0, :, 2].ravel() * rows))
    (rest, row), (other_rest, other_row) = moved
    encoder = mechanism.row * (np.linalg.norm(row) + np.linalg.norm(other_row))
    change = np.hypot(np.linalg.norm(rest - other_rest), encoder)
    assert change <= 2 * mechanism.contribution * (1 + 1e-9)
    assert change > 0.5 * mechanism.contribution  # the bound is not met by clipping everything away


def test_decoders_get_noise_too() -> None:
    features, target = batch()
    quiet, noisy = (decoders(Mechanism(0.7, 2.5, D, H, noise)) for noise in (0.0, 2.0))
    quiet.step(features, target, 0.1)
    noisy.step(features, target, 0.1)
    apart = np.concatenate([(quiet.values[name] - noisy.values[name]).ravel() for name in quiet.values])
    expected = 0.1 * 2.0 * 0.7 * np.sqrt(D) / features.shape[2]
    assert apart.std() == pytest.approx(expected, rel=0.25)
    assert (apart != 0).all()


@settings(max_examples=30, deadline=None)
@given(scale=st.floats(1e-3, 1e4), limit=st.floats(0.1, 4.0), seed=st.integers(0, 99))
def test_rows_keep_to_their_limit_after_they_became_integers(scale: float, limit: float, seed: int) -> None:
    values = scale * np.random.default_rng(seed).standard_normal((20, 3))
    clipped = clip_rows(values, limit)
    integers = encode_columns(clipped, ("a", "b", "c"))
    assert (np.sqrt(np.square(integers / 2.0**7).mean(1)) <= limit).all()
    small = np.sqrt(np.square(values).mean(1)) < 0.9 * limit
    assert np.abs(clipped - values)[small].max(initial=0.0) <= 2.0**-7


@settings(max_examples=30, deadline=None)
@given(units=st.floats(0.05, 300), seed=st.integers(0, 99))
def test_integers_keep_to_the_bound_that_the_noise_counts_on(units: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mechanism = Mechanism(1.0, 2.0, D, H, 1.0, unit=1 / np.sqrt(5) / units)
    assert mechanism.most_units == pytest.approx(units)
    steps = rng.standard_normal((50, 2, H))
    steps *= units / np.linalg.norm(steps, axis=2, keepdims=True) / 2.0**GRADIENT_BITS
    encoded = encode_clipped(steps.reshape(50, -1), mechanism, rng)
    assert (encoded == np.rint(encoded)).all()
    assert (np.linalg.norm(encoded.reshape(50, 2, H), axis=2) <= mechanism.rounded_units).all()
    assert np.abs(encoded / 2.0**GRADIENT_BITS - steps.reshape(50, -1)).max() < 1.001 / 2.0**GRADIENT_BITS


def test_what_can_not_be_a_budget_is_refused() -> None:
    for wrong in ({"epsilon": 0}, {"epsilon": 1, "delta": 1.0}, {"epsilon": 1, "clip": -1}, {"epsilon": 1, "sigma": 2}):
        with pytest.raises(ValueError, match=r"epsilon|delta|clip|sigma"):
            Privacy(**wrong)
