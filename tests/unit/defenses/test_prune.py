"""Pruning by magnitude: how much is sent, which values, and what learns from it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.defenses.mask import largest
from veracausa.defenses.risk_map import NotDifferentiable
from veracausa.testing.synthetic import bound, linear, small_conv, uniform_rows


@given(st.integers(1, 60), st.floats(0, 0.999), st.integers(0, 1000))
def test_the_right_number_of_the_largest_is_kept(size, fraction, seed):
    values = uniform_rows(3, size, seed=seed)
    mask = largest(values, fraction)
    kept = max(1, size - int(fraction * size + 1e-9))
    assert (mask.sum(1) == kept).all()
    for row, chosen in zip(values, mask.bool(), strict=True):
        if kept < size:
            assert row[chosen].min() >= row[~chosen].max()


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.95, 0.99])
def test_values_are_sent_as_they_are_or_not_at_all(fraction):
    defense = bound("prune", small_conv(), fraction=fraction)
    x, ids = uniform_rows(8, 1, 8, 4), torch.arange(8)
    payload, context = defense.forward(x, ids, 0)
    r = context.representation.detach()
    there = payload != 0
    assert torch.equal(payload[there], r[there])
    assert (there.flatten(1).sum(1) <= max(1, 32 - int(fraction * 32))).all()
    assert torch.equal(payload, torch.where(there, r, 0))


def test_the_gradient_reaches_only_what_was_sent_in_every_local_step():
    defense = bound("prune", linear(10, 6), fraction=0.8)
    x, ids = uniform_rows(1, 6), torch.arange(1)
    payload, context = defense.forward(x, ids, 0)
    before = defense.bottom.weight.detach().clone()
    defense.backward(context, torch.ones(1, 10), local_steps=2)
    changed = (defense.bottom.weight.detach() != before).any(1)
    assert torch.equal(changed, payload[0] != 0)
    assert changed.sum() == 2


def test_it_says_what_it_sends():
    found = bound("prune", linear(10, 6), fraction=0.9).diagnose(uniform_rows(16, 6), torch.arange(16))
    assert found["sent_values"] == pytest.approx(0.1)
    assert 0.1 < found["sent_power"] < 1


def test_it_has_no_risk_map_because_the_row_chooses_what_is_sent():
    defense = bound("prune", linear(10, 6), fraction=0.7)
    answer = defense.risk_map(uniform_rows(2, 6), torch.arange(2))
    assert isinstance(answer, NotDifferentiable)
    assert "depends on the row" in answer.reason
