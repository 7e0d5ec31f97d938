"""Views of pictures: what each setting changes, and what no view changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from veracausa.errors import InputError
from veracausa.features.views import ViewOptions, generator_on, view

CPU = torch.device("cpu")
STILL = {"crop": 1.0, "flip": 0.0, "jitter": 0.0, "greyscale": 0.0}


def pictures(n: int = 64, channels: int = 3, height: int = 32, width: int = 16) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.25


def viewed(x: Tensor, seed: int = 0, **settings: float) -> Tensor:
    return view(x, ViewOptions(**{**STILL, **settings}), generator_on(CPU, seed, "view"))


def luma(x: Tensor) -> Tensor:
    return (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1)


@pytest.mark.parametrize("shape", [(3, 32, 16), (1, 28, 14), (3, 7, 5), (1, 1, 9)])
def test_a_view_has_the_shape_and_the_range_of_its_picture(shape: tuple[int, int, int]) -> None:
    x = pictures(8, *shape)
    made = view(x, ViewOptions(), generator_on(CPU, 1))
    assert made.shape == x.shape
    assert made.dtype == x.dtype
    assert float(made.min()) >= 0
    assert float(made.max()) <= 1
    assert not torch.allclose(made, x, atol=0.01)


def test_without_settings_a_view_is_the_picture() -> None:
    x = pictures()
    assert torch.allclose(viewed(x), x, atol=1e-5)


def test_the_generator_alone_decides() -> None:
    x = pictures()
    options = ViewOptions()
    torch.manual_seed(1)
    first = view(x, options, generator_on(CPU, 3))
    torch.manual_seed(2)
    assert torch.equal(first, view(x, options, generator_on(CPU, 3)))
    assert not torch.equal(first, view(x, options, generator_on(CPU, 4)))


def test_flipped_pictures_are_mirrored_and_about_as_many_as_asked() -> None:
    x = pictures(400)
    made = viewed(x, flip=0.5)
    mirrored = torch.isclose(made, x.flip(3), atol=1e-4).flatten(1).all(1)
    same = torch.isclose(made, x, atol=1e-4).flatten(1).all(1)
    assert bool((mirrored ^ same).all())
    assert 140 < int(mirrored.sum()) < 260


def test_a_crop_shows_a_part_of_the_picture_enlarged() -> None:
    down = torch.linspace(0.1, 0.9, 32).view(1, 1, 32, 1).expand(200, 3, 32, 16)
    made = viewed(down, crop=0.3)
    reach = made[:, 0, -1, 0] - made[:, 0, 0, 0]
    assert bool((reach < 0.81).all())
    assert float(reach.min()) < 0.55
    assert float(reach.min()) > 0.8 * 0.3 * 0.75
    # Crops lie everywhere in the picture.
    assert float(made[:, 0, 0, 0].max()) > 0.3
    assert float(made[:, 0, -1, 0].min()) < 0.7


def test_greyscale_takes_colour_and_leaves_the_luma() -> None:
    x = pictures()
    made = viewed(x, greyscale=1.0)
    assert torch.allclose(made[:, 0], made[:, 1], atol=1e-5)
    assert torch.allclose(luma(made), luma(x), atol=1e-5)


@pytest.mark.parametrize("setting", [{"saturation": 0.3, "hue": 0.0}, {"saturation": 0.0, "hue": 0.05}])
def test_saturation_and_hue_change_colours_and_leave_the_luma(setting: dict[str, float]) -> None:
    x = 0.5 + (pictures() - 0.5) * 0.4
    made = viewed(x, jitter=1.0, brightness=0.0, contrast=0.0, **setting)
    assert not torch.allclose(made, x, atol=0.005)
    assert torch.allclose(luma(made), luma(x), atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_brightness_and_contrast_change_mean_and_spread(channels: int) -> None:
    x = pictures(200, channels)
    still = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0, "jitter": 1.0}
    ratio = viewed(x, **{**still, "brightness": 0.3}).flatten(1).mean(1) / x.flatten(1).mean(1)
    assert 0.69 < float(ratio.min()) < 0.8
    assert 1.2 < float(ratio.max()) < 1.31
    spread = viewed(x, **{**still, "contrast": 0.3}).flatten(1).std(1) / x.flatten(1).std(1)
    assert 0.69 < float(spread.min()) < 0.8
    assert 1.2 < float(spread.max()) < 1.31


def test_rows_that_are_no_pictures_are_refused() -> None:
    for x in (torch.zeros(3, 4), torch.zeros(3, 2, 8, 8)):
        with pytest.raises(InputError, match="channels"):
            view(x, ViewOptions(), generator_on(CPU, 0))
