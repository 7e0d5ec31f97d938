"""The greyscale control sends the same for pictures that differ only in colour, and refuses rows without any."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import veracausa
from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.defenses import defenses
from veracausa.errors import InputError
from veracausa.registry import Options


@pytest.fixture
def defense():
    torch.manual_seed(0)
    bottom = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    made = defenses.get("greyscale")(Options(name="greyscale"))
    made.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), torch.Generator())
    return made


def two_colourings(rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of the same lightness and of other colours, all of them inside what sRGB can show."""
    grey = 0.4 + 0.2 * torch.rand(rows, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    lab = rgb_to_lab(grey.expand(-1, 3, -1, -1))
    first, second = lab.clone(), lab.clone()
    first[:, 1], second[:, 2] = 8.0, -8.0
    return lab_to_rgb(first), lab_to_rgb(second)


@pytest.mark.parametrize("how", ["forward", "infer", "deterministic_payload"])
def test_colour_does_not_reach_the_wire(how, defense):
    first, second = two_colourings()
    ids = torch.arange(4)

    def sent(x):
        return defense.forward(x, ids, 0)[0] if how == "forward" else getattr(defense, how)(x, ids)

    torch.testing.assert_close(sent(first), sent(second), rtol=0, atol=1e-4)
    assert not torch.allclose(defense.bottom(first), defense.bottom(second), atol=1e-3)
    assert not torch.allclose(sent(first), sent(first.flip(3)), atol=1e-3)  # structure does


def test_the_map_can_be_differentiated(defense):
    x = two_colourings()[0].requires_grad_()
    defense.deterministic_payload(x, torch.arange(4)).sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().sum() > 0


def test_rows_without_colour_are_refused_by_name(tmp_path):
    job = {
        "data": {"name": "digits", "train": 64},
        "model": {"name": "convnet"},
        "party": {"passive_2": {"defense": {"name": "greyscale"}}},
        "runtime": {"device": "cpu"},
    }
    with pytest.raises(InputError, match=r"^party 'passive_2': greyscale removes colour, and rows of shape 1×8×4 have"):
        veracausa.train(job, tmp_path / "run")
