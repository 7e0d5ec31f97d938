"""What a checkpoint keeps of an optimiser goes on in the memory format of the weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa.config import Optimizer
from veracausa.runs.store import deserialize_state, serialize_state
from veracausa.training.optimization import load_optimizer, make_optimizer


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_kept_state_lies_in_memory_as_its_weights_do(name):
    options = Optimizer(name=name, lr=0.1, momentum=0.9)

    def model() -> nn.Module:
        return nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    first = model()
    optimizer = make_optimizer(first.parameters(), options)
    first(torch.ones(2, 3, 8, 8)).square().sum().backward()
    optimizer.step()
    kept = deserialize_state(serialize_state(optimizer.state_dict()))

    second = model()
    again = make_optimizer(second.parameters(), options)
    load_optimizer(again, kept)
    compared = 0
    for before, after in zip(first.parameters(), second.parameters(), strict=True):
        for part, value in optimizer.state[before].items():
            if isinstance(value, torch.Tensor) and value.shape == before.shape:
                assert torch.equal(again.state[after][part], value)
                assert again.state[after][part].stride() == after.stride()
                compared += 1
    assert compared >= 2
