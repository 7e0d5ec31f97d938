"""Synthetic rows have the shape, task and gaps that were asked for, and come back the same."""

from __future__ import annotations

import pytest
import torch

from veracausa.testing.synthetic import CLASSES, KINDS, SHAPES, TEST, TRAIN, toy_bottom, toy_data


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_come_back_the_same(kind) -> None:
    data, again = toy_data(kind, parties=3), toy_data(kind, parties=3)
    assert list(data.passive) == ["passive_1", "passive_2", "passive_3"]
    assert len(data.classes) == CLASSES
    for name in data.passive:
        part = data.parties[name].train
        assert part.features.shape == (TRAIN, *SHAPES[kind])
        assert len(data.parties[name].test) == TEST
        assert torch.equal(part.features, again.parties[name].train.features)


def test_the_last_party_lacks_rows_and_the_active_one_may_hold_features() -> None:
    data = toy_data("tables", overlap=0.5, active_part=True)
    held = [int(data.parties[name].train.present(torch.arange(TRAIN)).sum()) for name in data.passive]
    assert held == [TRAIN, TRAIN // 2]
    assert data.parties["active"].train.features.shape == (TRAIN, *SHAPES["tables"])


def test_without_classes_it_is_a_regression() -> None:
    data = toy_data("tables", train=24, test=0, shape=(5,), classes=0)
    assert (data.task, data.classes) == ("regression", ())
    assert data.parties["active"].train.labels.is_floating_point()
    assert data.parties["passive_1"].train.features.shape == (24, 5)


@pytest.mark.parametrize("payload", ["vectors", "maps"])
def test_a_bottom_gives_the_payload_that_it_names(payload) -> None:
    toy = toy_bottom(payload, 8)
    assert toy.build()(toy.rows).shape == (8, *toy.payload)
