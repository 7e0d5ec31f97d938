"""Decoders give rows of the asked shape from payloads of any shape."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa.models.decoders import (
    ResidualBlock,
    conv_decoder,
    residual_decoder,
    strong_decoder,
    upsampling_sizes,
)

SHAPES = [
    ((8, 4, 2), (1, 8, 4)),
    ((6, 7, 3), (1, 28, 14)),
    ((5, 16, 8), (3, 16, 8)),
    ((4, 9, 9), (1, 8, 4)),
    ((4, 4, 8), (1, 8, 8)),
    ((10,), (3, 32, 16)),
    ((3, 5), (1, 28, 14)),
]


@pytest.mark.parametrize("decoder", [conv_decoder, residual_decoder, strong_decoder])
@pytest.mark.parametrize(("payload", "row"), SHAPES)
def test_pictures_of_any_size(decoder, payload: tuple[int, ...], row: tuple[int, ...]) -> None:
    model = decoder(payload, row, blocks=1, channels=8)
    guess = model(1000 * torch.randn(3, *payload, generator=torch.Generator().manual_seed(0)))
    assert guess.shape == (3, *row)
    assert guess.min() >= 0
    assert guess.max() <= 1
    guess.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("payload", [(7,), (4, 2, 2)])
def test_tables_are_not_bounded(payload: tuple[int, ...]) -> None:
    model = strong_decoder(payload, (11,), blocks=2, channels=8)
    assert model(torch.randn(4, *payload)).shape == (4, 11)
    assert not any(isinstance(layer, nn.Sigmoid) for layer in model)


def test_the_strong_decoder_is_the_one_of_the_appendix() -> None:
    model = strong_decoder((64, 8, 4), (3, 32, 16))
    blocks = [layer for layer in model if isinstance(layer, ResidualBlock)]
    assert len(blocks) == 4 + 2 * 2
    assert {block.body[2].out_channels for block in blocks} == {128}


def test_sizes_on_the_way() -> None:
    assert upsampling_sizes((32, 16), (32, 16)) == [(32, 16)]
    assert upsampling_sizes((7, 3), (28, 14)) == [(7, 3), (14, 7), (28, 14)]
    assert upsampling_sizes((4, 8), (8, 8)) == [(4, 8), (8, 8)]
