"""PCAT: a bottom so plain that the top model pins it down, and one that its shadow cannot resemble."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from toys import LiveToy, Scrambled, rng

from veracausa.attacks.base import AdversaryView, Grant, LiveView
from veracausa.attacks.methods.features.pcat import PCAT, PCATOptions
from veracausa.errors import InputError
from veracausa.runs.store import deserialize_state, same, serialize_state
from veracausa.seeding import drawing_from


def plain(rng: torch.Generator) -> nn.Module:
    """One weight and one bias: what fits the top model is nearly the victim's own."""
    with drawing_from(rng):
        return nn.Sequential(nn.Conv2d(1, 1, 1), nn.Tanh())


def pcat(**settings) -> PCAT:
    small = {"name": "pcat", "lr_shadow": 1e-2, "batch": 64, "blocks": 0, "channels": 8, "epochs": 15}
    return PCAT(PCATOptions(**{**small, **settings}))


def attacked(toy: LiveToy, steps: int = 150, **settings) -> PCAT:
    attack = pcat(**settings)
    toy.begin(attack)
    toy.train(attack, steps)
    return attack


def test_it_reads_a_victim_whom_the_top_model_pins_down():
    toy = LiveToy(plain, lr=1e-2)
    attack = attacked(toy)
    assert toy.leaked_to(attack) > 0.25
    notes = attack.notes()
    assert notes["exchanges"] == 150
    assert 0 <= notes["held_out_mse"] < 0.02


def test_it_reads_nothing_from_a_map_that_its_shadow_cannot_resemble():
    toy = LiveToy(plain, lr=1e-2, frozen=Scrambled(1))
    assert toy.leaked_to(attacked(toy)) < 0.05


def test_its_state_goes_on_as_if_never_interrupted():
    toys = [LiveToy(plain, lr=1e-2) for _ in range(2)]
    attacks = [pcat(epochs=1) for _ in toys]
    for toy, attack in zip(toys, attacks, strict=True):
        toy.begin(attack)
    toys[0].train(attacks[0], 5)
    attacks[1].load_state(deserialize_state(serialize_state(attacks[0].state())))
    attacks[1].view.rng.set_state(attacks[0].view.rng.get_state())
    assert same(attacks[0].state(), attacks[1].state())
    toys[1].top.load_state_dict(toys[0].top.state_dict())
    toys[1].bottoms, toys[1].optimizer = toys[0].bottoms, toys[0].optimizer
    for attack, toy in zip(attacks, toys, strict=True):
        attack.predict = toy.predict
        attack.observe(None)  # it looks at the top model alone
    assert same(attacks[0].state(), attacks[1].state())


def test_the_top_model_stays_as_it_is():
    toy = LiveToy(plain)
    attack = pcat()
    toy.begin(attack)
    before = {name: value.clone() for name, value in toy.top.state_dict().items()}
    attack.observe(None)
    assert same(before, toy.top.state_dict())
    assert all(weight.grad is None for weight in toy.top.parameters())


@pytest.mark.parametrize("lacking", ["view", "grant"])
def test_a_view_that_lacks_something_is_refused(lacking):
    settings = {
        "victim": "bank",
        "payload_shape": (1, 8, 4),
        "row_shape": (1, 8, 4),
        "pixels": True,
        "rng": rng(),
        "device": torch.device("cpu"),
        "classes": LiveToy.CLASSES,
    }
    known = ("auxiliary", "auxiliary_labels", "labels", "bottom")
    view = (
        AdversaryView(grants=~Grant.NONE, **settings, **{name: torch.zeros(2) for name in known})
        if lacking == "view"
        else LiveView(grants=Grant.ARCHITECTURE, predict=lambda payloads, numbers=None: torch.zeros(1), **settings)
    )
    with pytest.raises(InputError, match="live attack" if lacking == "view" else "labelled auxiliary"):
        pcat().begin(view)
