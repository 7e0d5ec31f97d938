"""URVFL that knows the defense: its decoder reads what the defense makes of a payload; URVFL's own does not."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor, nn

from veracausa.attacks.methods.features.urvfl import URVFL, URVFLOptions
from veracausa.attacks.methods.features.urvfl_aware import URVFLAware, URVFLAwareOptions
from veracausa.defenses.base import Defense
from veracausa.errors import InputError
from veracausa.registry import Options

SMALL = {"epochs": 12, "lr": 5e-3, "lr_dac": 1e-3, "batch_size": 64, "channels": 8}


class Turned(Defense):
    """Sends the payload turned around, and moved."""

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return 2 - 3 * r.flip(1)


def turned(model: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Defense:
    defense = Turned(Options(name="toy"))
    defense.bind(model, optimizer, rng)
    return defense


@pytest.mark.parametrize("sync", [False, True])
def test_it_reads_a_victim_that_became_its_shadow_through_the_defense(sync: bool) -> None:
    toy, everyone = toys.Toy(), torch.arange(512)
    plain = URVFL(URVFLOptions(name="urvfl", **SMALL))
    aware = URVFLAware(URVFLAwareOptions(name="urvfl_aware", sync=sync, reader_epochs=10, **SMALL))
    leaks = {}
    for attack in (plain, aware):
        attack.begin(toy.view(defense=turned))
        attack.pretrain()
        if attack is aware and sync:
            toy.train(attack, 60)
        attack.conclude()
        with torch.no_grad():
            sent = 2 - 3 * attack.shadow(toy.rows[toys.VICTIM]).flip(1)
        leaks[attack] = toy.leaked(attack.reconstruct(sent, everyone))
    assert leaks[aware] > 0.7
    assert leaks[plain] < 0.1


def test_it_reads_nothing_where_payloads_do_not_depend_on_rows() -> None:
    noise = toys.rng(9)
    toy = toys.Toy(send=lambda payload, ids: torch.randn(payload.shape, generator=noise))
    attack = URVFLAware(URVFLAwareOptions(name="urvfl_aware", reader_epochs=2, **{**SMALL, "epochs": 5}))
    attack.begin(toy.view(defense=turned))
    attack.pretrain()
    toy.train(attack, 20)
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) < 0.05


def test_it_needs_the_defense_and_comes_back() -> None:
    toy = toys.Toy()
    attack = URVFLAware(URVFLAwareOptions(name="urvfl_aware", **SMALL))
    with pytest.raises(InputError, match="defense"):
        attack.begin(toy.view())
    attack.begin(toy.view(defense=turned))
    attack.load_state({**attack.state(), "by_batch": True})
    assert attack.state()["by_batch"]
