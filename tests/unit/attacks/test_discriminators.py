"""The judges of payloads take any payload, and tell apart what differs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from veracausa.attacks.networks import auxiliary_classifier, embedding_discriminator
from veracausa.seeding import drawing_from

SHAPES = [(16, 32, 16), (4, 3, 2), (8, 1, 1), (20,), (3, 5)]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_take_payloads_of_any_shape(shape):
    payload, labels = torch.randn(5, *shape, generator=rng()), torch.randint(0, 3, (5,), generator=rng())
    assert embedding_discriminator(shape)(payload).shape == (5,)
    assert embedding_discriminator(shape, 3)(payload, labels).shape == (5,)
    for norm in (True, False):
        assert auxiliary_classifier(shape, 6, norm)(payload).shape == (5, 6)


def test_one_that_knows_labels_looks_at_them():
    with drawing_from(rng()):
        judge = embedding_discriminator((4, 3, 2), 3).eval()
    payload = torch.randn(1, 4, 3, 2, generator=rng()).repeat(3, 1, 1, 1)
    assert len(judge(payload, torch.arange(3)).unique()) == 3
    with pytest.raises(ValueError, match="labels"):
        judge(payload)


@pytest.mark.parametrize("norm", [True, False])
def test_the_dac_learns_to_tell_classes_and_senders(norm):
    codes = torch.arange(64) % 4
    payload = torch.randn(64, 4, 8, 4, generator=rng()) + codes.view(-1, 1, 1, 1)
    with drawing_from(rng()):
        dac = auxiliary_classifier((4, 8, 4), 4, norm)
    optimizer = torch.optim.Adam(dac.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(dac(payload), codes).backward()
        optimizer.step()
    assert float((dac(payload).argmax(1) == codes).float().mean()) > 0.8
