"""The evidence of a graph whose noise may be larger for some values of the causes than for others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from veracausa.arrays import Array
from veracausa.data.causal import CausalData
from veracausa.discovery.gaussian_processes import RowEvidence, bound, kernel, posterior
from veracausa.discovery.methods import build
from veracausa.discovery.uneven_evidence import UnevenEvidence, noise_designs, scored

ROWS = 400


def evidences(table: Array) -> tuple[RowEvidence, UnevenEvidence]:
    return RowEvidence(table, np.random.default_rng(1)), UnevenEvidence(table, np.random.default_rng(1))


def test_even_noise_has_the_evidence_that_it_had() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    even, uneven = evidences(np.column_stack([x, np.sin(2 * x) + 0.3 * rng.normal(size=ROWS)]))
    assert uneven(1, (0,)) == pytest.approx(even(1, (0,)), abs=2)
    assert uneven(1, ()) == even(1, ())


@pytest.mark.parametrize("kind", ["of a cause", "of what is predicted"])
def test_uneven_noise_is_likelier_and_tells_the_direction(kind: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=ROWS)
    mean = x + 0.3 * x**2 if kind == "of a cause" else 2 + x
    size = 0.5 * np.exp(0.8 * x) if kind == "of a cause" else 0.4 * np.abs(mean)
    table = np.column_stack([x, mean + size * rng.normal(size=ROWS)])
    even, uneven = evidences(table)
    assert uneven(1, (0,)) > even(1, (0,)) + 20
    right, wrong = (uneven(0, ()) + uneven(1, (0,)), uneven(1, ()) + uneven(0, (1,)))
    assert right > wrong + 10


def test_the_bound_with_uneven_noise_is_the_likelihood_where_every_row_is_an_inducing_point() -> None:
    rng = np.random.default_rng(4)
    inputs = torch.from_numpy(rng.normal(size=(40, 2)))
    column = torch.from_numpy(rng.normal(size=40))
    shape = torch.from_numpy(np.exp(rng.normal(size=40)))
    logarithms = torch.log(torch.tensor([1.0, 2.0, 0.8, 0.3, 0.4, 0.5]).double())
    covariance = kernel(inputs, inputs, logarithms) + 0.25 * torch.diag(shape)
    exact = -0.5 * (torch.logdet(covariance) + column @ torch.linalg.solve(covariance, column) + 40 * np.log(2 * np.pi))
    every = torch.arange(40)
    assert float(bound(logarithms, inputs, column, every, shape)) == pytest.approx(float(exact), abs=1e-2)
    assert float(bound(logarithms, inputs, column, every[:5], shape)) < float(exact)


def test_what_is_predicted_is_the_process_mean_and_variance() -> None:
    rng = np.random.default_rng(5)
    inputs, column = torch.from_numpy(rng.normal(size=(30, 1))), torch.from_numpy(rng.normal(size=30))
    logarithms = torch.log(torch.tensor([0.7, 1.0, 0.3, 0.5]).double())
    whole = kernel(inputs, inputs, logarithms)
    solved = torch.linalg.solve(whole + 0.25 * torch.eye(30).double(), torch.column_stack([column, whole]))
    mean, spread = posterior(logarithms, inputs, column, torch.arange(30))
    assert mean.numpy() == pytest.approx((whole @ solved[:, 0]).numpy(), abs=1e-3)
    assert spread.numpy() == pytest.approx((whole - whole @ solved[:, 1:]).diagonal().numpy(), abs=1e-3)


def test_scoring_finds_the_curve_of_a_variance() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=20_000)
    weights, gain = scored(x[:, None], np.exp(1 + 0.7 * x) * rng.normal(size=20_000) ** 2)
    assert weights == pytest.approx([1, 0.7], abs=0.05)
    assert gain > 1000
    _, nothing = scored(x[:, None], rng.normal(size=20_000) ** 2)
    assert nothing < 5


def test_designs_of_the_noise_are_of_causes_and_of_what_they_predict() -> None:
    inputs = np.random.default_rng(7).normal(size=(100, 3))
    predicted, causes, both = noise_designs(inputs, inputs[:, 0])
    assert both.shape[1] == predicted.shape[1] + causes.shape[1]
    assert causes.shape[1] == 6
    assert np.abs(both.mean(axis=0)).max() < 1e-12


def test_auto_improves_a_graph_with_noise_that_multiplies() -> None:
    """x1 follows from x0 and x2 from both, with noise as large as half of what they predict."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=500)
    y = (1 + x) * (1 + 0.5 * rng.normal(size=500))
    z = (np.tanh(x) + 0.5 * y) * (1 + 0.5 * rng.normal(size=500))
    data = CausalData(np.column_stack([z, y, x]), ("z", "y", "x"))
    fit = build("auto", starts=1).fit(data)
    compared = {one["method"]: one for one in fit.compared_}  # type: ignore[attr-defined]
    assert compared["processes"]["kept"]
    assert compared["processes"]["evidence"] >= max(one["evidence"] for one in compared.values())
    assert np.argwhere(fit.adjacency_matrix_).tolist() == [[1, 0], [2, 0], [2, 1]]
    assert "size may depend" in fit.assumes_  # type: ignore[attr-defined]
    assert list(compared) == ["moments", "straight lines", "processes"]
