"""A pooling over equal values is no fault of a defense: the black around a digit must not hide its risk."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa import seeding
from veracausa.defenses.risk_map import ROUGH, STRICT, RiskMap, fault
from veracausa.testing.synthetic import bound, uniform_rows


def pooled() -> nn.Sequential:
    with seeding.drawing_from(seeding.generator(0, "model")):
        first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        return nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2))


@pytest.mark.parametrize("proof", [ROUGH, STRICT])
def test_black_pictures_with_a_few_strokes(proof):
    x = torch.zeros(16, 1, 16, 8)
    x[:, :, 6:10, 3:5] = uniform_rows(16, 1, 4, 2)
    ids = torch.arange(16)
    defense = bound("none", pooled())
    answer = defense.risk_map(x, ids)
    assert isinstance(answer, RiskMap)
    assert fault(defense, answer, x, ids, proof) == ""
