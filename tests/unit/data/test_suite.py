"""The suite of generators: the graphs, what the noise leaves, column kinds, and the same bits for the same seed."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from veracausa.data.causal import CausalData, load_causal, topological_order
from veracausa.data.causal.mechanisms import Generator, gaussian_process, unit_noise
from veracausa.data.causal.suite import scale_free_dag
from veracausa.errors import InputError

GENERATORS = get_args(Generator)


def explained_linearly(data: CausalData, node: int) -> float:
    assert data.truth is not None
    parents = np.column_stack([data.values[:, data.truth[:, node]], np.ones(len(data.values))])
    rest = data.values[:, node] - parents @ np.linalg.lstsq(parents, data.values[:, node], rcond=None)[0]
    return float(1 - rest.var() / data.values[:, node].var())


def effects(data: CausalData) -> list[int]:
    assert data.truth is not None
    return [int(node) for node in np.flatnonzero(data.truth.any(axis=0))]


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize(
    "settings", [{}, {"graph": "scale_free", "explained": 0.3}, {"mixed": 0.5, "internal_standardisation": True}]
)
def test_every_generator_draws_the_same_bits_for_a_seed(generator: str, settings: dict[str, object]) -> None:
    first = load_causal("suite", generator=generator, rows=80, seed=4, **settings)
    again = load_causal("suite", generator=generator, rows=80, seed=4, **settings)
    other = load_causal("suite", generator=generator, rows=80, seed=5, **settings)
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()
    assert np.isfinite(first.values).all()
    assert first.truth is not None
    assert topological_order(first.truth) is not None


def test_the_graph_belongs_to_the_seed_and_not_to_the_generator() -> None:
    truths = [load_causal("suite", generator=name, rows=20, seed=7).truth for name in GENERATORS]
    assert all(np.array_equal(truths[0], truth) for truth in truths)
    assert truths[0] is not None
    assert truths[0].sum() == 30


def test_a_scale_free_graph_has_hubs_and_an_order() -> None:
    graphs = [scale_free_dag(50, 100, np.random.default_rng(seed)) for seed in range(10)]
    assert all(graph.sum() == 1 + 2 * 48 and topological_order(graph) is not None for graph in graphs)
    assert np.mean([(graph | graph.T).sum(axis=0).max() for graph in graphs]) > 12  # an even graph of so many has 9
    assert scale_free_dag(4, 0, np.random.default_rng(0)).sum() == 0


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 0.95])
def test_causes_explain_what_was_asked(share: float) -> None:
    data = load_causal("suite", generator="linear", explained=share, rows=5000, seed=1)
    found = [explained_linearly(data, node) for node in effects(data)]
    assert np.abs(np.array(found) - share).max() < 0.05  # cause and noise correlate by about 1/√5000 in a sample


def test_causes_of_counts_explain_what_was_asked() -> None:
    for share in (0.3, 0.8):
        data = load_causal("suite", generator="counts", explained=share, rows=20_000, attributes=2, edges=1, seed=1)
        values, node = data.values, effects(data)[0]
        assert data.truth is not None
        cause = values[:, int(np.flatnonzero(data.truth[:, node])[0])]
        kinds = np.unique(cause)
        within = sum((cause == kind).mean() * values[cause == kind, node].var() for kind in kinds)
        assert abs(1 - within / values[:, node].var() - share) < 0.05


def test_linear_noise_is_unequal_and_internal_standardisation_stops_growth() -> None:
    settings = {"generator": "linear", "attributes": 20, "edges": 60, "standardise": False, "rows": 500}
    raw = load_causal("suite", seed=2, **settings).values.std(axis=0)
    internal = load_causal("suite", seed=2, internal_standardisation=True, **settings).values.std(axis=0)
    assert raw.max() > 5 * raw.min()
    np.testing.assert_allclose(internal, 1)


def test_heteroscedastic_noise_depends_on_a_cause() -> None:
    data = load_causal("suite", generator="heteroscedastic", attributes=2, edges=1, rows=4000, seed=3)
    assert data.truth is not None
    cause, effect = (data.values[:, int(at)] for at in np.argwhere(data.truth)[0])
    order = np.argsort(cause)
    steps = np.diff(effect[order])  # neighbours have nearly the same cause
    assert steps[-500:].std() > 2 * steps[:500].std()


def test_mixed_columns_are_codes_and_the_nominal_ones_are_named() -> None:
    data = load_causal("suite", generator="gp_additive", mixed=0.4, rows=2000, seed=0)
    kinds = {name: np.unique(data.values[:, at]) for at, name in enumerate(data.names)}
    binary = [name for name, values in kinds.items() if len(values) == 2]
    assert len(binary) == 3
    assert len(data.nominal) == 3
    for name in (*binary, *data.nominal):
        np.testing.assert_array_equal(kinds[name], np.arange(len(kinds[name])))
    assert all(3 <= len(kinds[name]) <= 5 for name in data.nominal)
    assert all(len(kinds[name]) == 2000 for name in data.names if name not in (*binary, *data.nominal))


def test_a_nominal_cause_acts_by_category() -> None:
    found = []
    for seed in range(8):
        data = load_causal("suite", generator="linear", attributes=2, edges=1, mixed=0.5, rows=1000, seed=seed)
        assert data.truth is not None
        if len(np.unique(data.values[:, int(np.argwhere(data.truth)[0][0])])) != 2:
            continue
        cause, effect = (data.values[:, int(at)] for at in np.argwhere(data.truth)[0])
        found.append(abs(effect[cause == 0].mean() - effect[cause == 1].mean()))
    assert found
    assert min(found) > 0.3


def test_column_kinds_survive_choosing_columns_and_rows() -> None:
    data = load_causal("suite", mixed=0.6, rows=60, seed=1)
    kept = [data.names.index(data.nominal[0]), data.names.index("x0")]
    assert data.columns(kept).nominal == tuple(name for name in data.nominal if name in {data.nominal[0], "x0"})
    assert data.head(10).nominal == data.nominal


@pytest.mark.parametrize("kind", ["gaussian", "exponential", "uniform", "laplace"])
def test_noise_has_mean_0_and_deviation_1(kind: str) -> None:
    noise = unit_noise(kind, 100_000, np.random.default_rng(0))  # type: ignore[arg-type]
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02


def test_fourier_features_have_the_kernel_of_the_process() -> None:
    points = np.array([[0.0, 0.0], [0.5, 0.5], [2.0, -1.0]])
    draws = np.array([gaussian_process(points, np.random.default_rng(seed)) for seed in range(4000)])
    kernel = np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=2) / 2)
    np.testing.assert_allclose(draws.T @ draws / len(draws), kernel, atol=0.08)  # five standard errors


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InputError, match="edges"):
        load_causal("suite", attributes=3, edges=4)
    with pytest.raises(InputError, match="noise"):
        load_causal("suite", generator="counts", noise="laplace")
    with pytest.raises(InputError, match="explained"):
        load_causal("suite", explained=1.0)
