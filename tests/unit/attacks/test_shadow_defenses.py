"""An attacker that knows the defense runs it as the victim does: same schedule, same learning, at the same moment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import toys
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa import seeding
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.defended_shadow import DefendedShadow
from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.causshield import CausShield
from veracausa.defenses.protocols import HasLayers, Prepares, Scheduled, resampling
from veracausa.models.cut import payload_shape

ROWS, BATCH, EPOCHS, CLASSES = 64, 32, 4, 3
FACTOR = 1.5
"""By which the change that a shadow's defense makes may differ from the victim's, of other rows of the same kind."""
QUICK = {"surrogate": {"name": "jitter"}}
SETTINGS: dict[str, dict[str, Any]] = {
    "causshield": {"profile": "recommended", **QUICK},
    "causshield-paper": {"profile": "paper_repaired", "iterations": 8, "decay": 0.7, **QUICK},
    "causshield-persistent": {"profile": "paper_repaired", "iterations": 4, "scope": "persistent", **QUICK},
    "causshield-epoch": {"profile": "recommended", "scope": "epoch", **QUICK},
    "disco": {"lr": 3e-3},
    "greyscale": {},
    "invl_dnp": {"n": 0.5},
    "invl_enp": {"n": 0.5, "adaptive": "per_sample_risk", "k_max": 8},
    "laplace": {"epsilon": 2.0},
    "noisy_bottleneck": {"noise_mode": "accounted", "noise": 0.5, "channels": 2},
    "prune": {"fraction": 0.7},
    "soteria": {"fraction": 0.7},
}
UNCHANGED = ("none", "nopeek", "ressfl")
"""They change how the bottom learns, and no payload: nothing is left to run on a model that learns from payloads."""


def make(name: str) -> Defense:
    kind = name.partition("-")[0]
    defense: Defense = defenses.get(kind)(defenses.options(kind)(name=kind, **SETTINGS.get(name, {})))
    if isinstance(defense, Scheduled):
        defense.on_schedule(EPOCHS)
    return defense


def rows(seed: int) -> Tensor:
    """Smooth pictures in colour, so that surrogates and statistics of two samples are alike."""
    coarse = torch.rand(ROWS, 3, 3, 3, generator=seeding.generator(seed, "rows"))
    return F.interpolate(coarse, (8, 8), mode="bilinear")


def labels(x: Tensor) -> Tensor:
    return x.mean((2, 3)).argmax(1)


def bottom(defense: Defense) -> nn.Sequential:
    with seeding.drawing_from(seeding.generator(0, "model")):
        model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        layers = defense.layers((6, 4, 4)) if isinstance(defense, HasLayers) else None
    if layers is not None:
        model.append(layers)
    return model


def trained(name: str) -> tuple[Defense, nn.Sequential, list[int]]:
    """The victim's defense after its epochs, its model, and M of every exchange where it has one."""
    defense, x = make(name), rows(1)
    model = bottom(defense)
    defense.bind(model, torch.optim.SGD(model.parameters(), lr=1e-3), seeding.generator(1, "training"))
    if isinstance(defense, Prepares):
        defense.prepare(Part(ROWS, x))
    size = payload_shape(model, (3, 8, 8))
    with seeding.drawing_from(seeding.generator(2, "top")):
        top = nn.Linear(int(torch.tensor(size).prod()), CLASSES)
    used = []
    learning = torch.optim.Adam(top.parameters(), lr=1e-3)
    for step in range(EPOCHS * ROWS // BATCH):
        ids = (torch.arange(BATCH) + step * BATCH) % ROWS
        payload, context = defense.forward(x[ids], ids, step)
        used.append(getattr(defense, "iterations", lambda: 0)())
        sent = payload.clone().requires_grad_()
        learning.zero_grad()
        F.cross_entropy(top(sent.flatten(1)), labels(x[ids])).backward()
        learning.step()
        assert sent.grad is not None
        defense.backward(context, sent.grad)
    return defense, model, used


def view(bound: Callable[..., Defense], shape: tuple[int, ...], x: Tensor) -> AdversaryView:
    return AdversaryView(
        grants=~Grant.NONE,
        victim="bank",
        payload_shape=shape,
        row_shape=(3, 8, 8),
        pixels=True,
        rng=toys.rng(),
        device=torch.device("cpu"),
        auxiliary=x,
        auxiliary_labels=labels(x),
        labels=labels(rows(1)),
        classes=CLASSES,
        defense=bound,
        epochs=EPOCHS,
        batch_size=BATCH,
    )


def shadow_of(name: str, model: nn.Module) -> DefendedShadow:
    def bound(shadow: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Defense:
        defense = make(name)
        defense.bind(shadow, optimizer, rng)
        return defense

    return DefendedShadow(view(bound, payload_shape(model, (3, 8, 8)), rows(2)), model, BATCH)


def change(defense: Defense, x: Tensor) -> float:
    """How far what is sent lies from what the model itself gives, as a share of its size."""
    with torch.no_grad(), resampling(defense, toys.rng(3)):
        ids = torch.arange(BATCH)
        sent = defense.infer(x[:BATCH], ids)
        # CausShield's generator runs on the batch's statistics: the plain model on the same, or the mode is compared.
        plain = copy.deepcopy(defense.bottom).train(isinstance(defense, CausShield))(x[:BATCH])
    return float((sent - plain).norm() / plain.norm())


def test_every_defense_is_looked_at():
    # Other tests may have registered defenses of their own.
    ours = {name for name in defenses.names() if defenses.get(name).__module__.startswith("veracausa.")}
    assert {name.partition("-")[0] for name in SETTINGS} | set(UNCHANGED) == ours


@pytest.mark.parametrize("name", SETTINGS)
def test_the_shadow_changes_payloads_as_the_victim_does(name):
    victim, model, _ = trained(name)
    theirs, ours = change(victim, rows(2)), change(shadow_of(name, model).defense, rows(2))
    if name != "greyscale":  # one linear map, hardly seen in the norm
        assert theirs > 0.02, "the toy victim does not defend itself, so nothing is compared"
    assert theirs / FACTOR <= ours <= theirs * FACTOR, f"victim {theirs:.3f}, shadow {ours:.3f}"


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_changes_no_payload_changes_none_of_the_shadows(name):
    victim, model, _ = trained(name)
    assert change(victim, rows(2)) == change(shadow_of(name, model).defense, rows(2)) == 0


@pytest.mark.parametrize("name", ["causshield-paper", "causshield-persistent"])
def test_the_shadow_adapts_as_often_as_the_victim_at_that_epoch(name):
    victim, model, used = trained(name)
    assert used[0] > used[-1], "M falls"
    assert shadow_of(name, model).defense.iterations() == victim.iterations()


def test_the_shadow_of_a_pruner_learns_in_as_many_exchanges_as_the_victims(monkeypatch):
    from veracausa.defenses.methods.disco import Disco

    steps = []
    plain = Disco.backward
    monkeypatch.setattr(Disco, "backward", lambda self, *given: (steps.append(self), plain(self, *given))[1])
    victim, model, _ = trained("disco")
    weights = [weight.clone() for weight in model.parameters()]
    shadow = shadow_of("disco", model)
    assert sum(one is shadow.defense for one in steps) == sum(one is victim for one in steps) == EPOCHS * ROWS // BATCH
    assert all(torch.equal(a, b) for a, b in zip(weights, shadow.defense.bottom.parameters(), strict=True))
