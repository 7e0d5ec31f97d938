"""The inverse network: a toy where it must succeed, toys where it must fail, and its GPU path."""

from __future__ import annotations

import time

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.decoding import linear_is_affordable
from veracausa.attacks.fitting import batch_size, kept_as, one_cycle, reconstruction_loss
from veracausa.attacks.methods.features.inverse import InverseNetwork, InverseOptions
from veracausa.errors import InputError, RunError
from veracausa.metrics.leakage import blind_guesses, blind_mse, leakage, table_leakage
from veracausa.models.layers import RobustInputScaling


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def options(**settings) -> InverseOptions:
    small = {"name": "inverse", "epochs": 8, "channels": 16, "blocks": 1, "batch_size": 32}
    return InverseOptions(**{**small, **settings})


def pictures(count: int = 400) -> Tensor:
    """Smooth pictures of 1×8×4: a few waves of random strength."""
    grid = torch.linspace(0, 3.14, 8).view(8, 1) + torch.linspace(0, 1.5, 4)
    waves = torch.stack([torch.sin(n * grid) for n in range(1, 6)])
    return torch.sigmoid(torch.einsum("nk,khw->nhw", torch.randn(count, 5, generator=rng(1)), waves)).unsqueeze(1)


def leaked(network: InverseNetwork, payloads: Tensor, rows: Tensor) -> float:
    guess = network.reconstruct(payloads[300:])
    blind, _ = blind_mse(blind_guesses(rows[:300], len(rows) - 300), rows[300:])
    return leakage(float((guess - rows[300:]).square().mean()), blind)


@pytest.mark.parametrize("vector", [False, True])
def test_it_reads_a_payload_that_holds_the_picture(vector: bool) -> None:
    rows = pictures()
    mixed = rows.flatten(1) @ torch.randn(32, 64, generator=rng(2))
    payloads = mixed if vector else mixed.view(-1, 8, 4, 2)
    network = InverseNetwork(options()).fit(payloads[:300], rows[:300], rng())
    assert leaked(network, payloads, rows) > 0.7
    assert network.reconstruct(payloads).shape == rows.shape


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e-3, 1.0)])
def test_another_scale_or_offset_hides_nothing(scale: float, offset: float, monkeypatch) -> None:
    monkeypatch.setattr("veracausa.attacks.decoding.linear_is_affordable", lambda *_: False)
    rows = pictures()
    mixed = rows.flatten(1) @ torch.randn(32, 64, generator=rng(2))
    payloads = offset + scale * mixed.view(-1, 8, 4, 2)
    network = InverseNetwork(options()).fit(payloads[:300], rows[:300], rng())
    assert leaked(network, payloads, rows) > 0.7


def test_a_few_huge_rows_do_not_hide_the_others(monkeypatch) -> None:
    rows = pictures()
    payloads = (rows.flatten(1) @ torch.randn(32, 64, generator=rng(2))).view(-1, 8, 4, 2)
    payloads[torch.rand(400, generator=rng(7)) < 0.04] *= 1e5
    leaks = {}
    for heavy in (0.75, 2.0):  # at 2 nothing is ever levelled
        monkeypatch.setattr("veracausa.models.layers.HEAVY", heavy)
        network = InverseNetwork(options()).fit(payloads[:300], rows[:300], rng())
        leaks[heavy] = leaked(network, payloads, rows)
    assert leaks[0.75] > 0.6
    assert leaks[2.0] < 0.3


def test_huge_rows_are_levelled_in_vectors_too() -> None:
    payloads = torch.randn(400, 8, 4, 2, generator=rng(3))
    payloads[::50] *= 1e6
    level = RobustInputScaling(64)
    level.fit(payloads)
    levelled = level(level.shaped(payloads))
    assert levelled.shape == (400, 64)
    assert float(levelled.abs().max()) < 20
    assert 0.5 < float(levelled.std()) < 3


def test_ordinary_payloads_are_left_as_they_are() -> None:
    rows = pictures()
    mixed = (rows.flatten(1) @ torch.randn(32, 64, generator=rng(2))).view(-1, 8, 4, 2)
    sparse = torch.relu(mixed - mixed.std())
    for payloads in (mixed, torch.relu(mixed), sparse, (mixed / mixed.std()).exp()):
        level = RobustInputScaling(8)
        level.fit(payloads)
        assert not level.needed
        assert level(payloads) is payloads


def test_payloads_are_halved_only_where_no_digits_are_lost() -> None:
    gpu, varied = torch.device("cuda"), torch.randn(64, 4, 3, 3, generator=rng(3))
    assert kept_as(varied, gpu) is torch.bfloat16
    assert kept_as(torch.relu(1e-6 * varied), gpu) is torch.bfloat16
    assert kept_as((1 + 1e-3 * varied).bfloat16(), gpu) is torch.bfloat16
    assert kept_as(1 + 1e-3 * varied, gpu) is torch.float32
    one = varied.clone()
    one[:, 2] += 100
    assert kept_as(one, gpu) is torch.float32
    assert kept_as(one.flatten(1), gpu) is torch.float32
    assert kept_as(varied, torch.device("cpu")) is torch.float32


def test_it_reads_nothing_from_noise() -> None:
    rows = pictures()
    payloads = torch.randn(len(rows), 4, 4, 2, generator=rng(3))
    network = InverseNetwork(options()).fit(payloads[:300], rows[:300], rng())
    assert leaked(network, payloads, rows) < 0.05


def test_with_few_pairs_the_linear_reader_has_its_share() -> None:
    rows = pictures()
    payloads = rows.flatten(1) @ torch.randn(32, 16, generator=rng(2))
    network = InverseNetwork(options(epochs=1)).fit(payloads[:40], rows[:40], rng())
    assert network.notes()["linear_share"] > 0.5
    assert leaked(network, payloads, rows) > 0.5
    assert not linear_is_affordable(4000, 64 * 32 * 16)


def test_a_table_is_read_without_bounds() -> None:
    rows = 3 * torch.randn(400, 6, generator=rng(4))
    payloads = torch.relu(rows @ torch.randn(6, 40, generator=rng(5)))
    network = InverseNetwork(options(epochs=20)).fit(payloads[:300], rows[:300], rng(), pixels=False)
    blind = blind_guesses(rows[:300], 100, pixels=False)
    assert table_leakage(network.reconstruct(payloads[300:]), rows[300:], blind) > 0.7


def test_fresh_payloads_are_asked_for_as_often_as_told() -> None:
    rows, asked = pictures(60), []
    noise = rng(6)

    def draw() -> Tensor:
        asked.append(1)
        return rows.flatten(1) + 0.3 * torch.randn(60, 32, generator=noise)

    InverseNetwork(options(epochs=6, channels=4)).fit(draw, rows, rng())
    assert len(asked) == 6 + 2  # two more for the held-out pairs: the network's and the linear reader's
    asked.clear()
    InverseNetwork(options(epochs=6, channels=4, redraw_every=3)).fit(draw, rows, rng())
    assert len(asked) == 2 + 2


def test_the_same_generator_gives_the_same_decoder() -> None:
    rows = pictures(100)
    guesses = [
        InverseNetwork(options(epochs=2, loss="mse_ssim")).fit(rows * 2, rows, rng(7)).reconstruct(rows * 2)
        for _ in range(2)
    ]
    assert torch.equal(*guesses)


def test_the_best_epoch_is_kept() -> None:
    rows = pictures(200)
    network = InverseNetwork(options(epochs=5)).fit(rows * 2, rows, rng())
    notes = network.notes()
    assert 1 <= notes["best_epoch"] <= 5
    assert not network.decoder.training


def test_its_schedule_and_batches() -> None:
    rates = [one_cycle(step, 100, 2e-3) for step in range(100)]
    assert max(rates) == pytest.approx(2e-3, rel=1e-3)
    assert rates[0] < 2e-4
    assert rates[-1] < 1e-5
    assert (batch_size(4000, 64), batch_size(162, 64), batch_size(5, 64)) == (64, 16, 5)


def test_ssim_joins_the_loss_for_pictures_alone() -> None:
    guess, rows = pictures(4), pictures(8)[4:]
    assert reconstruction_loss(guess, rows, "mse_ssim") > reconstruction_loss(guess, rows, "mse")
    assert reconstruction_loss(guess[:, 0, 0], rows[:, 0, 0], "mse_ssim") == reconstruction_loss(
        guess[:, 0, 0], rows[:, 0, 0], "mse"
    )


def view(grants: Grant, **given) -> AdversaryView:
    return AdversaryView(
        grants=grants,
        victim="passive_1",
        payload_shape=(32,),
        row_shape=(1, 8, 4),
        pixels=True,
        rng=rng(),
        device=torch.device("cpu"),
        **given,
    )


def test_it_says_what_it_needs_and_refuses_less() -> None:
    attack = attacks.get("inverse")(options(epochs=1))
    assert set(attack.needs.words) == {"auxiliary", "weights", "defense"}
    with pytest.raises(InputError, match="weights, which it is not granted"):
        attack.begin(view(Grant.AUXILIARY | Grant.DEFENSE))
    with pytest.raises(InputError, match="made without it"):
        attack.begin(view(attack.needs))
    rows = pictures(40)
    given = {"transmit": torch.clone, "defense": torch.clone, "oracle": lambda: rows.flatten(1)}
    attack.begin(view(attack.needs, auxiliary=rows, **given))
    assert attack.reconstruct(rows.flatten(1), torch.arange(40)).shape == rows.shape


def test_what_cannot_be_learnt_from_is_refused() -> None:
    rows = pictures(40)
    with pytest.raises(InputError, match="at least 4"):
        InverseNetwork(options()).fit(rows[:3], rows[:3], rng())
    with pytest.raises(InputError, match="not finite"):
        InverseNetwork(options()).fit(rows / 0, rows, rng())
    with pytest.raises(RunError, match="diverged"):
        InverseNetwork(options(epochs=1)).fit(rows, rows.log() / 0, rng())
    with pytest.raises(ValidationError):
        options(epoch=3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("payload", [(64, 8, 4), (64,)])
def test_the_graphed_step_learns_what_the_eager_one_does(payload: tuple[int, ...]) -> None:
    rows = pictures(1200)
    mixed = rows.flatten(1) @ torch.randn(32, torch.Size(payload).numel(), generator=rng(2))
    payloads = mixed.view(-1, *payload)
    found = {}
    for device in ("cpu", "cuda"):
        network = InverseNetwork(options(epochs=20)).fit(payloads[:300].to(device), rows[:300].to(device), rng())
        found[device] = leaked(network, payloads.to(device), rows.to(device))
    assert found["cuda"] == pytest.approx(found["cpu"], abs=0.05)  # bfloat16, and another order of sums


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_full_strength_on_a_gpu_takes_seconds() -> None:
    rows = torch.rand(4000, 3, 32, 16, generator=rng()).cuda()
    payloads = torch.randn(4000, 64, 32, 16, generator=rng(1)).cuda()
    start = time.perf_counter()
    InverseNetwork(InverseOptions(name="inverse")).fit(payloads, rows, rng())
    torch.cuda.synchronize()
    print(f"50 epochs of 4,000 pairs: {time.perf_counter() - start:.1f} s")
    assert time.perf_counter() - start < 60
