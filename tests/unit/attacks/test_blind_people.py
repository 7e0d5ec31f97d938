"""Attacks on membership and on labels of a blind training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindView, Release
from veracausa.attacks.own_columns import own_model_chances
from veracausa.errors import InputError
from veracausa.metrics.blind_bounds import posterior_bound, score_membership
from veracausa.training.blind.labels import response_matrix

CLASSES = 4


def view(**more: Any) -> BlindView:
    fixed: dict[str, Any] = {"seat": "p", "victim": "a", "row_shape": (2,), "pixels": False, "numbers": 3}
    return BlindView(grants=~Grant.NONE, classes=CLASSES, rng=seeding.generator(0, "attack"), **fixed, **more)


def read(name: str, shown: BlindView) -> Any:
    return blind_attacks.get(name)(blind_attacks.options(name)(name=name)).read(shown)


def members(rows: int, width: int, noise: float = 0.0) -> tuple[Tensor, float]:
    """Which of twice `rows` rows were summed, and how well the sums tell them."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2 * rows, width))
    inside = torch.arange(2 * rows) // 2 % 2 == 0
    gram = values[inside.numpy()].T @ values[inside.numpy()]
    drawn = np.triu(rng.standard_normal(gram.shape)) * noise
    release = Release(gram + drawn + np.triu(drawn, 1).T, rows, slice(0), slice(0), slice(0, width), noise)
    shown = view(labels=torch.zeros(2 * rows, dtype=torch.int64), features=torch.from_numpy(values), release=release)
    return inside, score_membership(read("membership", shown).membership["leverage"], inside).auc


def test_sums_over_few_rows_tell_who_is_in_them() -> None:
    assert members(200, 100)[1] > 0.95
    assert members(4000, 10)[1] == pytest.approx(0.5, abs=0.03)
    assert members(200, 100, noise=400.0)[1] < 0.65


def test_a_model_that_fits_its_rows_by_heart_is_noticed_by_its_scores() -> None:
    labels = torch.arange(400) % CLASSES
    inside = torch.arange(400) // 2 % 2 == 0
    scores = torch.eye(CLASSES)[labels].double()
    scores[~inside] += 0.5 * torch.randn(int((~inside).sum()), CLASSES, generator=seeding.generator(1)).double()
    found = read("membership", view(labels=labels, scores=scores)).membership
    assert score_membership(found["fit"], inside).advantage > 0.9
    same = (
        torch.eye(CLASSES)[labels].double() + 0.5 * torch.randn(400, CLASSES, generator=seeding.generator(2)).double()
    )
    blind = read("membership", view(labels=labels, scores=same)).membership
    assert abs(score_membership(blind["fit"], inside).auc - 0.5) < 0.1


def test_membership_needs_something_to_look_at() -> None:
    with pytest.raises(InputError, match="neither"):
        read("membership", view(labels=torch.zeros(4, dtype=torch.int64)))


@pytest.fixture(scope="module")
def people() -> tuple[Tensor, Tensor]:
    """Columns that tell about half of the labels, and the labels."""
    rng = seeding.generator(6, "people")
    labels = torch.randint(CLASSES, (3000,), generator=rng)
    return torch.eye(CLASSES)[labels] + 0.9 * torch.randn(3000, CLASSES, generator=rng), labels


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_told_labels_help_as_much_as_epsilon_lets_them(people: tuple[Tensor, Tensor], epsilon: float) -> None:
    columns, labels = people
    transition = response_matrix(CLASSES, epsilon)
    draws = np.random.default_rng(0).random((len(labels), 1))
    told = torch.from_numpy((draws >= np.cumsum(transition[labels.numpy()], 1)).sum(1))
    chances = _chances(columns, labels)
    best = float((chances.argmax(1) == labels).double().mean())
    shown = view(own=columns, told=told, transition=transition)
    right = [_right(shown.replaced(**more), labels) for more in ({"own_chances": chances}, {})]
    assert best < right[0] <= posterior_bound(best, epsilon) + 0.02
    # A model that it must learn from told labels alone is no better.
    assert right[1] <= right[0] + 0.01
    by_row = np.broadcast_to(transition, (len(labels), CLASSES, CLASSES))
    assert _right(shown.replaced(own_chances=chances, transition=by_row), labels) == right[0]


def _right(shown: BlindView, labels: Tensor) -> float:
    return float((read("label_inference", shown).labels.classes == labels).double().mean())


def _chances(columns: Tensor, labels: Tensor) -> Tensor:
    return own_model_chances(columns, labels, CLASSES, seeding.generator(7))


def test_without_told_labels_there_are_own_columns_only(people: tuple[Tensor, Tensor]) -> None:
    columns, labels = people
    known = torch.arange(20)
    reading = read("label_inference", view(own=columns, known_targets=known, known_labels=labels[known]))
    right = float((reading.labels.classes[20:] == labels[20:]).double().mean())
    assert 0.3 < right <= float((_chances(columns, labels).argmax(1) == labels).double().mean()) + 0.01
    with pytest.raises(InputError, match="no label was let out"):
        read("label_inference", view(own=columns))


def test_true_labels_are_read_as_they_are(people: tuple[Tensor, Tensor]) -> None:
    columns, labels = people
    assert torch.equal(read("label_inference", view(own=columns, told=labels)).labels.classes, labels)
