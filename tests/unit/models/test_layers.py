"""Dropout from a party's own generator."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from veracausa.errors import InputError
from veracausa.models.layers import Dropout, bind_dropout
from veracausa.seeding import generator


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        self.drop = nn.Dropout1d(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.body(x).unsqueeze(-1)).squeeze(-1)


def test_every_dropout_of_a_tree_draws_from_the_generator():
    model = nn.Sequential(nn.Dropout(0.3), Block(), nn.ModuleList([nn.Dropout2d(0.2)]))
    bound = bind_dropout(model, generator(0, "dropout"))
    assert bound is model
    found = [module for module in model.modules() if isinstance(module, Dropout)]
    assert [(module.p, module.channels) for module in found] == [(0.3, False), (0.5, False), (0.5, True), (0.2, True)]
    assert not any(isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d) for module in model.modules())


def test_a_bare_dropout_is_replaced():
    bare = nn.Dropout(0.5)
    bare.eval()
    bound = bind_dropout(bare, generator(0))
    assert isinstance(bound, Dropout)
    assert not bound.training


def test_draws_depend_on_the_generator_alone():
    model = bind_dropout(Block(), generator(0, "dropout"))
    x = torch.ones(4, 8)
    before = torch.get_rng_state()
    first, second = model(x), model(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, second)
    torch.rand(3)
    bind_dropout(model, generator(0, "dropout"))
    assert torch.equal(model(x), first)
    assert torch.equal(model(x), second)


def test_values_are_kept_at_the_asked_rate_and_scaled():
    x = torch.ones(200, 200)
    y = Dropout(0.25, generator(0))(x)
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert (y > 0).float().mean().item() == pytest.approx(0.75, abs=0.02)  # nine standard deviations of 40,000 draws


def test_channels_fall_together():
    y = Dropout(0.5, generator(0), channels=True)(torch.ones(6, 10, 3, 3)).flatten(2)
    assert torch.equal(y.amin(-1), y.amax(-1))
    assert 0 < (y[..., 0] == 0).float().mean() < 1


def test_the_gradient_passes_where_the_value_did():
    x = torch.ones(5, 5, requires_grad=True)
    y = Dropout(0.5, generator(0))(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize(("p", "kept"), [(0.0, 1.0), (1.0, 0.0)])
def test_the_ends_of_the_range(p: float, kept: float):
    assert torch.equal(Dropout(p, generator(0))(torch.ones(3, 3)), torch.full((3, 3), kept))


def test_eval_mode_passes_everything_and_draws_nothing():
    rng = generator(0)
    before = rng.get_state()
    x = torch.rand(3, 3)
    assert torch.equal(Dropout(0.5, rng).eval()(x), x)
    assert torch.equal(rng.get_state(), before)


def test_a_copy_draws_from_the_generator_that_the_party_checkpoints():
    rng = generator(0)
    model = bind_dropout(nn.Sequential(nn.Dropout(0.5)), rng)
    copied = copy.deepcopy(model.eval())
    assert copied[0].rng is rng
    assert not copied[0].training


def test_bf16_drops_the_same_values():
    x = torch.ones(10, 10)
    full, half = (Dropout(0.5, generator(0))(x.to(dtype)) for dtype in (torch.float32, torch.bfloat16))
    assert half.dtype == torch.bfloat16
    assert torch.equal(full, half.float())


def test_what_cannot_be_bound_is_refused():
    with pytest.raises(InputError, match=r"AlphaDropout.*use nn\.Dropout"):
        bind_dropout(nn.Sequential(nn.AlphaDropout(0.5)), generator(0))
    with pytest.raises(InputError, match="probability"):
        Dropout(1.5, generator(0))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_drops_the_same_values_with_a_cpu_generator():
    x = torch.ones(10, 10)
    assert torch.equal(Dropout(0.5, generator(0))(x.cuda()).cpu(), Dropout(0.5, generator(0))(x))
