"""NoPeek lowers the distance correlation of rows and payloads, and survives what has no slope."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from trainings import assert_resumes

from veracausa.defenses.methods.nopeek import NoPeek, NoPeekOptions
from veracausa.metrics.representations import distance_correlation
from veracausa.seeding import drawing_from, generator
from veracausa.testing.defense import check_defense

ROWS = 64


def bound(lr=0.05, **settings) -> NoPeek:
    with drawing_from(generator(0, "model")):
        bottom = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
    defense = NoPeek(NoPeekOptions(**settings))
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=lr), generator(1))
    return defense


def rows() -> torch.Tensor:
    return torch.randn(ROWS, 6, generator=generator(2))


def taught(defense: NoPeek, steps: int, grad: torch.Tensor, local_steps: int = 1) -> float:
    """The distance correlation after so many exchanges."""
    x, ids = rows(), torch.arange(ROWS)
    for step in range(steps):
        _, context = defense.forward(x, ids, step)
        defense.backward(context, grad, local_steps)
    return defense.diagnose(x, ids)["dcor"]


def test_it_keeps_to_the_contract():
    check_defense("nopeek", {"form": "convex", "weight": 0.5})


def test_the_penalty_lowers_the_distance_correlation():
    nothing = torch.zeros(ROWS, 8)
    values = [taught(bound(weight=weight), 60, nothing) for weight in (0.0, 0.1, 5.0)]
    assert values[0] > 0.8
    assert values[0] - 0.05 > values[1] > values[2] + 0.1


def test_one_step_follows_both_gradients():
    """θ moves by −lr·(Jᵀg + a·∇dCor), or by the convex form's shares of them."""
    x, ids, grad = rows(), torch.arange(ROWS), 0.01 * torch.randn(ROWS, 8, generator=generator(3))
    for form, task in (("additive", 1.0), ("convex", 0.3)):
        defense = bound(lr=1.0, weight=0.7, form=form, clip=1e9)
        r = defense.bottom(x)
        loss = task * (r * grad).sum() + 0.7 * distance_correlation(x, r)
        slopes = torch.autograd.grad(loss, list(defense.bottom.parameters()))
        expected = [p.detach() - slope for p, slope in zip(defense.bottom.parameters(), slopes, strict=True)]
        _, context = defense.forward(x, ids, 0)
        defense.backward(context, grad)
        for parameter, value in zip(defense.bottom.parameters(), expected, strict=True):
            assert torch.allclose(parameter, value, atol=1e-5)


def test_the_penalty_is_clipped_and_the_task_is_not():
    defense = bound(weight=1000.0)
    _, context = defense.forward(rows(), torch.arange(ROWS), 0)
    grad = torch.full((ROWS, 8), 7.0)
    added = defense._with_penalty(grad, context) - grad
    assert added.norm().item() == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("form", ["additive", "convex"])
def test_a_step_without_a_slope_goes_without_the_penalty_and_is_counted(form):
    defense, x, ids = bound(weight=0.5, form=form), rows(), torch.arange(ROWS)
    x[0] = torch.inf
    _, context = defense.forward(rows(), ids, 0)
    context.x = x
    grad = torch.randn(ROWS, 8, generator=generator(3))
    assert torch.equal(defense._with_penalty(grad, context), grad)
    assert defense.diagnose(rows(), ids)["skipped"] == 1


def test_few_rows_have_no_penalty():
    defense = bound(weight=5.0)
    _, context = defense.forward(rows()[:3], torch.arange(3), 0)
    grad = torch.randn(3, 8, generator=generator(3))
    assert defense._with_penalty(grad, context) is grad
    assert "dcor" not in defense.diagnose(rows()[:3], torch.arange(3))


def test_local_steps_are_as_many_updates():
    grad = torch.zeros(ROWS, 8)
    assert taught(bound(weight=2.0), 4, grad) == taught(bound(weight=2.0), 1, grad, local_steps=4)


def test_the_convex_form_shares_out_one():
    with pytest.raises(ValidationError, match="at most 1"):
        NoPeekOptions(form="convex", weight=2.0)


def test_a_resumed_run_is_the_undisturbed_one(tmp_path):
    assert_resumes({"name": "nopeek", "weight": 2.0}, tmp_path)
