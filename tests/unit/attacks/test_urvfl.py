"""URVFL: it teaches a victim that follows to speak its shadow's language, and fails on one that does not."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from toys import LiveToy, Scrambled, rng

from veracausa.attacks.base import Exchange, Grant
from veracausa.attacks.methods.features.urvfl import URVFL, URVFLOptions, observed_code, shadow_code
from veracausa.attacks.networks import light_decoder
from veracausa.errors import InputError
from veracausa.runs.store import deserialize_state, same, serialize_state


def urvfl(**settings) -> URVFL:
    small = {"name": "urvfl", "epochs": 15, "lr": 5e-3, "lr_dac": 1e-3, "batch_size": 32}
    return URVFL(URVFLOptions(**{**small, **settings}))


def an_exchange(rows: int = LiveToy.BATCH, step: int = 1) -> Exchange:
    draws = rng(40 + step)
    labels = torch.randint(0, LiveToy.CLASSES, (rows,), generator=draws)
    return Exchange(step, torch.arange(rows), torch.randn(rows, 4, 8, 4, generator=draws), labels)


def test_the_label_code_is_a_bijection():
    labels = torch.arange(10)
    assert sorted([*observed_code(labels).tolist(), *shadow_code(labels).tolist()]) == list(range(20))


def test_it_reads_a_victim_that_follows_its_gradients():
    toy, attack = LiveToy(lr=3e-3), urvfl()
    toy.begin(attack)
    assert toy.leaked_to(attack) < 0.05, "before the hijack the victim speaks a language of its own"
    toy.train(attack, 120)
    assert toy.leaked_to(attack) > 0.3
    notes = attack.notes()
    assert notes["ceiling_mse"] < 0.01
    assert notes["embedding_cosine"] > 0.5


def test_it_reads_nothing_from_a_victim_that_ignores_its_gradients():
    toy, attack = LiveToy(frozen=Scrambled(4)), urvfl(epochs=3)
    toy.begin(attack)
    toy.train(attack, 40)
    assert toy.leaked_to(attack) < 0.05


def test_sync_learns_its_decoder_during_the_hijack():
    toy, attack = LiveToy(), urvfl(sync=True)
    toy.begin(attack)
    before = attack.notes()["ceiling_mse"]
    toy.train(attack, 60)
    assert attack.notes()["ceiling_mse"] < before / 2


def test_the_gradient_has_the_payloads_shape_and_points_to_the_shadows_class():
    toy, attack = LiveToy(), urvfl(epochs=0, dac_norm=False)
    toy.begin(attack)
    exchange = an_exchange()
    gradient = attack.tamper(torch.zeros_like(exchange.payload), exchange)
    assert gradient.shape == exchange.payload.shape
    leaf = exchange.payload.clone().requires_grad_()
    loss = F.cross_entropy(attack.dac(leaf), shadow_code(exchange.labels))
    assert torch.allclose(gradient, torch.autograd.grad(loss, leaf)[0])


def test_grad_scale_multiplies_what_is_sent():
    sent = []
    for scale in (1.0, 100.0):
        toy, attack = LiveToy(), urvfl(epochs=0, grad_scale=scale)
        toy.begin(attack)
        sent.append(attack.tamper(torch.zeros(LiveToy.BATCH, 4, 8, 4), an_exchange()))
    assert torch.allclose(100 * sent[0], sent[1])


def test_a_short_batch_gets_a_gradient_of_its_own_size():
    toy, attack = LiveToy(), urvfl(epochs=0, dac_norm=False)
    toy.begin(attack)
    attack.tamper(torch.zeros(LiveToy.BATCH, 4, 8, 4), an_exchange())
    short = an_exchange(8, step=2)
    gradient = attack.tamper(torch.zeros_like(short.payload), short)
    attack.observe(short)
    fresh = urvfl(epochs=0, dac_norm=False)
    toy.begin(fresh)
    assert torch.allclose(gradient, fresh.tamper(torch.zeros_like(short.payload), short), atol=1e-7)


def test_learning_changes_the_dac_and_nothing_of_the_victim():
    toy, attack = LiveToy(), urvfl(epochs=1)
    toy.begin(attack)
    exchange = an_exchange()
    payload, victim = exchange.payload.clone(), {k: v.clone() for k, v in toy.bottoms["bank"].state_dict().items()}
    before = attack.state()
    before = {name: [{k: v.clone() for k, v in module.items()} for module in before[name]] for name in ("modules",)}
    attack.observe(exchange)
    after = attack.state()["modules"]
    assert torch.equal(exchange.payload, payload)
    assert same(victim, toy.bottoms["bank"].state_dict())
    assert same(before["modules"][:2], after[:2]), "shadow and decoder stand still in stage 2"
    assert not same(before["modules"][2], after[2])


def test_its_state_goes_on_as_if_never_interrupted():
    attacks = [urvfl(epochs=1) for _ in range(2)]
    for attack in attacks:
        LiveToy().begin(attack)
    for step in range(1, 4):
        attacks[0].tamper(torch.zeros(LiveToy.BATCH, 4, 8, 4), an_exchange(step=step))
        attacks[0].observe(an_exchange(step=step))
    attacks[1].load_state(deserialize_state(serialize_state(attacks[0].state())))
    attacks[1].view.rng.set_state(attacks[0].view.rng.get_state())
    for attack in attacks:
        attack.observe(an_exchange(step=5))
    assert same(attacks[0].state(), attacks[1].state())


def test_a_regression_is_refused():
    toy, attack = LiveToy(), urvfl()
    toy.begin(attack)
    with pytest.raises(InputError, match="regression"):
        urvfl().begin(attack.view.replaced(classes=0))
    with pytest.raises(InputError, match="tamper"):
        urvfl().begin(attack.view.replaced(grants=~Grant.NONE & ~Grant.TAMPER))


@pytest.mark.parametrize("payload", [(4, 8, 4), (64, 4, 2), (16, 2, 1)])
def test_the_light_decoder_gives_rows_of_any_size(payload):
    guess = light_decoder(payload, (3, 8, 4))(torch.randn(2, *payload))
    assert guess.shape == (2, 3, 8, 4)
    assert bool(((guess >= 0) & (guess <= 1)).all())
