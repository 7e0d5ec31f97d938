"""The zoo: shapes at every cut, parameter counts, and what cuts are called elsewhere."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from veracausa.errors import InputError
from veracausa.models import ModelOptions, models
from veracausa.models.cut import build_bottom, build_top, build_whole, join, payload_shape
from veracausa.models.units import resolve
from veracausa.models.zoo.resnet import conventions
from veracausa.seeding import generator


def options_of(name: str, **settings: object) -> ModelOptions:
    options = models.options(name).model_validate({"name": name, **settings})
    assert isinstance(options, ModelOptions)
    return options


def shapes_at_every_cut(options: ModelOptions, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    whole = build_whole(options, shape, 10, generator(0))
    return [payload_shape(whole[:unit], shape) for unit in range(1, len(whole))]


RESNET_STRIP = (
    [(64, 32, 16)] * 6  # stem and stage 1
    + [(128, 16, 8)] * 2
    + [(256, 8, 4)] * 2
    + [(512, 4, 2)] * 2
    + [(512,)]
)
CONVNET_STRIP = [
    *[(8, 28, 14)] * 2,
    (8, 14, 7),
    *[(16, 14, 7)] * 2,
    (16, 7, 3),
    *[(120,)] * 2,
    *[(84,)] * 2,
]


def test_resnet18_on_half_a_cifar_image():
    assert shapes_at_every_cut(options_of("resnet18"), (3, 32, 16)) == RESNET_STRIP


def test_convnet_on_half_a_digit():
    assert shapes_at_every_cut(options_of("convnet"), (1, 28, 14)) == CONVNET_STRIP


def test_convnet_on_half_a_small_digit():
    assert shapes_at_every_cut(options_of("convnet"), (1, 8, 4))[:6][-1] == (16, 2, 1)


def test_two_strips_joined_along_width_have_the_whole_images_shape():
    options = options_of("resnet18", width=8)
    bottom = build_bottom(options, (3, 32, 16), 10, generator(0))
    left, right = torch.rand(2, 5, 3, 32, 16)
    assert join([bottom(left), bottom(right)], "width").shape[1:] == payload_shape(bottom, (3, 32, 32))


@pytest.mark.parametrize(("name", "stem", "outputs", "expected"), [
    ("resnet18", "cifar", 10, 11_173_962),
    ("resnet18", "imagenet", 1000, 11_689_512),
    ("resnet34", "imagenet", 1000, 21_797_672),
])  # fmt: skip
def test_parameter_counts(name: str, stem: str, outputs: int, expected: int):
    whole = build_whole(options_of(name, stem=stem), (3, 32, 32), outputs, generator(0))
    assert sum(parameter.numel() for parameter in whole.parameters()) == expected


def test_convnet_top_takes_672_values_of_two_halves():
    top = build_top(options_of("convnet"), [(16, 7, 3)] * 2, "width", 10, generator(0))
    assert top[0][1].in_features == 672


def network(name: str = "resnet18"):
    options = options_of(name, width=1)
    return models.get(name)(options, (3, 8, 8), 10)


@pytest.mark.parametrize(("number", "units"), [(1, 1), (4, 4), (5, 6), (6, 8), (7, 10), (8, 12), (9, 13)])
def test_n2_counts_torchvisions_children(number: int, units: int):
    assert resolve(network(), number, "N2") == units


@pytest.mark.parametrize(("number", "units"), [(1, 3), (3, 5), (5, 6), (7, 7), (17, 12)])
def test_n3_counts_weight_layers(number: int, units: int):
    assert resolve(network(), number, "N3") == units


def test_n3_inside_a_block_names_the_nearest_cuts():
    with pytest.raises(InputError, match=r"'ResNet'.*cut 6.*N3.*inside a block.*5 and 7"):
        resolve(network(), 6, "N3")


@pytest.mark.parametrize(("convention", "number"), [("N2", 10), ("N2", 11), ("N3", 18), ("N3", 0)])
def test_the_last_layer_and_beyond_are_no_cuts(convention: str, number: int):
    with pytest.raises(InputError, match="does not exist: the cuts are"):
        resolve(network(), number, convention)


def test_resnet34_has_34_weight_layers_and_22_units():
    numbers = conventions((3, 4, 6, 3))
    assert numbers["N3"][34] == 22 == len(network("resnet34"))
    assert numbers["N2"][5] == 7
    assert numbers["N2"][10] == 22


@pytest.mark.parametrize("convention", ["N2", "N3"])
def test_a_model_that_declares_no_numbering_is_refused(convention: str):
    with pytest.raises(InputError, match=f"model 'mlp' does not say what {convention} means"):
        build_bottom(options_of("mlp", cut_convention=convention), (4,), 2, generator(0))


def test_build_follows_the_convention():
    options = options_of("resnet18", width=2, cut=6, cut_convention="N2")
    bottom = build_bottom(options, (3, 32, 16), 10, generator(0))
    assert payload_shape(bottom, (3, 32, 16)) == (4, 16, 8)
    top = build_top(options, [(4, 16, 8)] * 2, "width", 10, generator(0))
    assert len(bottom) + len(top) == 14


@pytest.mark.parametrize("name", ["convnet", "resnet18"])
def test_centring_happens_inside_unit_1(name: str):
    plain, centring = (
        build_bottom(options_of(name, cut=1, centre=centre), (3, 8, 8), 10, generator(0)) for centre in (False, True)
    )
    x = torch.rand(2, 3, 8, 8)
    assert len(plain) == len(centring) == 1
    assert torch.allclose(centring(x), plain(2 * x - 1), atol=1e-6)  # float32 rounding of (x − 0.5) / 0.5


def test_weights_of_resnet_are_torchvisions():
    whole = build_whole(options_of("resnet18"), (3, 32, 32), 10, generator(0))
    weight = whole[11].conv2.weight
    # Kaiming normal, fan out: std √(2 / (512·9)); 2.4 million draws put the sample's std within 0.2 % of it.
    assert weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert torch.equal(whole[1].weight, torch.ones(64))


def test_defaults_of_the_cut():
    assert [options_of(name).cut for name in ("convnet", "resnet18", "resnet34", "mlp")] == [6, 6, 6, 2]


@pytest.mark.parametrize(("name", "settings"), [
    ("mlp", {"hidden": []}),
    ("mlp", {"hidden": [0]}),
    ("resnet18", {"width": 0}),
    ("resnet18", {"stem": "tiny"}),
    ("convnet", {"cut": 0}),
    ("convnet", {"center": True}),
])  # fmt: skip
def test_settings_that_make_no_model_are_refused(name: str, settings: dict[str, object]):
    with pytest.raises(ValidationError):
        options_of(name, **settings)
