"""sRGB and CIELAB: known colours, there and back, gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.data import colour


def plain(*rgb: float) -> torch.Tensor:
    return torch.tensor(rgb).view(3, 1, 1)


@pytest.mark.parametrize(
    ("rgb", "lab"),
    [
        ((1, 1, 1), (100, 0, 0)),
        ((0, 0, 0), (0, 0, 0)),
        ((1, 0, 0), (53.2, 80.1, 67.2)),
        ((0, 1, 0), (87.7, -86.2, 83.2)),
    ],
)
def test_known_colours(rgb, lab):
    found = colour.rgb_to_lab(plain(*map(float, rgb))).flatten()
    # The tables give one decimal.
    assert torch.allclose(found, torch.tensor(lab, dtype=torch.float32), atol=0.06)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 9))
def test_there_and_back(seed, height, width):
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(seed))
    assert (colour.lab_to_rgb(colour.rgb_to_lab(x)) - x).abs().max() < 1e-3


@given(st.integers(0, 2**32 - 1))
def test_what_lies_out_of_gamut_comes_back_unclipped(seed):
    lab = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(seed)) * 200 - torch.tensor(
        [50.0, 100.0, 100.0]
    ).view(3, 1, 1)
    back = colour.rgb_to_lab(colour.lab_to_rgb(lab, clip=False))
    # The straight pieces meet the curves to four digits only; beside L of a few units nothing is further off.
    assert (back - lab).abs().max() < 0.05
    clipped = colour.lab_to_rgb(lab)
    assert clipped.min() >= 0
    assert clipped.max() <= 1


@pytest.mark.parametrize("level", [0.0, 1e-6, 0.04045, 0.5, 1.0])
def test_gradients_are_finite(level):
    x = torch.full((1, 3, 2, 2), level, requires_grad=True)
    for function in (colour.without_chroma, colour.without_luminance, colour.rgb_to_lab):
        (gradient,) = torch.autograd.grad(function(x).square().sum(), x)
        assert gradient.isfinite().all()
    lab = torch.tensor([0.0, 60.0, -60.0]).view(1, 3, 1, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(colour.lab_to_rgb(lab, clip=False).square().sum(), lab)
    assert gradient.isfinite().all()


def test_halves():
    x = torch.rand(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    grey = colour.without_chroma(x)
    assert (grey - grey.mean(1, keepdim=True)).abs().max() < 1e-3
    assert torch.allclose(colour.rgb_to_lab(grey)[:, 0], colour.rgb_to_lab(x)[:, 0], atol=0.05)
    pale = 0.4 + 0.2 * x  # all of whose colours exist at L = 50
    flat = colour.rgb_to_lab(colour.without_luminance(pale))
    assert torch.allclose(flat[:, 0], torch.full_like(flat[:, 0], 50), atol=0.05)
    assert torch.allclose(flat[:, 1:], colour.rgb_to_lab(pale)[:, 1:], atol=0.05)
