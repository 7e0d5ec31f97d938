"""The shadow-level inverse network: it reads through a defense it can run itself, and nothing where nothing is sent."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor, nn

from veracausa.attacks.base import Grant
from veracausa.attacks.defended_shadow import DefendedShadow, standardised
from veracausa.attacks.methods.features.shadow import Shadow, ShadowOptions
from veracausa.audit.live import restored, run_live
from veracausa.defenses.base import Defense
from veracausa.defenses.protocols import Prepares
from veracausa.errors import InputError
from veracausa.registry import Options

SMALL = {"channels": 8, "blocks": 1, "lr_simulator": 1e-2, "lr_decoder": 3e-3, "lambda1": 0.0, "lambda2": 0.0}
READER = {"epochs": 15, "batch_size": 32, "reader_blocks": 1, "reader_channels": 8}


class Squared(Defense, Prepares):
    """Sends every other value's sign away: no decoder of plain outputs knows that."""

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return distorted(r)

    def prepare(self, data, progress=lambda share: None) -> None:
        self.prepared_rows = len(data)


class Noisy(Defense):
    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return r + torch.randn(r.shape, generator=self.rng)


class Batched(Defense):
    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return r - r.mean(0)


def distorted(r: Tensor) -> Tensor:
    return torch.stack([-4 * r[:, 0].abs() * r[:, 0] + 3, 0.2 * r[:, 1] - 5], 1)


def bound(kind: type[Defense]):
    def make(model: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Defense:
        defense = kind(Options(name="toy"))
        defense.bind(model, optimizer, rng)
        return defense

    return make


def shadow() -> Shadow:
    return Shadow(ShadowOptions(name="shadow", **SMALL, **READER))


def test_it_reads_through_a_defense_whose_code_it_knows() -> None:
    """The training is honest and plain, and what is attacked was sent through the defense."""
    toy = toys.Toy()
    attack = shadow()
    attack.begin(toy.view(defense=bound(Squared)))
    toy.train(attack, 250)
    sent, everyone = distorted(toy.payloads()), torch.arange(toy.count)
    assert toy.leaked(attack.reconstruct(sent, everyone)) > 0.6
    assert attack.notes()["held_out_mse"] > 0
    plain = super(Shadow, attack).reconstruct(sent, everyone)
    assert toy.leaked(plain) < 0.3

    restored = shadow()
    restored.begin(toy.view(defense=bound(Squared)))
    restored.load_state(attack.state())
    assert torch.equal(restored.reconstruct(sent, everyone), attack.reconstruct(sent, everyone))


def test_it_reads_nothing_from_noise() -> None:
    noise = toys.rng(9)
    toy = toys.Toy(send=lambda payload, ids: torch.randn(payload.shape, generator=noise))
    attack = shadow()
    attack.begin(toy.view(defense=bound(Defense)))
    toy.train(attack, 40)
    attack.conclude()
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) < 0.05


def test_a_shadow_knows_what_kind_of_defense_it_runs() -> None:
    toy = toys.Toy(count=50)
    kinds = {}
    for kind in (Squared, Noisy, Batched):
        defended = DefendedShadow(toy.view(defense=bound(kind)), toy.bottoms[toys.VICTIM], 16)
        kinds[kind] = (defended.random, defended.by_batch)
        assert defended.payloads().shape == (50, toys.WIDTH)
    assert kinds == {Squared: (False, False), Noisy: (True, False), Batched: (False, True)}


def test_payloads_come_back_in_the_rows_order_and_from_a_copy_of_the_model() -> None:
    toy = toys.Toy(count=50)
    model = toy.bottoms[toys.VICTIM]
    defended = DefendedShadow(toy.view(defense=bound(Squared)), model, 16)
    assert defended.defense.prepared_rows == 50
    assert defended.defense.bottom is not model
    with torch.no_grad():
        assert torch.allclose(defended.payloads(), distorted(model(toy.spare[toys.VICTIM])), atol=1e-6)
    assert standardised(defended.payloads()).std(0, correction=0).tolist() == pytest.approx([1, 1], abs=1e-2)


def test_it_sits_in_a_real_training_and_comes_back(tmp_path) -> None:
    job = {
        "data": {"name": "digits"},
        "model": {"name": "convnet", "cut": 2},
        "runtime": {"device": "cpu", "cpu_threads": 1},
        "training": {"epochs": 1, "batch_size": 512, "evaluate_every": 9},
        "risk": {"every": 0},
    }
    options = ShadowOptions(name="shadow", **{**SMALL, **READER, "epochs": 1, "lambda1": 0.0})
    run = run_live(job, options, "passive_1", tmp_path / "run", auxiliary=64, victims=16)
    attack = restored(run, "shadow", "passive_1")
    assert attack.notes()["exchanges"] >= 2
    assert attack.notes()["held_out_mse"] > 0
    guess = attack.reconstruct(torch.randn(3, *attack.view.payload_shape), torch.arange(3))
    assert guess.shape == (3, 1, 8, 4)


def test_it_says_what_it_lacks() -> None:
    toy = toys.Toy()
    with pytest.raises(InputError, match="defense"):
        shadow().begin(toy.view())
    with pytest.raises(InputError, match="defense"):
        shadow().begin(toy.view(grants=~Grant.DEFENSE))
