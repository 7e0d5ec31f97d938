"""The cut: bottom and top together are the model, for every model and every cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from veracausa.errors import InputError
from veracausa.models import ModelOptions, models
from veracausa.models.cut import build_whole, cut, join, units_of
from veracausa.seeding import generator

WHOLE = {
    "convnet": ({}, (1, 28, 28)),
    "resnet18": ({"width": 4}, (3, 16, 16)),
    "resnet34": ({"width": 4, "stem": "imagenet", "centre": True}, (3, 32, 32)),
    "mlp": ({"hidden": (7, 5, 3)}, (9,)),
}


def options_of(name: str, **settings: object) -> ModelOptions:
    options = models.options(name).model_validate({"name": name, **settings})
    assert isinstance(options, ModelOptions)
    return options


def test_every_model_of_the_zoo_is_cut_below():
    assert set(WHOLE) == set(models.names())


@pytest.mark.parametrize("name", WHOLE)
def test_top_after_bottom_is_the_model_at_every_cut(name: str):
    settings, shape = WHOLE[name]
    whole = build_whole(options_of(name, **settings), shape, 10, generator(0, "model"))
    x = torch.rand(4, *shape, generator=generator(1, "x"))
    whole.eval()
    expected = whole(x)
    for unit in range(1, len(whole)):
        bottom, top = cut(whole, unit)
        assert len(bottom) == unit
        assert torch.equal(top(bottom(x)), expected)


@pytest.mark.parametrize("name", WHOLE)
def test_a_payload_is_never_written_to(name: str):
    settings, shape = WHOLE[name]
    whole = build_whole(options_of(name, **settings), shape, 10, generator(0, "model"))
    x = torch.rand(4, *shape, generator=generator(1, "x"))
    for unit in range(1, len(whole)):
        bottom, top = cut(whole, unit)
        payload = bottom(x).detach().requires_grad_()
        sent = payload.detach().clone()
        top(payload).sum().backward()
        assert torch.equal(payload, sent)
        assert payload.grad is not None


def test_in_place_activations_of_a_users_model_leave_the_payload_alone():
    model = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Flatten(), nn.ReLU(inplace=True)), nn.Linear(6, 2))
    bottom, top = cut(model, 1)
    payload = bottom(torch.randn(5, 4)).detach().requires_grad_()
    sent = payload.detach().clone()
    top(payload).sum().backward()
    assert torch.equal(payload, sent)


class Declared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.second = nn.Linear(3, 2)
        self.units = [self.first, nn.Tanh(), self.second]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())


def test_a_module_that_declares_units_can_be_cut():
    model = Declared()
    x = torch.randn(5, 4)
    for unit in (1, 2):
        bottom, top = cut(model, unit)
        assert torch.equal(top(bottom(x)), model(x))


def test_a_module_without_units_is_told_how_to_declare_them():
    with pytest.raises(InputError, match="attribute `units`"):
        units_of(nn.Bilinear(2, 2, 2))


def test_units_that_are_not_modules_are_refused():
    model = nn.Linear(2, 2)
    model.units = [torch.tanh]
    with pytest.raises(InputError, match="no units to cut between"):
        units_of(model)


@pytest.mark.parametrize("number", [-1, 0, 3, 12])
def test_a_cut_that_does_not_exist_names_model_cut_and_range(number: int):
    with pytest.raises(InputError, match=rf"model 'Declared': cut {number} does not exist.*1\.\.2"):
        cut(Declared(), number)


def test_a_model_of_one_unit_cannot_be_cut():
    with pytest.raises(InputError, match="one unit"):
        cut(nn.Sequential(nn.Linear(2, 2)), 1)


def test_a_weight_on_both_sides_of_the_cut_is_refused():
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    with pytest.raises(InputError, match="share"):
        cut(model, 1)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from(["width", "height"]))
@settings(max_examples=25, deadline=None)
def test_join_puts_strips_of_maps_back_together(sizes: list[int], axis: str):
    dim = 3 if axis == "width" else 2
    shape = [2, 3, 4, 4]
    shape[dim] = sum(sizes)
    whole = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    assert torch.equal(join(whole.split(sizes, dim), axis), whole)


@pytest.mark.parametrize("axis", ["width", "height", "features"])
def test_vectors_are_joined_along_features_whatever_the_axis(axis: str):
    assert join([torch.zeros(2, 3), torch.zeros(2, 5)], axis).shape == (2, 8)


def test_joining_payloads_that_do_not_fit_names_their_shapes():
    with pytest.raises(InputError, match=r"2×3×4×4, 2×3×5×4.*width"):
        join([torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 5, 4)], "width")
    with pytest.raises(InputError, match=r"2×3×4×4, 2×3"):
        join([torch.zeros(2, 3, 4, 4), torch.zeros(2, 3)], "width")
    with pytest.raises(InputError, match="no payload"):
        join([], "width")
    with pytest.raises(InputError, match="no height"):
        join([torch.zeros(2, 3, 4)], "height")
