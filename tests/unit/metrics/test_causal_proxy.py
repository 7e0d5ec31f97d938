"""Cosine to the causal proxy: its steps by hand, and a defense that keeps or destroys what the task needs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.metrics.causal_proxy import (
    causal_cosine,
    class_proxies,
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
