"""URVFL with the attacker's own half: both halves come back in place, and what the own half tells is used."""

from __future__ import annotations

import pytest
import torch
from toys import OTHER, LiveToy, Scrambled, convolution

from veracausa.attacks.base import AttackersPart
from veracausa.attacks.methods.features.urvfl_whole import URVFLWhole, URVFLWholeOptions, joined, joined_shape, seam
from veracausa.errors import InputError


def whole(toy: LiveToy, **settings) -> URVFLWhole:
    """The active party holds what is the other party's in the toy."""
    small = {"name": "urvfl_whole", "epochs": 15, "lr": 5e-3, "lr_dac": 1e-3, "batch_size": 32}
    attack = URVFLWhole(URVFLWholeOptions(**{**small, **settings}))
    own = AttackersPart(toy.spare[OTHER], lambda positions: toy.rows[OTHER][positions], convolution)
    attack.begin(toy.view(8, own=own))  # a victim of four channels may settle in a mirrored place: some seeds do
    attack.pretrain()
    return attack


def test_it_reads_a_victim_that_follows_and_keeps_the_halves_apart() -> None:
    toy = LiveToy(lr=3e-3)
    attack = whole(toy)
    assert attack.notes()["ceiling_mse"] < 0.01
    toy.train(attack, 120)
    assert toy.leaked_to(attack) > 0.3
    strangers = torch.full((len(toy.labels),), -1)
    assert attack.reconstruct(toy.payloads(), strangers).shape == toy.payloads()[:, :1].shape


def test_of_a_victim_that_it_cannot_move_it_reads_little() -> None:
    toy = LiveToy(frozen=Scrambled(4))
    attack = whole(toy, epochs=3)
    toy.train(attack, 20)
    assert toy.leaked_to(attack) < 0.2


def test_halves_meet_along_the_side_that_they_share() -> None:
    assert seam((1, 8, 4), (1, 8, 6)) == 3
    assert seam((1, 4, 8), (1, 6, 8)) == 2
    assert seam((1, 4, 8), (3, 6, 8)) is None
    assert seam((4,), (6,)) is None
    first, second = torch.zeros(2, 1, 8, 4), torch.ones(2, 1, 8, 6)
    both = joined(first, second)
    assert torch.equal(both[..., :4], first)
    assert torch.equal(both[..., 4:], second)
    assert joined_shape((4,), (2, 3)) == (10,)


def test_without_features_of_its_own_it_is_refused() -> None:
    attack = URVFLWhole(URVFLWholeOptions(name="urvfl_whole"))
    with pytest.raises(InputError, match="active_has_features"):
        attack.begin(LiveToy().view())
