"""FSHA on a toy federation: it draws the victim into its own space, and reads nothing from one that cannot be drawn."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor

from veracausa.attacks import networks as discriminators
from veracausa.attacks.base import Exchange, Grant
from veracausa.attacks.methods.features.fsha import FSHA, FSHAOptions, critic, gradient_penalty
from veracausa.errors import InputError


@pytest.fixture(autouse=True)
def small_judges(monkeypatch) -> None:
    """Of two values a payload, a small network can judge too, in a fraction of the time."""
    monkeypatch.setattr(discriminators, "_VECTOR_WIDTH", 48)


def fsha(**settings) -> FSHA:
    small = {
        "name": "fsha",
        "form": "bce",
        "channels": 8,
        "blocks": 1,
        "lr_autoencoder": 3e-3,
        "lr_discriminator": 1e-3,
    }
    return FSHA(FSHAOptions(**{**small, **settings}))


def hijacked(toy: toys.Toy, exchanges: int, **settings) -> FSHA:
    attack = fsha(**settings)
    attack.begin(toy.view())
    toy.train(attack, exchanges)
    return attack


def test_it_reads_a_victim_that_follows_its_gradients() -> None:
    toy = toys.Toy(lr=5e-3)
    attack = hijacked(toy, 300)
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) > 0.6
    assert attack.notes()["exchanges"] == 300


def test_it_reads_nothing_where_payloads_do_not_depend_on_rows() -> None:
    noise = toys.rng(9)
    toy = toys.Toy(send=lambda payload, ids: torch.randn(payload.shape, generator=noise))
    attack = hijacked(toy, 60)
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) < 0.05


def test_the_wasserstein_form_draws_the_victims_payloads_towards_the_pilots() -> None:
    toy = toys.Toy(lr=2e-2)
    with torch.no_grad():
        toy.bottoms[toys.VICTIM].bias.add_(3)  # far away at first
    attack = fsha(form="wgan", penalty=10.0, lr_discriminator=3e-3, lr_autoencoder=1e-4)
    attack.begin(toy.view())
    before = _distance(attack, toy)
    toy.train(attack, 150)
    assert _distance(attack, toy) < 0.5 * before


def test_the_penaltys_norm_is_taken_over_all_axes_of_a_sample() -> None:
    """Of a linear judge the gradient is its weights, here of norm 2 over all axes, of no norm 2 over any one."""
    weights = torch.full((2, 4, 2), 0.5)
    payload = torch.randn(6, 2, 4, 2, generator=toys.rng())
    linear = gradient_penalty(lambda x: (x * weights).sum((1, 2, 3)), payload)
    assert linear.item() == pytest.approx(1.0, abs=1e-5)
    still = gradient_penalty(lambda x: x.flatten(1).sum(1) * torch.zeros(6, requires_grad=True), payload)
    still.backward()
    assert still.item() == pytest.approx(1.0, abs=1e-5)


def test_a_critic_judges_every_sample_on_its_own() -> None:
    judge = critic((3, 8, 4)).train()
    payload = torch.randn(5, 3, 8, 4, generator=toys.rng())
    assert torch.allclose(judge(payload)[:1], judge(payload[:1]), atol=1e-5)


@pytest.mark.parametrize("form", ["wgan", "bce"])
def test_the_victim_gets_the_adversarial_gradient_scaled_and_no_other(form: str) -> None:
    toy = toys.Toy()
    attack = fsha(form=form, grad_scale=10.0)
    attack.begin(toy.view())
    attack.judge.eval()  # without dropout, to compare
    payload = toy.payloads()[:8]
    exchange = Exchange(0, torch.arange(8), payload, None)
    sent = attack.tamper(torch.full_like(payload, 1e6), exchange)
    leaf = payload.clone().requires_grad_()
    verdict = attack.judge(leaf)
    loss = verdict.mean() if form == "wgan" else torch.nn.functional.softplus(-verdict).mean()
    (wanted,) = torch.autograd.grad(loss, leaf)
    assert sent.shape == payload.shape
    assert torch.allclose(sent, 10 * wanted, atol=1e-6)


@pytest.mark.parametrize("form", ["wgan", "bce"])
def test_a_resumed_attack_goes_on_as_the_unbroken_one(form: str) -> None:
    whole = hijacked(toys.Toy(), 6, form=form)
    toy = toys.Toy()
    first = hijacked(toy, 3, form=form)
    second, granted = fsha(form=form), toy.view(7)
    second.begin(granted)
    second.load_state(first.state())
    granted.rng.set_state(first.view.rng.get_state())  # a live run keeps the generator itself
    toy.train(second, 3)
    for one, other in zip(whole.modules, second.modules, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("form", ["wgan", "bce"])
def test_on_a_gpu_the_step_is_replayed(form: str) -> None:
    toy = toys.Toy(lr=5e-3, device="cuda")
    attack = hijacked(toy, 50, form=form)
    assert type(attack.step).__name__ == "_Replay"
    assert all(weight.isfinite().all() for module in attack.modules for weight in module.parameters())
    assert attack.notes()["decoder_mse"] < 1


@pytest.mark.parametrize(("form", "slower"), [("wgan", 1), ("bce", 10)])
def test_it_learns_as_fast_as_its_victim_unless_told_otherwise(form: str, slower: float) -> None:
    for known, rate in ((2e-4, 2e-4), (None, 1e-3)):
        attack = FSHA(FSHAOptions(name="fsha", form=form, channels=4, blocks=0))
        attack.begin(toys.Toy().view(victim_rate=known))
        rates = [optimizer.param_groups[0]["lr"] for optimizer in (attack.encoding, attack.judging)]
        assert rates == pytest.approx([rate, rate / slower])


def test_it_says_what_it_lacks() -> None:
    toy = toys.Toy()
    with pytest.raises(InputError, match="tamper"):
        fsha().begin(toy.view(grants=Grant.ARCHITECTURE | Grant.AUXILIARY))
    with pytest.raises(InputError, match="auxiliary"):
        fsha().begin(toy.view(auxiliary=None))


def _distance(attack: FSHA, toy: toys.Toy) -> float:
    with torch.no_grad():
        ours: Tensor = attack.pilot(toy.spare[toys.VICTIM]).mean(0)
    return float((toy.payloads().mean(0) - ours).norm())
