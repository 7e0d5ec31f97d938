"""Building: weights depend on the party's generator alone, and every half fits what arrives."""

from __future__ import annotations

import pytest
import torch
from refusals import Names
from torch import nn
from torch.nn.parameter import is_lazy

from veracausa.errors import InputError
from veracausa.models import ModelOptions, models
from veracausa.models.cut import build_bottom, build_top, build_whole, payload_shape
from veracausa.seeding import generator

SMALL = {"convnet": ((1, 8, 4), {}), "resnet18": ((3, 8, 4), {"width": 4}), "mlp": ((6,), {})}


def options_of(name: str, **settings: object) -> ModelOptions:
    options = models.options(name).model_validate({"name": name, **settings})
    assert isinstance(options, ModelOptions)
    return options


def same(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", SMALL)
def test_weights_depend_on_the_generator_alone(name: str):
    shape, settings = SMALL[name]
    options = options_of(name, **settings)
    built = []
    for noise in (1, 2):
        torch.rand(noise)
        before = torch.get_rng_state()
        bottom = build_bottom(options, shape, 10, generator(0, "bottom"))
        payload = payload_shape(bottom, shape)
        top = build_top(options, [payload, payload], "width", 10, generator(0, "top"))
        assert torch.equal(torch.get_rng_state(), before)
        built.append((bottom, top))
    assert same(built[0][0], built[1][0])
    assert same(built[0][1], built[1][1])
    assert not same(built[0][0], build_bottom(options, shape, 10, generator(1, "bottom")))


@pytest.mark.parametrize("name", SMALL)
def test_two_bottoms_and_a_top_fit_at_every_cut(name: str):
    shape, settings = SMALL[name]
    count = len(build_whole(options_of(name, **settings), shape, 10, generator(0)))
    for unit in range(1, count):
        options = options_of(name, cut=unit, **settings)
        bottoms = [build_bottom(options, shape, 10, generator(0, party)) for party in ("left", "right")]
        payloads = [payload_shape(bottom, shape) for bottom in bottoms]
        top = build_top(options, payloads, "width", 10, generator(0, "top"))
        for part in (*bottoms, top):
            assert part.training
            assert not any(is_lazy(parameter) for parameter in part.parameters())


def test_the_whole_models_shape_does_not_change_what_a_top_of_the_zoo_fits():
    options = options_of("convnet")
    top = build_top(options, [(16, 7, 3)] * 2, "width", 10, generator(0), shape=(1, 28, 28))
    assert top(torch.zeros(2, 16, 7, 6)).shape == (2, 10)
    assert top[0][1].in_features == 672


def test_the_dry_pass_leaves_batch_norm_and_modes_alone():
    bottom = build_bottom(options_of("resnet18", width=4), (3, 8, 4), 10, generator(0))
    bottom[1].eval()
    assert payload_shape(bottom, (3, 8, 4)) == (4, 8, 4)
    assert bottom.training
    assert not bottom[1].training
    for module in bottom.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.num_batches_tracked == 0
            assert torch.equal(module.running_mean, torch.zeros(module.num_features))
            assert torch.equal(module.running_var, torch.ones(module.num_features))


def test_payload_shape_follows_the_bottoms_type():
    bottom = build_bottom(options_of("mlp"), (6,), 3, generator(0)).double()
    assert payload_shape(bottom, (6,)) == (64,)


@pytest.mark.parametrize(
    ("settings", "columns", "sent"),
    [
        ({}, 6, 6),  # 30 features of 6 columns
        ({}, 100, 64),
        ({}, None, 64),  # no table
        ({"payload": 16}, 6, 16),
        ({"payload": 100}, 6, 64),
        ({"hidden": (64, 32)}, 6, 64),
        ({"hidden": (64, 32), "payload": 6}, 6, 6),
        ({"hidden": (4, 32)}, 6, 4),
        ({"cut": 1}, 1, 1),
    ],
)
def test_a_table_sends_no_more_numbers_than_it_has_columns_unless_asked(settings, columns, sent):
    options = options_of("mlp", **settings)
    bottom = build_bottom(options, (30,), 3, generator(0), columns)
    assert payload_shape(bottom, (30,)) == (sent,)
    assert build_top(options, [(sent,)] * 2, "features", 3, generator(0))(torch.zeros(2, 2 * sent)).shape == (2, 3)


def test_a_run_from_before_there_was_a_limit_is_built_as_it_was_trained():
    """Its `config.toml` names the widths, which were a default then, and no limit."""
    old = options_of("mlp", cut=2, cut_convention="N1", hidden=[64, 32])
    shapes = {
        name: tuple(value.shape) for name, value in build_bottom(old, (6,), 2, generator(0), 6).state_dict().items()
    }
    assert shapes == {"0.1.weight": (64, 6), "0.1.bias": (64,)}


def test_a_strip_too_small_for_the_model_names_the_unit():
    with pytest.raises(InputError, match=r"model 'convnet': unit 6 \(MaxPool2d\).*a sample of shape 1×2×2"):
        build_bottom(options_of("convnet"), (1, 2, 2), 10, generator(0))


def test_a_table_given_to_an_image_model_names_the_unit():
    with pytest.raises(InputError, match=r"unit 1 \(Conv2d\) expects maps of 6 channels.*shape 6 brings 6"):
        build_bottom(options_of("convnet"), (6,), 10, generator(0))


def test_an_unknown_cut_names_the_model_as_the_job_does():
    with pytest.raises(InputError, check=Names("convnet", "11", "1")):
        build_bottom(options_of("convnet", cut=11), (1, 8, 4), 10, generator(0))


def test_payloads_that_cannot_be_joined_are_refused():
    with pytest.raises(InputError, match="cannot be joined"):
        build_top(options_of("convnet"), [(16, 7, 3), (16, 6, 3)], "width", 10, generator(0))


def test_a_failed_build_leaves_the_global_random_state():
    before = torch.get_rng_state()
    with pytest.raises(InputError):
        build_bottom(options_of("convnet"), (1, 2, 2), 10, generator(0))
    assert torch.equal(torch.get_rng_state(), before)
