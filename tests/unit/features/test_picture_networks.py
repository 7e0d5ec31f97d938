"""Objectives that train a network on a party's own pictures: they learn, resume bit for bit, and refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from veracausa.arrays import Array
from veracausa.errors import InputError, RunError
from veracausa.features import feature_maps
from veracausa.features.base import FitContext, FitLabels, OwnRows
from veracausa.features.encoder import Reduction, build_encoder, principal_components
from veracausa.features.methods.sigreg import epps_pulley
from veracausa.features.methods.simclr import nt_xent
from veracausa.features.methods.vicreg import covariance_term, variance_term
from veracausa.models import models
from veracausa.runs.store import deserialize_state, same, serialize_state

OBJECTIVES = ("simclr", "vicreg", "sigreg", "decomposition")
CONVNET = models.options("convnet")(name="convnet")


def waves(n: int, seed: int, shape: tuple[int, int, int] = (3, 16, 8), classes: int = 4) -> tuple[Tensor, Tensor]:
    """Pictures of waves whose direction is their class; phase, colour and noise are each picture's own."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=rng)
    down, across = torch.meshgrid(torch.arange(shape[1]).float(), torch.arange(shape[2]).float(), indexing="ij")
    angle = (labels * math.pi / classes)[:, None, None]
    phase = torch.rand(n, 1, 1, generator=rng) * 2 * math.pi
    wave = torch.sin(1.2 * (across * angle.cos() + down * angle.sin()) + phase)[:, None]
    colour = torch.rand(n, shape[0], 1, 1, generator=rng) + 0.5
    x = 0.5 + 0.35 * wave * colour + 0.25 * torch.randn(n, *shape, generator=rng)
    return (x.clamp(0, 1) * 255).to(torch.uint8), labels


def probe(train: Array, labels: Tensor, test: Array, wanted: Tensor) -> float:
    """Accuracy of a linear classifier on held-out rows."""
    from sklearn.linear_model import RidgeClassifier

    mean, spread = train.mean(0), train.std(0) + 1e-9
    head = RidgeClassifier(alpha=10.0).fit((train - mean) / spread, labels)
    return float(head.score((test - mean) / spread, wanted))


def made(name: str, **settings: Any) -> Any:
    settings = {"epochs": 2, "batch_size": 50, "projector": (32, 16), **settings}
    if name == "decomposition":
        settings.setdefault("surrogate", {"name": "jitter"})
    if name == "sigreg":
        settings.setdefault("slices", 64)
    return feature_maps.get(name)(feature_maps.options(name)(name=name, **settings))


def context(seed: int = 0, **given: Any) -> FitContext:
    return FitContext(torch.Generator().manual_seed(seed), model=given.pop("model", CONVNET), **given)


class Memory:
    """A store that goes through the bytes of a file."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.saves = 0

    def save(self, state: Mapping[str, Any]) -> None:
        self.content, self.saves = serialize_state(dict(state)), self.saves + 1

    def load(self) -> Mapping[str, Any] | None:
        return None if self.content is None else deserialize_state(self.content)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_learns_more_than_its_first_weights_know(name: str) -> None:
    (x, labels), (unseen, wanted) = waves(400, 0), waves(400, 1)

    def accuracy(**settings: Any) -> float:
        feature_map = made(name, batch_size=100, projector=(64, 32), **settings)
        assert feature_map.fit(OwnRows(x), context(3)) is None
        return probe(feature_map.map(x / 255), labels, feature_map.map(unseen / 255), wanted)

    untrained = accuracy(epochs=1, lr=1e-12)
    # Decomposition starts slowly: correlations of a batch of a hundred are noisy.
    settings = {"epochs": 25, "lr": 3e-3} if name == "decomposition" else {"epochs": 12}
    assert accuracy(**settings) > untrained + 0.04


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_killed_fit_goes_on_to_the_same_bits(name: str) -> None:
    x, labels = waves(120, 0)
    told = FitLabels(labels, 4)
    tuning = {"epochs": 2, "batch_size": 40, "features": "scores", "folds": 2}

    def fit(store: Memory, limit: float = 2.0) -> Any:
        feature_map = made(name, epochs=3, fine_tuning=tuning)

        def progress(share: float) -> None:
            if share > limit:
                raise KeyboardInterrupt

        found = feature_map.fit(OwnRows(x), context(5, labels=told, store=store, progress=progress))
        return {"map": feature_map.state(), "rows": torch.from_numpy(found)}

    whole = fit(Memory())
    for limit in (0.3, 0.7):
        store = Memory()
        with pytest.raises(KeyboardInterrupt):
            fit(store, limit)
        assert store.saves
        assert same(fit(store), whole)


def test_the_same_seed_gives_the_same_bits_and_another_gives_others() -> None:
    x, _ = waves(100, 0)

    def state(seed: int) -> Any:
        feature_map = made("simclr", width=5)
        feature_map.fit(OwnRows(x), context(seed))
        return feature_map.state()

    assert same(state(1), state(1))
    assert not same(state(1), state(2))


@pytest.mark.parametrize("features", ["embedding", "scores"])
@pytest.mark.parametrize("width", [None, 3])
def test_a_state_goes_through_a_file_and_gives_the_same_features(features: str, width: int | None) -> None:
    x, labels = waves(100, 0, (1, 12, 6))
    tuning = {"epochs": 1, "features": features, "folds": 2}
    feature_map = made("simclr", width=width, fine_tuning=tuning)
    found = feature_map.fit(OwnRows(x), context(labels=FitLabels(labels, 4)))
    assert found.shape == (100, feature_map.width)
    assert feature_map.width == (width or (84 if features == "embedding" else 4))
    other = made("simclr", width=width, fine_tuning=tuning)
    other.load_state(deserialize_state(serialize_state(feature_map.state())))
    assert other.width == feature_map.width
    mapped = feature_map.map(x / 255)
    assert mapped.dtype == np.float64
    assert np.array_equal(other.map(x / 255), mapped)
    # Cross-fitted scores are not those of the map that saw all labels; an embedding is the map's own.
    assert np.allclose(found, mapped) == (features == "embedding")


def test_labels_help_and_noise_in_them_is_corrected() -> None:
    (x, labels), (unseen, wanted) = waves(600, 0), waves(400, 1)
    rng = torch.Generator().manual_seed(1)
    kept = 0.5
    told = torch.where(torch.rand(600, generator=rng) < kept, labels, torch.randint(4, (600,), generator=rng))
    transition = kept * np.eye(4) + (1 - kept) / 4
    # No flips: two of the classes are mirror images of each other.
    views = {"flip": 0.0, "crop": 0.7}
    tuning = {"epochs": 15, "batch_size": 100, "lr": 2e-3, "features": "scores", "folds": 2, "views": views}
    feature_map = made("simclr", epochs=1, lr=1e-9, fine_tuning=tuning)
    found = feature_map.fit(OwnRows(x), context(labels=FitLabels(told, 4, transition)))
    assert np.allclose(found.sum(1), 1, atol=1e-5)
    guessed = feature_map.map(unseen / 255).argmax(1)
    assert (guessed == wanted.numpy()).mean() > 0.85
    # A row's own label was not seen: told labels that are wrong are not learnt by heart.
    wrong = (told != labels).numpy()
    assert (found.argmax(1)[wrong] == told.numpy()[wrong]).mean() < 0.3


def test_a_cross_fitted_score_hangs_on_all_labels_but_the_rows_own() -> None:
    x, labels = waves(60, 0)
    tuning = {"epochs": 2, "batch_size": 20, "features": "scores", "folds": 2}

    def scores(told: Tensor) -> Array:
        feature_map = made("simclr", epochs=1, fine_tuning=tuning)
        found: Array = feature_map.fit(OwnRows(x), context(labels=FitLabels(told, 4)))
        return found

    other = labels.clone()
    other[7] = (other[7] + 1) % 4
    before, after = scores(labels), scores(other)
    assert np.array_equal(before[7], after[7])
    assert (before != after).any(1).sum() >= 20  # the rows of the other fold


def test_a_diverging_training_is_refused() -> None:
    x, _ = waves(60, 0)
    with pytest.raises(RunError, match="not finite"):
        made("vicreg", epochs=30, lr=1e30).fit(OwnRows(x), context())


def test_rows_states_and_models_that_do_not_fit_are_refused() -> None:
    x, labels = waves(60, 0)
    with pytest.raises(InputError, match="table"):
        made("simclr").fit(OwnRows(torch.zeros(9, 3)), context())
    with pytest.raises(InputError, match="model"):
        made("simclr").fit(OwnRows(x), context(model=None))
    with pytest.raises(InputError, match="fitted"):
        made("simclr").map(x / 255)
    with pytest.raises(InputError, match="labels"):
        made("simclr").fit(OwnRows(x), context(labels=FitLabels(labels[:9], 4)))
    with pytest.raises(InputError, match="classes"):
        made("simclr").fit(OwnRows(x), context(labels=FitLabels(labels, 2)))
    feature_map = made("simclr")
    feature_map.fit(OwnRows(x), context())
    with pytest.raises(InputError, match="shape"):
        feature_map.map(torch.zeros(2, 3, 16, 16))
    state = feature_map.state()
    for broken in ({}, {**state, "shape": [3, 64, 64]}, {**state, "model": {"name": "resnet18", "cut": 6}}):
        with pytest.raises(InputError):
            made("simclr").load_state(broken)
    with pytest.raises(InputError, match="allow-model"):
        made("simclr").load_state({**state, "model": {"name": "somebody.elses:code", "cut": 1}})
    store = Memory()
    made("simclr").fit(OwnRows(x), context(store=store))
    with pytest.raises(InputError, match="other settings"):
        made("simclr", lr=0.5).fit(OwnRows(x), context(store=store))


def own_network(shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """A network as a user would write it, with dropout and maps before its last unit."""
    maps = nn.Sequential(nn.Conv2d(shape[0], 7, 3, padding=1), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(maps, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(7, outputs)))


def test_a_network_of_the_users_own_gives_the_mean_of_its_maps() -> None:
    name = f"{__name__}:own_network"
    model = models.options(name)(name=name, cut=1)
    model.allow(name, "job")
    x, _ = waves(60, 0)
    feature_map = made("simclr")
    feature_map.fit(OwnRows(x), context(model=model))
    assert feature_map.width == 7
    other = made("simclr")
    other.model = model
    other.load_state(feature_map.state())
    assert np.array_equal(other.map(x / 255), feature_map.map(x / 255))


def test_the_encoder_of_a_resnet_is_the_vector_before_its_last_layer() -> None:
    options = models.options("resnet18")(name="resnet18", width=4)
    encoder, width = build_encoder(options, (3, 32, 16), torch.Generator().manual_seed(0))
    assert width == 32
    assert encoder(torch.zeros(2, 3, 32, 16)).shape == (2, 32)


def test_nt_xent_is_low_where_partners_agree_and_others_differ() -> None:
    z = torch.eye(8)
    assert nt_xent(z, z, 0.1) < 0.01
    assert nt_xent(z, z.roll(1, 0), 0.1) > 5
    collapsed = torch.ones(8, 8)
    assert float(nt_xent(collapsed, collapsed, 0.1)) == pytest.approx(math.log(15), rel=1e-4)


def test_vicreg_terms_are_zero_for_white_features_and_not_for_collapsed_ones() -> None:
    z = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(0))
    assert variance_term(1.1 * z) < 0.01
    assert covariance_term(z) < 0.01
    assert variance_term(0 * z) > 0.9
    assert covariance_term(z[:, :1].expand(-1, 4)) > 2


def test_epps_pulley_is_small_for_normal_values_alone() -> None:
    rng = torch.Generator().manual_seed(0)
    normal = torch.randn(2000, 50, generator=rng)
    uniform = (torch.rand(2000, 50, generator=rng) - 0.5) * math.sqrt(12)
    # Of normal values its mean is ∫ (1 - exp(-t²)) exp(-t²/2) dt, whatever n is; of all others it grows with n.
    small = epps_pulley(normal)
    assert float(small) == pytest.approx(math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3)), rel=0.3)
    for other in (uniform, 0 * normal, 2 * normal, normal + 0.5):
        assert epps_pulley(other) > 4 * small
    # The quadrature agrees with a much finer one.
    assert float(epps_pulley(uniform)) == pytest.approx(float(epps_pulley(uniform, 301)), rel=0.02)


def test_a_reduction_keeps_the_leading_directions_and_spreads_them_evenly() -> None:
    rng = torch.Generator().manual_seed(0)
    factors = torch.randn(3000, 3, generator=rng) * torch.tensor([30.0, 20.0, 10.0])
    mixing = torch.linalg.qr(torch.randn(2000, 3, generator=rng))[0].T
    values = factors @ mixing + 0.05 * torch.randn(3000, 2000, generator=rng) + 5
    components, variances = principal_components(values - values.mean(0), 3, rng)
    assert torch.allclose(variances.sqrt(), torch.tensor([30.0, 20.0, 10.0]), rtol=0.05)
    assert torch.allclose((components.T @ mixing.T).abs(), torch.eye(3), atol=0.05)
    white = Reduction.of(values, 3, 1.0, rng)(values)
    assert torch.allclose(torch.cov(white.T), torch.eye(3), atol=0.01)
    kept = Reduction.of(values, 3, 0.0, rng)(values)
    assert float(kept.var(0).sum()) == pytest.approx(float(variances.sum()), rel=0.01)
