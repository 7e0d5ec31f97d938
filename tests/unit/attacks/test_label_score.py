"""Scores of label inference against reference implementations and by hand."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.attacks.labels import LabelGuess, best_cut, best_naming, spherical_k_means
from veracausa.audit.labels import advantage, majority_prior, score_labels


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 10_000))
def test_the_naming_is_the_best_of_all(size: int, seed: int) -> None:
    groups, labels = (torch.randint(size, (40,), generator=rng(seed + offset)) for offset in (0, 1))
    chosen = best_naming(groups, labels, size)
    assert sorted(chosen.tolist()) == list(range(size))
    best = max(int((torch.tensor(names)[groups] == labels).sum()) for names in permutations(range(size)))
    assert int((chosen[groups] == labels).sum()) == best


def test_advantage_is_measured_from_the_prior() -> None:
    labels = torch.tensor([0] * 9 + [1])
    assert majority_prior(labels) == pytest.approx(0.9)
    assert score_labels(LabelGuess(torch.zeros(10, dtype=torch.int64)), labels, 2).advantage == pytest.approx(0)
    assert score_labels(LabelGuess(labels), labels, 2).advantage == pytest.approx(1)
    assert score_labels(LabelGuess(1 - labels), labels, 2).advantage < 0
    swapped = score_labels(LabelGuess(1 - labels, up_to_permutation=True), labels, 2)
    assert (swapped.accuracy, swapped.up_to_permutation) == (1, True)
    assert advantage(1.0, 1.0) == 0
    ranked = LabelGuess(labels, score=torch.arange(10.0))
    assert score_labels(ranked, labels, 2).auc == 1
    assert score_labels(ranked, labels[:1].repeat(10), 2).auc is None
    with pytest.raises(ValueError, match="9 guesses for 10"):
        score_labels(LabelGuess(labels[:9]), labels, 2)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=25))
def test_the_cut_has_the_least_variance_inside(numbers: list[float]) -> None:
    values = torch.tensor(numbers, dtype=torch.float64)

    def inside(cut: float) -> float:
        halves = [values[values <= cut], values[values > cut]]
        return sum(float((half - half.mean()).square().sum()) for half in halves if len(half))

    cut = best_cut(values)
    assert inside(cut) <= min(inside(float(v)) for v in values) + 1e-6


def test_directions_are_grouped_whatever_their_length() -> None:
    angles = torch.tensor([0.0, 2.0, 4.0]).repeat_interleave(20) + 0.1 * torch.randn(60, generator=rng())
    vectors = torch.stack([angles.cos(), angles.sin()], 1) * torch.rand(60, 1, generator=rng(1)).add(0.01)
    found = spherical_k_means(vectors, 3, rng())
    assert all(len(torch.unique(part)) == 1 for part in found.group.split(20))
    assert len(torch.unique(found.group)) == 3
    assert found.separation > 1
    again = spherical_k_means(vectors, 3, rng())
    assert torch.equal(found.group, again.group)
    # A group that nothing falls into starts anew.
    started = spherical_k_means(vectors, 3, rng(), start=torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))
    assert len(torch.unique(started.group)) == 3
    with pytest.raises(ValueError, match="no 3 groups"):
        spherical_k_means(vectors[:2], 3, rng())
