"""Maximum likelihood: a map it must invert, a map that tells it nothing, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.methods.features.likelihood import Likelihood, LikelihoodOptions
from veracausa.defenses.base import Defense
from veracausa.errors import InputError, RunError
from veracausa.registry import Options
from veracausa.seeding import drawing_from


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


MIXING = torch.linalg.qr(torch.randn(16, 16, generator=rng(4))).Q
ROWS = torch.rand(5, 1, 4, 4, generator=rng(1))


def mixed(rows: Tensor) -> Tensor:
    """An invertible map: a rotation, and a smooth bend of each value."""
    values = rows.flatten(1) @ MIXING
    return values + 0.3 * values.tanh()


def view(transmit, row: tuple[int, ...] = (1, 4, 4), pixels: bool = True, **given) -> AdversaryView:
    grants, payload = given.pop("grants", Grant.WEIGHTS), given.pop("payload", (16,))
    return AdversaryView(
        grants=grants,
        victim="passive_1",
        payload_shape=payload,
        row_shape=row,
        pixels=pixels,
        rng=rng(),
        device=torch.device("cpu"),
        transmit=transmit,
        **given,
    )


def attacked(transmit, payloads: Tensor, scene: AdversaryView | None = None, **settings):
    attack = Likelihood(LikelihoodOptions(name="likelihood", **{"tv": 0.0, "l2": 0.0, "iterations": 600, **settings}))
    attack.begin(scene or view(transmit))
    return attack.reconstruct(payloads, torch.arange(len(payloads))), attack


def test_it_inverts_a_map_it_knows() -> None:
    guess, attack = attacked(mixed, mixed(ROWS))
    assert (guess - ROWS).square().mean() < 1e-4
    assert attack.notes()["representation_loss"] < 1e-4


def test_it_learns_nothing_through_a_constant_map() -> None:
    guess, _ = attacked(lambda rows: torch.ones(len(rows), 16), torch.ones(5, 16))
    assert torch.equal(guess, torch.full_like(guess, 0.5))
    guess, _ = attacked(lambda rows: torch.ones(len(rows), 16), torch.ones(5, 16), tv=0.1, l2=0.01)
    assert guess.flatten(1).std(1).max() < 1e-3  # the priors alone: as dark as they like, but the same everywhere


def test_a_table_is_bounded_by_nothing() -> None:
    rows = 2 * torch.randn(4, 16, generator=rng(2))
    guess, _ = attacked(mixed, mixed(rows), view(mixed, (16,), False), tv=100.0, iterations=1500)
    assert (guess - rows).square().mean() < 1e-3


def test_the_priors_pull_where_they_should() -> None:
    payloads = mixed(ROWS)
    plain, smooth, dark = (attacked(mixed, payloads, **prior)[0] for prior in ({}, {"tv": 3.0}, {"l2": 3.0}))
    assert smooth.flatten(1).std(1).mean() < 0.7 * plain.flatten(1).std(1).mean()
    assert dark.mean() < 0.7 * plain.mean()


def test_a_projected_descent_stays_in_range() -> None:
    seen: list[float] = []

    def watched(rows: Tensor) -> Tensor:
        seen.append(float(rows.detach().max()))
        return mixed(rows)

    attacked(watched, 3 * mixed(ROWS), project=True, iterations=150)
    assert max(seen) <= 1


def test_it_stops_where_nothing_falls_any_more() -> None:
    _, attack = attacked(mixed, mixed(ROWS), lr=0.05, l2=0.01, iterations=20_000, patience=100)
    assert attack.notes()["iterations"] < 5000


def test_the_same_view_gives_the_same_rows_however_they_are_batched() -> None:
    payloads = mixed(ROWS)
    first, second = (attacked(mixed, payloads, iterations=200)[0] for _ in range(2))
    assert torch.equal(first, second)
    apart, attack = attacked(mixed, payloads, iterations=200, batch_size=2)
    assert torch.allclose(apart, first, atol=1e-3)
    assert attack.notes()["iterations"] == 600


def test_the_victims_model_keeps_its_mode_its_weights_and_has_no_gradients() -> None:
    with drawing_from(rng(3)):
        bottom = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4))
    bottom[1].eval()
    defense = Defense(Options(name="none"))
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), rng())
    before = {name: value.clone() for name, value in bottom.state_dict().items()}

    def transmit(rows: Tensor) -> Tensor:
        return defense.deterministic_payload(rows, torch.arange(len(rows)))

    payloads = transmit(ROWS).detach()
    guess, _ = attacked(transmit, payloads, view(transmit, payload=(4, 4, 4)), iterations=300)
    assert (guess - ROWS).square().mean() < 0.01
    assert bottom.training
    assert not bottom[1].training
    assert all(torch.equal(value, before[name]) for name, value in bottom.state_dict().items())
    assert all(weight.grad is None for weight in bottom.parameters())


def test_what_it_cannot_work_with_is_refused() -> None:
    attack = attacks.get("likelihood")(LikelihoodOptions(name="likelihood"))
    assert attack.needs.words == ("weights",)
    with pytest.raises(InputError, match="weights, which it is not granted"):
        attack.begin(view(mixed, grants=Grant.NONE))
    with pytest.raises(InputError, match="transmit"):
        attack.begin(view(None))
    attack.begin(view(mixed))
    with pytest.raises(InputError, match="do not come from passive_1"):
        attack.reconstruct(torch.zeros(2, 15))
    with pytest.raises(InputError, match="not finite"):
        attack.reconstruct(torch.full((2, 16), float("inf")))
    assert attack.reconstruct(torch.zeros(0, 16)).shape == (0, 1, 4, 4)
    with pytest.raises(RunError, match="diverged"):
        attacked(mixed, mixed(ROWS), lr=1e38, iterations=5)
    with pytest.raises(ValidationError):
        LikelihoodOptions(name="likelihood", iterations=20_001)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_replayed_steps_find_what_eager_ones_do() -> None:
    device = torch.device("cuda")
    turned = MIXING.to(device)

    def transmit(rows: Tensor) -> Tensor:
        values = rows.flatten(1) @ turned
        return values + 0.3 * values.tanh()

    there = AdversaryView(**{**vars(view(transmit)), "device": device})
    guess, _ = attacked(transmit, mixed(ROWS), there)
    assert (guess.cpu() - ROWS).square().mean() < 1e-4
