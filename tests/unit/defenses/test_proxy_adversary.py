"""The decoder that a party trains against itself learns the same from payloads of either memory format."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from veracausa.defenses.proxy_adversary import ProxyAdversary


def test_it_learns_alike_from_payloads_with_channels_last():
    rng = torch.Generator().manual_seed(0)
    payload, rows = torch.randn(4, 8, 8, 4, generator=rng), torch.rand(4, 3, 8, 4, generator=rng)
    losses = []
    for layout in (torch.contiguous_format, torch.channels_last):
        adversary = ProxyAdversary((8, 8, 4), (3, 8, 4), "weak", 1e-2, 7, torch.device("cpu"))
        sent = payload.contiguous(memory_format=layout)
        losses.append([float(adversary.learn(sent, rows, F.mse_loss)) for _ in range(4)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
