"""The flow draws rows that fit a payload: sharp where it is told, and as varied as rows are where it is not."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor

from veracausa.attacks.methods.features.flow import FlowDecoder, FlowOptions
from veracausa.errors import InputError

COUNT = 512


def rows(seed: int) -> Tensor:
    """The first number is told by the payload, the second is −1 or 1 whatever the payload says."""
    drawn = torch.randn(COUNT, 2, generator=toys.rng(seed))
    return torch.stack([drawn[:, 0], drawn[:, 1].sign()], 1)


def fitted(**settings: float) -> FlowDecoder:
    small = {"epochs": 30, "channels": 16, "blocks": 1, "features": 8, "lr": 5e-3, "steps": 8}
    attack = FlowDecoder(FlowOptions(name="flow", **{**small, **settings}))
    return attack.fit(rows(1)[:, :1], rows(1), toys.rng(2), pixels=False)


def test_what_a_payload_tells_is_read_and_the_rest_is_drawn_and_not_averaged() -> None:
    attack, truth = fitted(), rows(3)
    read = attack.reconstruct(truth[:, :1])
    assert float((read[:, 0] - truth[:, 0]).square().mean()) < 0.15
    assert float(read[:, 1].abs().mean()) > 0.7, "near −1 or 1, not near their mean"
    assert 0.3 < float((read[:, 1] > 0).float().mean()) < 0.7
    assert not torch.equal(read, attack.reconstruct(truth[:, :1])), "every reading is drawn anew"
    many = FlowDecoder(attack.options.model_copy(update={"draws": 16}))
    many.__dict__.update({**vars(attack), "options": many.options})
    assert float(many.reconstruct(truth[:64, :1])[:, 1].abs().mean()) < 0.5, "many draws come near the mean"


def test_labels_tell_what_the_payload_does_not() -> None:
    attack = FlowDecoder(FlowOptions(name="flow", epochs=30, channels=16, blocks=1, features=8, lr=5e-3, steps=8))
    classes = (rows(1)[:, 1] > 0).long()
    attack.fit(rows(1)[:, :1], rows(1), toys.rng(2), pixels=False, labels=classes, classes=2)
    truth = rows(3)
    attack.told((truth[:, 1] > 0).long())
    right = attack.reconstruct(truth[:, :1])[:, 1].sign() == truth[:, 1]
    assert float(right.float().mean()) > 0.9


def test_pictures_stay_in_their_range_and_too_few_rows_are_refused() -> None:
    pictures, _ = toys.pictures(64, 1)
    attack = FlowDecoder(FlowOptions(name="flow", epochs=1, channels=8, blocks=1, features=2, steps=2))
    attack.fit(pictures[..., :4], pictures, toys.rng(0))
    read = attack.reconstruct(pictures[:5, ..., :4])
    assert read.shape == (5, 1, 8, 8)
    assert float(read.min()) >= 0
    assert float(read.max()) <= 1
    with pytest.raises(InputError, match="at least 4"):
        attack.fit(pictures[:3, ..., :4], pictures[:3], toys.rng(0))
