"""Soteria: the score on maps whose Jacobian is known, exact and estimated norms, and what is held."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa.defenses.risk_map import NotDifferentiable
from veracausa.defenses.sensitivity import row_norms
from veracausa.testing.synthetic import bound, linear, small_conv, uniform_rows

IDS = torch.arange(6)
A_ROW = {"mask_scope": "sample", "offset": 0.0}


def linear_map() -> nn.Linear:
    bottom = linear(20, 6)
    with torch.no_grad():
        bottom.weight.mul_(torch.linspace(0.1, 3, 20).unsqueeze(1))
    return bottom


@pytest.mark.parametrize("norms", ["exact", "auto"])
def test_the_highest_scores_of_a_linear_map_are_zeroed(norms):
    bottom, x = linear_map(), uniform_rows(6, 6) - 0.5
    defense = bound("soteria", bottom, fraction=0.75, norms=norms, **A_ROW)
    sent = defense.infer(x, IDS)
    score = bottom(x).abs() / bottom.weight.norm(dim=1)
    for row, values in zip(score, sent, strict=True):
        assert (values != 0).sum() == 5
        assert row[values != 0].max() < row[values == 0].min()


def test_one_mask_for_the_batch_as_the_authors_have_it_or_one_for_a_row():
    x = uniform_rows(6, 6) - 0.5
    for scope, same in (({}, True), (A_ROW, False)):
        there = bound("soteria", linear_map(), fraction=0.5, **scope).infer(x, IDS) != 0
        assert bool((there == there[0]).all()) is same


@pytest.mark.parametrize("scope", [{}, A_ROW], ids=["a batch", "a row"])
def test_the_frozen_map_sends_what_infer_sends_and_holds_a_batch_s_mask(scope):
    x = uniform_rows(6, 6) - 0.5
    defense = bound("soteria", linear_map(), fraction=0.5, **scope)
    frozen, sent = defense.frozen_map(x, IDS), defense.infer(x, IDS)
    assert torch.equal(frozen(x, IDS), sent)
    alone = frozen(x[2:3], IDS[2:3])
    assert torch.equal(alone != 0, sent[2:3] != 0), "the mask follows the rows that are asked about"
    torch.testing.assert_close(alone, sent[2:3])  # one row's product is summed in another order than six rows'


def test_what_does_not_depend_on_the_row_goes_first():
    """Behind a ReLU that is off a value is 0 whatever is done: it must not take the place of one that speaks."""
    bottom = nn.Sequential(linear(40, 6, bias=True), nn.ReLU())
    x = uniform_rows(6, 6) - 0.5
    alive = (bottom(x) != 0).sum(1)
    sent = bound("soteria", bottom, fraction=0.9, **A_ROW).infer(x, IDS)
    assert (alive >= 4).all()
    assert ((sent != 0).sum(1) == 4).all()


def test_estimated_masks_come_near_the_exact_ones_and_are_the_same_every_time():
    x = uniform_rows(6, 6) - 0.5
    exact, rough, fine = (
        bound("soteria", linear_map(), fraction=0.5, norms=norms, probes=probes, **A_ROW).infer(x, IDS) != 0
        for norms, probes in (("exact", 1), ("hutchinson", 4), ("hutchinson", 400))
    )
    assert (fine == exact).float().mean() > 0.95
    assert (fine == exact).sum() > (rough == exact).sum()
    x = uniform_rows(6, 1, 8, 4)
    again = bound("soteria", small_conv(), fraction=0.5, norms="hutchinson", probes=4, **A_ROW)
    assert torch.equal(again.infer(x, IDS), again.infer(x, IDS))
    assert torch.equal(again.infer(x, IDS)[2:4], again.infer(x[2:4], IDS[2:4])), "a mask depends on the batch"


@pytest.mark.parametrize(("outputs", "inputs", "exact"), [(20, 600, True), (200, 20, True), (200, 200, False)])
def test_auto_is_exact_where_that_is_cheap(outputs, inputs, exact):
    bottom, x = linear(outputs, inputs), uniform_rows(3, inputs)
    auto, always = (
        row_norms(d, d.options, d.seed, x, bottom(x))
        for d in (bound("soteria", bottom, norms=norms) for norms in ("auto", "exact"))
    )
    assert torch.allclose(auto, always, rtol=1e-4) is exact


def test_the_offset_counts():
    """Added to |r|, it spares small values that move much with the row."""
    bottom, x = linear_map(), uniform_rows(6, 6) - 0.5
    none, much = (
        bound("soteria", bottom, fraction=0.5, mask_scope="sample", offset=o).infer(x, IDS) for o in (0.0, 9.0)
    )
    assert not torch.equal(none != 0, much != 0)
    norms = bottom.weight.norm(dim=1)
    assert norms[much[0] != 0].min() > norms[much[0] == 0].max(), "with a large offset the norms alone decide"


def test_the_mask_is_held_for_the_gradient_and_there_is_no_risk_map():
    x = uniform_rows(6, 6) - 0.5
    defense = bound("soteria", linear_map(), fraction=0.75)
    payload, context = defense.forward(x, IDS, 0)
    (slope,) = torch.autograd.grad((context.representation * context.mask).sum(), context.representation)
    assert torch.equal(slope != 0, payload != 0)
    assert isinstance(defense.risk_map(x, IDS), NotDifferentiable)


def test_batch_normalisation_is_not_touched_by_the_jacobian():
    bottom = small_conv()
    bound("soteria", bottom).forward(uniform_rows(6, 1, 8, 4), IDS, 0)
    assert bottom[1].num_batches_tracked == 1
    assert bottom.training
