"""The plaintext model: its gradients, the acyclicity terms, the structure step, the threshold, and a small graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.data.causal.synthetic import SyntheticOptions, synthetic
from veracausa.discovery.acyclicity import ACYCLICITY, Spectral
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.graphs import greedy_cut, is_acyclic
from veracausa.discovery.methods.vfedcd.decoders import Decoders
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.structure import Structure, candidates, mixture_threshold, most_worthy
from veracausa.metrics.graphs import shd

R, M, N, H = 2, 3, 7, 4


def _decoders(activation: str, depth: int, likelihood: str, binary: list[bool]) -> Decoders:
    rng = np.random.default_rng(0)
    made = Decoders(R, M, H, depth, activation, np.array(binary), likelihood, rng)  # type: ignore[arg-type]
    made.values["log_variance"] = rng.normal(size=(R, M, 1, 1))
    return made


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "leaky_relu"])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    ("likelihood", "binary"),
    [(name, [False] * 3) for name in ("gaussian", "mse", "squared_error")] + [("gaussian", [False, True, False])],
)
def test_a_step_follows_the_gradient_that_a_tape_finds(activation, depth, likelihood, binary):
    rng = np.random.default_rng(1)
    z, x = rng.normal(size=(R, M, N, H)), (rng.normal(size=(R, M, N)) > 0).astype(float)
    decoders = _decoders(activation, depth, likelihood, binary)
    values = {name: torch.tensor(value, requires_grad=True) for name, value in decoders.values.items()}
    features, target = torch.tensor(z, requires_grad=True), torch.tensor(x)[..., None]
    act = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "leaky_relu": torch.nn.functional.leaky_relu}[activation]
    a = act(features + values["bias"])
    for layer in range(depth):
        a = act(a @ values[f"weight_{layer}"] + values[f"bias_{layer}"])
    mean = a @ values["readout"] + values["offset"]
    s = values["log_variance"]
    own = {"mse": 0.5, "squared_error": 1.0}.get(likelihood)
    squares = 0.5 * ((mean - target) ** 2 * (-s).exp() + s) if own is None else own * (mean - target) ** 2
    odds = torch.nn.functional.binary_cross_entropy_with_logits(mean, target, reduction="none")
    losses = torch.where(torch.tensor(binary)[:, None, None], odds, squares).mean(2)[..., 0]
    losses.sum().backward()
    before = {name: value.copy() for name, value in decoders.values.items()}
    step = decoders.step(z, x, 0.1)
    np.testing.assert_allclose(step.losses, losses.detach(), rtol=1e-10)
    np.testing.assert_allclose(step.features, features.grad, atol=1e-12)
    for name, value in values.items():
        slope = torch.zeros_like(value) if value.grad is None else value.grad
        np.testing.assert_allclose(decoders.values[name], before[name] - 0.1 * slope.numpy(), atol=1e-12)


def test_the_spectral_term_is_the_largest_eigenvalue_and_its_slope():
    rng = np.random.default_rng(2)
    strengths = rng.uniform(0, 1, (3, 6, 6)) * (1 - np.eye(6))
    spectral = Spectral(iterations=200)
    value, gradient = spectral(strengths)
    np.testing.assert_allclose(value, [np.abs(np.linalg.eigvals(b + 1e-6)).max() for b in strengths], rtol=1e-8)
    nudged = strengths.copy()
    nudged[:, 1, 4] += 1e-5
    np.testing.assert_allclose((spectral(nudged)[0] - value) / 1e-5, gradient[:, 1, 4], rtol=1e-3)


def test_a_cycle_of_two_has_the_root_of_its_product():
    strengths = np.zeros((1, 4, 4))
    strengths[0, 1, 2], strengths[0, 2, 1] = 0.4, 0.9
    assert Spectral(iterations=100)(strengths)[0][0] == pytest.approx(np.sqrt(0.4 * 0.9), abs=1e-4)


@pytest.mark.parametrize("name", sorted(ACYCLICITY))
def test_every_acyclicity_term_is_nothing_on_a_dag_and_something_on_a_cycle(name):
    dag = np.triu(np.full((5, 5), 0.7), 1)[None]
    cycle = dag.copy()
    cycle[0, 4, 0] = 0.7
    assert ACYCLICITY[name]()(dag)[0][0] == pytest.approx(0, abs=0.1)
    assert ACYCLICITY[name]()(cycle)[0][0] > ACYCLICITY[name]()(dag)[0][0] + 0.05


@pytest.mark.parametrize("name", ["trace_exponential", "log_determinant"])
def test_the_slopes_of_the_alternatives_are_those_of_their_values(name):
    strengths = np.random.default_rng(3).uniform(0, 0.3, (1, 4, 4)) * (1 - np.eye(4))
    term = ACYCLICITY[name]()
    value, gradient = term(strengths)
    nudged = strengths.copy()
    nudged[0, 0, 3] += 1e-6
    assert (term(nudged)[0][0] - value[0]) / 1e-6 == pytest.approx(gradient[0, 0, 3], rel=1e-3)


def test_factors_shrink_by_a_fixed_step_end_what_is_weak_and_spare_what_is_required():
    allowed = ~np.eye(3, dtype=bool)[None]
    required = np.zeros((3, 3), dtype=bool)
    required[0, 1] = True
    structure = Structure(Settings(sparsity_weight=0.5, rate=0.1), allowed, required)
    strengths = np.full((1, 3, 3), 0.4) * allowed
    strengths[0, 2, 0] = 0.01
    factors = structure.factors(strengths, 2)
    assert factors[0, 0, 1] == 1
    assert strengths[0, 1, 2] * factors[0, 1, 2] == pytest.approx(0.4 - 0.1 * 2 * 0.5)
    assert factors[0, 2, 0] == 0
    assert (np.diagonal(factors[0]) == 0).all()


def test_in_the_refit_weak_edges_are_pulled_more_and_strong_ones_less_without_bound():
    allowed = ~np.eye(2, dtype=bool)[None]
    strengths = np.array([[[0.0, 1.0], [0.25, 0.0]]])
    structure = Structure(Settings(sparsity_weight=0.5, pivot=0.25), allowed)
    np.testing.assert_array_equal(structure.pull(strengths), 0.5)  # of the search: all alike
    structure.searching = False
    pulled = structure.pull(strengths)[0]
    assert pulled[1, 0] == pytest.approx(0.5)
    assert 0 < pulled[0, 1] < 0.5 < pulled[0, 0] < 10
    alike = Structure(Settings(sparsity_weight=0.5, pivot=0), allowed)
    alike.searching = False
    np.testing.assert_array_equal(alike.pull(strengths), 0.5)


def test_the_refits_pull_is_the_slope_of_a_logarithm_that_factors_follow():
    allowed = ~np.eye(2, dtype=bool)[None]
    structure = Structure(Settings(sparsity_weight=0.015, pivot=0.25, rate=0.01), allowed)
    structure.searching = False
    strengths = np.array([[[0.0, 0.8], [0.3, 0.0]]])
    left = (strengths * structure.factors(strengths, 5))[0]
    for b, found in ((0.8, left[0, 1]), (0.3, left[1, 0])):
        slope = 0.015 * 0.3 * (np.log(b + 1e-6 + 0.05) - np.log(b - 1e-6 + 0.05)) / 2e-6
        assert found == pytest.approx(b - 0.05 * slope, rel=1e-6)


def test_growth_waits_while_the_strong_edges_are_acyclic():
    allowed = np.repeat(~np.eye(3, dtype=bool)[None], 2, 0)
    structure = Structure(Settings(growth=0.1), allowed)
    cyclic, acyclic = np.full((3, 3), 0.5) * allowed[0], np.triu(np.full((3, 3), 0.5), 1)
    for epoch in range(5):
        structure.end_epoch(np.stack([cyclic, acyclic]), epoch)
    np.testing.assert_allclose(structure.weight, [0.5, 0.2])


def test_settling_leaves_one_direction_of_every_pair_and_keeps_what_is_required():
    strengths = np.random.default_rng(4).uniform(0, 1, (2, 6, 6))
    required = np.zeros((6, 6), dtype=bool)
    required[5, 0] = True
    structure = Structure(Settings(), np.repeat(~np.eye(6, dtype=bool)[None], 2, 0), required)
    for order in structure.settle(strengths):
        assert is_acyclic(order)
        assert order.sum() == 15
        assert order[5, 0]


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_candidates_are_dags_from_all_edges_to_the_required_ones(seed):
    rng = np.random.default_rng(seed)
    strengths = rng.uniform(0, 1, (6, 6))
    allowed = np.triu(np.ones((6, 6), dtype=bool), 1)
    required = np.zeros((6, 6), dtype=bool)
    required[0, 3] = True
    thresholds, graphs = candidates(strengths, allowed, required, 5)
    assert (np.diff(thresholds) > 0).all()
    assert all(is_acyclic(graph) and graph[0, 3] and not (graph & ~allowed).any() for graph in graphs)
    assert [graphs[0].sum(), graphs[-1].sum()] == [15, 1]


def test_an_edge_must_be_worth_its_place():
    losses, edges = np.array([10.0, 4.0, 3.9, 3.88]), np.array([0, 2, 3, 9])
    assert most_worthy(losses, edges, empty=10.0, attributes=5, min_edge_gain=0.4) == 1
    assert most_worthy(losses, edges, empty=10.0, attributes=5, min_edge_gain=0.0) == 3


def test_a_mixture_parts_weak_from_strong():
    rng = np.random.default_rng(5)
    strengths = np.concatenate([rng.uniform(0.0, 0.1, 40), rng.uniform(0.8, 1.6, 25), [0.4]])
    assert 0.1 < mixture_threshold(strengths, np.ones(66, dtype=bool)) < 0.8


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="no profile is named 'literl'; did you mean 'literal'"):
        Settings(profile="literl")
    with pytest.raises(ValueError, match="held_out needs held-out rows"):
        Settings(held_out=0.0)
    assert Settings(profile="literal").threshold == 0.1


def _graph(seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    data = synthetic(SyntheticOptions(name="synthetic", attributes=6, edges=9, rows=600, seed=seed))
    assert data.truth is not None
    return data.values, data.truth


def test_it_finds_a_small_graph_and_repeats_to_the_bit():
    x, truth = _graph()
    chosen = Settings(epochs=60, refit_epochs=40, growth=0.05)

    def fitted(**constraints: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        model = CentralizedVFedCD(chosen, 6, np.random.default_rng(7), **constraints)  # type: ignore[arg-type]
        fit = model.fit(x[None, :480], x[None, 480:])
        graph = greedy_cut(fit.strengths[0] * fit.allowed[0], fit.thresholds[0], constraints.get("required"))
        return fit.strengths, graph, float(fit.held_out_loss[0])

    strengths, graph, loss = fitted()
    assert shd(truth, graph) <= 3, np.argwhere(graph)  # the empty graph: 9
    assert loss < 0.5 * 6  # better than attributes without causes
    np.testing.assert_array_equal(strengths, fitted()[0])
    (gone, there), (cause, effect) = np.argwhere(graph)[0], np.argwhere(~graph & ~graph.T & ~np.eye(6, dtype=bool))[0]
    forbidden, required = np.zeros((6, 6), dtype=bool), np.zeros((6, 6), dtype=bool)
    forbidden[gone, there], required[cause, effect] = True, True
    strengths, graph, _ = fitted(forbidden=forbidden, required=required)
    assert strengths[0, gone, there] == 0
    assert not graph[gone, there]
    assert graph[cause, effect]


def test_replicates_do_not_touch_each_other():
    x = _graph()[0][:80]
    other = np.stack([x, np.roll(x, 3, 0)])
    chosen = Settings(epochs=3, refit_epochs=2)
    both = CentralizedVFedCD(chosen, 6, np.random.default_rng(8), replicates=2)
    alone = CentralizedVFedCD(chosen, 6, np.random.default_rng(8), replicates=2)
    alone.fit(np.stack([x, x])[:, :64], np.stack([x, x])[:, 64:])
    both.fit(other[:, :64], other[:, 64:])
    np.testing.assert_array_equal(both.weights[0], alone.weights[0])
    assert (both.weights[1] != alone.weights[1]).any()
