"""Cosine to the causal proxy, step by step, and distance correlation against a slow reference."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.metrics.representations import (
    causal_cosine,
    class_proxies,
    distance_correlation,
    neighbours,
    pooled,
    proxy_cosine,
    proxy_set,
    stability,
)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def system(count: int = 120) -> dict[str, torch.Tensor]:
    """Three well separated classes, seen at three depths."""
    labels = torch.arange(count) % 3
    centres = 5 * torch.eye(3, 8)
    clean = centres[labels] + torch.randn(count, 8, generator=rng())
    depths = [clean, clean @ torch.randn(8, 8, generator=rng(1)), clean.relu()]
    probabilities = torch.full((count, 3), 0.01).scatter(1, labels.unsqueeze(1), 0.98)
    return {"clean": clean, "depths": depths, "probabilities": probabilities, "labels": labels}


def test_neighbours_by_hand() -> None:
    angles = torch.tensor([0.0, 0.1, 0.3, 2.0, 2.2])
    points = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor([1.0, 9.0, 2.0, 1.0, 5.0]).unsqueeze(1)
    assert neighbours(points, 1).flatten().tolist() == [1, 0, 1, 4, 3]
    assert neighbours(points, 2).sort(1).values[0].tolist() == [1, 2]
    with pytest.raises(ValueError, match="no 5 neighbours"):
        neighbours(points, 5)


def test_stability_is_the_mean_jaccard_overlap() -> None:
    first, second = torch.randn(30, 4, generator=rng()), torch.randn(30, 4, generator=rng(1))
    a, b = ([set(row.tolist()) for row in neighbours(x, 3)] for x in (first, second))
    overlap = [len(p & q) / len(p | q) for p, q in zip(a, b, strict=True)]
    by_hand = [(1 + 2 * o) / 3 for o in overlap]  # pairs (first, first), (first, second) twice
    assert stability([first, first, second], 3).tolist() == pytest.approx(by_hand)
    assert stability([first, 7 * first], 3).tolist() == pytest.approx([1.0] * 30)
    with pytest.raises(ValueError, match="two depths"):
        stability([first])


def test_proxies_are_stable_correct_and_confident() -> None:
    labels = torch.zeros(10, dtype=torch.int64)
    stable = torch.linspace(1, 0.1, 10)
    sure = torch.tensor([[0.97, 0.03]] * 10)
    sure[0] = torch.tensor([0.03, 0.97])  # wrong
    sure[1] = torch.tensor([0.90, 0.10])  # unsure
    chosen, relaxed = proxy_set(stable, sure, labels, share=0.4, fewest=2)
    assert chosen.nonzero().flatten().tolist() == [2, 3]
    assert relaxed == ()
    chosen, relaxed = proxy_set(stable, sure, labels, share=0.4, fewest=3)
    assert chosen.nonzero().flatten().tolist() == [1, 2, 3]  # the most stable correct one joins them
    assert relaxed == (0,)


def test_class_proxies_and_cosine_by_hand() -> None:
    clean = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    labels = torch.tensor([0, 0, 1])
    proxies = class_proxies(clean, labels, torch.tensor([True, True, True]), 3)
    assert proxies[:2].tolist() == [[2, 0], [0, 2]]
    assert proxies[2].isnan().all()
    sent = torch.tensor([[5.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert proxy_cosine(sent, proxies, labels).tolist() == pytest.approx([1, 0, 2**-0.5])
    centred = proxy_cosine(sent, proxies, labels, torch.tensor([1.0, 1.0]))
    # (4, −1)·(1, −1), (−1, 0)·(1, −1), and (0, 0) has no direction
    assert centred.tolist() == pytest.approx([5 / (17**0.5 * 2**0.5), -(2**-0.5), 0])


def test_what_is_sent_unchanged_scores_high_and_noise_nothing() -> None:
    parts = system()
    kept = causal_cosine(parts["clean"], **parts)
    noise = causal_cosine(torch.randn(120, 8, generator=rng(5)), **parts)
    turned = causal_cosine(-parts["clean"], **parts)
    assert kept.to_clean == pytest.approx(1)
    assert kept.centred > 0.7
    assert kept.missing == ()
    assert abs(noise.centred) < 0.15
    assert turned.centred < 0
    assert turned.uncentred == pytest.approx(-kept.uncentred)
    assert kept.proxies >= 15


def test_a_class_that_is_never_right_does_not_count() -> None:
    parts = system()
    wrong = parts["labels"] == 2
    parts["probabilities"][wrong] = torch.tensor([0.98, 0.01, 0.01])
    found = causal_cosine(parts["clean"], **parts)
    assert found.missing == (2,)
    assert found.centred > 0.7
    parts["probabilities"] = parts["probabilities"].roll(1, 1)
    parts["probabilities"][wrong] = torch.tensor([0.98, 0.01, 0.01])
    with pytest.raises(ValueError, match="no causal proxy"):
        causal_cosine(parts["clean"], **parts)


def test_maps_are_pooled_over_their_places() -> None:
    maps = torch.randn(4, 3, 5, 2, generator=rng())
    assert torch.allclose(pooled(maps), maps.mean((2, 3)))
    assert torch.equal(pooled(maps[:, :, 0, 0]), maps[:, :, 0, 0])


@given(st.integers(0, 500), st.floats(0.1, 50))
def test_a_cosine_is_bounded_and_forgets_scale(seed: int, scale: float) -> None:
    sent, proxies = torch.randn(6, 4, generator=rng(seed)), torch.randn(2, 4, generator=rng(seed + 1))
    labels = torch.tensor([0, 1] * 3)
    found = proxy_cosine(sent, proxies, labels)
    assert (found.abs() <= 1 + 1e-5).all()
    assert torch.allclose(proxy_cosine(scale * sent, proxies, labels), found, atol=1e-4)


def reference(first: list[list[float]], second: list[list[float]]) -> float:
    """By the definition, entry by entry."""

    def centred(rows):
        n = len(rows)
        d = [[math.dist(a, b) for b in rows] for a in rows]
        mean = [sum(line) / n for line in d]
        grand = sum(mean) / n
        return [[d[i][j] - mean[i] - mean[j] + grand for j in range(n)] for i in range(n)]

    a, b = centred(first), centred(second)
    places = [(i, j) for i in range(len(a)) for j in range(len(a))]
    covariance = sum(a[i][j] * b[i][j] for i, j in places)
    variances = sum(a[i][j] ** 2 for i, j in places) * sum(b[i][j] ** 2 for i, j in places)
    return math.sqrt(max(0.0, covariance) / math.sqrt(variances))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(4, 12), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**20))
def test_it_is_what_the_definition_says(rows, left, right, seed):
    first, second = drawn(rows, left, seed=seed), drawn(rows, right, seed=seed + 1)
    second[:, 0] += first[:, 0] ** 2
    expected = reference(first.tolist(), second.tolist())
    # Distances come by a matrix product in float32: about four digits of their squares survive. And rows that
    # are closer than 3e-4 count as one.
    assert distance_correlation(first, second).item() == pytest.approx(expected, abs=2e-3)
    assert distance_correlation(first.double(), second.double()).item() == pytest.approx(
        expected, abs=1e-4
    )  # two rows may meet


def test_a_similarity_map_scores_one():
    x = drawn(64, 5)
    turned = x @ torch.linalg.qr(drawn(5, 5, seed=1)).Q
    for other in (x, 3 - 7 * x, turned):
        assert distance_correlation(x, other).item() == pytest.approx(1, abs=1e-4)
    assert distance_correlation(x[:, :1], -2 * x[:, :1]).item() == pytest.approx(1, abs=1e-4)


def test_independent_rows_score_near_nothing_when_there_are_many():
    """The plain estimate is biased: about 1/√n for single numbers, and near 1 for more numbers than rows."""
    few, many = (distance_correlation(drawn(n, 1), drawn(n, 1, seed=1)).item() for n in (64, 1024))
    assert many < few
    assert many < 0.1
    assert distance_correlation(drawn(16, 500), drawn(16, 500, seed=1)) > 0.9


def test_what_a_correlation_misses_it_finds():
    x = torch.linspace(-1, 1, 201).unsqueeze(1)
    both = torch.corrcoef(torch.cat([x, x**2], 1).T)
    assert abs(both[0, 1]) < 1e-5
    assert distance_correlation(x, x**2) > 0.4


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6])
def test_scale_does_not_matter_to_the_value_nor_to_the_direction_of_its_slope(scale):
    x, r = drawn(16, 3), drawn(16, 2, 4, seed=1)
    plain, scaled = r.clone().requires_grad_(), (scale * r).requires_grad_()
    values = [distance_correlation(x, side) for side in (plain, scaled)]
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-4)
    slopes = [torch.autograd.grad(value, side)[0] for value, side in zip(values, (plain, scaled), strict=True)]
    assert torch.allclose(slopes[1] * scale, slopes[0], rtol=1e-2, atol=1e-5)


def test_its_slope_is_that_of_differences():
    x, r = drawn(8, 3).double(), drawn(8, 4, seed=1).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda side: distance_correlation(x, side), r, eps=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "r", [torch.zeros(8, 4), torch.full((8, 4), 3.7), drawn(1, 4).repeat(8, 1)], ids=["zeros", "one number", "one row"]
)
def test_constant_rows_score_nearly_nothing_and_have_a_finite_slope(r):
    r = r.clone().requires_grad_()
    value = distance_correlation(drawn(8, 3), r)
    assert 0 <= value.item() < 1e-2
    assert torch.autograd.grad(value, r)[0].isfinite().all()


def test_repeated_rows_have_a_finite_slope():
    r = drawn(4, 4).repeat(2, 1).requires_grad_()
    assert torch.autograd.grad(distance_correlation(drawn(8, 3), r), r)[0].isfinite().all()


def test_half_precision_is_computed_in_single():
    x, r = drawn(32, 3), drawn(32, 6, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert distance_correlation(x, r.bfloat16()) == distance_correlation(x, r.bfloat16().float())


def test_unpaired_rows_are_refused():
    with pytest.raises(ValueError, match="3 rows cannot be paired with 4"):
        distance_correlation(torch.zeros(3, 1), torch.zeros(4, 1))


def test_what_is_not_a_number_is_not_taken_for_one():
    x = drawn(8, 3)
    x[0, 0] = torch.nan
    assert distance_correlation(x, drawn(8, 3)).isnan()
