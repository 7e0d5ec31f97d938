"""The decoder that a party trains against itself learns the same from payloads of either memory format."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from veracausa.defenses.proxy_adversary import ProxyAdversary


def test_it_learns_alike_from_payloads_with_channels_last():
    payload, rows = torch.randn(4, 8, 8, 4), torch.rand(4, 3, 8, 4)
    learnt = []
    for layout in (torch.contiguous_format, torch.channels_last):
        adversary = ProxyAdversary((8, 8, 4), (3, 8, 4), "weak", 1e-2, 7, torch.device("cpu"))
        for _ in range(3):
            adversary.learn(payload.contiguous(memory_format=layout), rows, F.mse_loss)
        learnt.append(adversary.ask(payload))
    torch.testing.assert_close(*learnt, rtol=1e-3, atol=1e-4)
