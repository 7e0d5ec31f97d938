"""UnSplit: toys it must read, noise it must not, and the two ways of batching against each other."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.matching import batched, total_variation
from veracausa.attacks.methods.features.unsplit import SCHEDULES, UnSplit, UnSplitOptions, finished
from veracausa.errors import InputError, RunError
from veracausa.metrics.images import affine_aligned_mse
from veracausa.seeding import drawing_from


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def options(**settings) -> UnSplitOptions:
    return UnSplitOptions(name="unsplit", **settings)


def conv(generator: torch.Generator) -> nn.Sequential:
    with drawing_from(generator):
        return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU())


def normed(generator: torch.Generator) -> nn.Sequential:
    with drawing_from(generator):
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))


def linear(generator: torch.Generator) -> nn.Sequential:
    with drawing_from(generator):
        return nn.Sequential(nn.Linear(4, 6))


def blobs(count: int = 6) -> Tensor:
    """1×8×8 pictures of one bright blob each, anywhere."""
    at = torch.rand(count, 2, 1, 1, generator=rng(1)) * 5 + 1
    down, across = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    return torch.exp(-((down - at[:, 0]).square() + (across - at[:, 1]).square()) / 3).unsqueeze(1)


def view(make, payload: tuple[int, ...], row: tuple[int, ...], pixels: bool = True, **given) -> AdversaryView:
    grants = given.pop("grants", Grant.ARCHITECTURE)
    return AdversaryView(
        grants=grants,
        victim="passive_1",
        payload_shape=payload,
        row_shape=row,
        pixels=pixels,
        rng=rng(5),
        device=torch.device("cpu"),
        bottom=make,
        **given,
    )


def attacked(make, rows: Tensor, payloads: Tensor | None = None, pixels: bool = True, **settings):
    if payloads is None:
        with torch.no_grad():
            payloads = make(rng(9)).eval()(rows)
    attack = UnSplit(options(**settings))
    attack.begin(view(make, tuple(payloads.shape[1:]), tuple(rows.shape[1:]), pixels))
    return attack.reconstruct(payloads, torch.arange(len(rows))), attack


SHORT = {"main": 25, "input_lr": 1e-2, "clone_lr": 1e-2, "tv": 0.1, "l2": 0.1}


def test_it_finds_the_outlines_behind_a_convolution() -> None:
    rows = blobs()
    guess, attack = attacked(conv, rows, **SHORT)
    blind = affine_aligned_mse(rows.mean(0, keepdim=True).expand_as(rows).contiguous(), rows).mean()
    assert affine_aligned_mse(guess, rows).mean() < blind / 3
    assert attack.notes()["iterations"] == 25 * 40
    assert guess.min() >= 0
    assert guess.max() <= 1


def test_it_finds_nothing_in_noise() -> None:
    rows = blobs()
    guess, _ = attacked(conv, rows, torch.randn(6, 8, 8, 8, generator=rng(3)), **SHORT)
    blind = affine_aligned_mse(rows.mean(0, keepdim=True).expand_as(rows).contiguous(), rows).mean()
    assert affine_aligned_mse(guess, rows).mean() > 0.8 * blind


def test_a_linear_bottom_is_matched_to_the_last_bit_of_loss() -> None:
    rows = torch.randn(3, 4, generator=rng(2))
    _, attack = attacked(linear, rows, pixels=False, main=15, input_lr=3e-2, clone_lr=3e-2, l2=0.0)
    assert attack.notes()["representation_loss"] < 1e-4


def test_a_table_is_bounded_by_nothing() -> None:
    rows = 3 + torch.randn(20, 4, generator=rng(2))
    settings = {"pixels": False, "main": 10, "input_lr": 1e-1, "l2": 0.0}
    guess, _ = attacked(linear, rows, **settings)
    assert guess.max() > 1
    rough, _ = attacked(linear, rows, tv=100.0, **settings)
    assert torch.equal(rough, guess)  # a table has no neighbours to be smooth with


def test_no_variation_in_a_constant_and_the_stated_sum_elsewhere() -> None:
    assert total_variation(torch.full((3, 2, 4, 5), 0.7)) == 0
    pictures = torch.rand(3, 2, 4, 5, generator=rng())
    down = (pictures[:, :, 1:] - pictures[:, :, :-1]).square().sum() / (2 * 3 * 5)
    across = (pictures[..., 1:] - pictures[..., :-1]).square().sum() / (2 * 4 * 4)
    assert total_variation(pictures) == pytest.approx(float((down + across) / 3), rel=1e-5)
    assert total_variation(torch.rand(2, 1, 4, 1)).isfinite()
    assert total_variation(torch.rand(2, 1, 1, 1)) == 0


@pytest.mark.parametrize("make", [conv, normed])
def test_independent_clones_are_single_targets_one_after_the_other(make) -> None:
    # Unstretched: a picture that has hardly left mid-grey would have its rounding stretched, too.
    rows, few = blobs(3), {"main": 3, "input_steps": 4, "clone_steps": 4, "post": "none"}
    together, _ = attacked(make, rows, batching="independent", **few)
    alone, _ = attacked(make, rows, batch_size=1, reuse_clone=False, **few)
    assert torch.allclose(together, alone, atol=1e-4)


def test_a_reused_clone_matches_the_next_batch_better() -> None:
    rows, few = blobs(3), {"main": 8, "batch_size": 1, "l2": 0.0, "tv": 0.0, "clone_lr": 1e-2}
    losses = {reuse: attacked(conv, rows, reuse_clone=reuse, **few)[1].notes() for reuse in (True, False)}
    assert losses[True]["representation_loss"] < losses[False]["representation_loss"]


def test_the_same_generator_gives_the_same_rows() -> None:
    rows = blobs(2)
    first, second = (attacked(normed, rows, main=2)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_clones_normalisation_keeps_its_statistics_and_learns_its_scale() -> None:
    _, attack = attacked(normed, blobs(3), main=3)
    norm = attack.clone[1]
    assert norm.training
    assert attack.clone.training
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert norm.num_batches_tracked == 0
    assert not torch.equal(norm.weight, torch.ones(4))
    assert all(weight.grad is None for weight in attack.clone.parameters())


def test_neither_the_victim_nor_the_global_generator_is_touched() -> None:
    victim, rows = conv(rng(9)), blobs(2)
    before, state = [weight.clone() for weight in victim.parameters()], torch.get_rng_state()
    with torch.no_grad():
        payloads = victim(rows)
    kept = payloads.clone()
    attacked(conv, rows, payloads, main=2)
    assert all(map(torch.equal, victim.parameters(), before))
    assert torch.equal(payloads, kept)
    assert torch.equal(torch.get_rng_state(), state)


def test_its_schedules() -> None:
    assert options().numbers == SCHEDULES["fast"] == (200, 20, 20, 1.0, 0.1)
    assert options(schedule="original").numbers == (1000, 100, 100, 0.1, 1.0)
    assert options(schedule="original", main=30, l2=0.0).numbers == (30, 100, 100, 0.1, 0.0)
    for wrong in ({"main": 0}, {"schedule": "slow"}, {"tv": -1.0}, {"batch": 3}):
        with pytest.raises(ValidationError):
            options(**wrong)


def test_colour_is_stretched_and_grey_is_not() -> None:
    colour = torch.rand(2, 3, 4, 4, generator=rng()) * 4 - 1
    stretched = finished(colour, True, "minmax")
    assert torch.allclose(stretched.flatten(1).amax(1), torch.ones(2))
    assert stretched.min() == 0
    grey = colour[:, :1]
    assert torch.equal(finished(grey, True, "none"), grey.clamp(0, 1))
    assert torch.equal(finished(colour, True, "none"), colour.clamp(0, 1))
    assert finished(grey, True, "minmax").flatten(1).amax(1).tolist() == [1, 1]
    assert torch.equal(finished(torch.full((1, 3, 2, 2), 0.3), True, "minmax"), torch.full((1, 3, 2, 2), 0.3))
    assert torch.equal(finished(colour, False, "minmax"), colour)


def test_batches_are_even_and_bounded_by_memory() -> None:
    small = view(conv, (8, 8, 8), (1, 8, 8))
    assert [len(part) for part in batched(torch.zeros(9, 1), small, 4)] == [3, 3, 3]
    assert len(batched(torch.zeros(250, 1), small, 250)) == 1
    assert len(batched(torch.zeros(8, 1), view(conv, (64, 512, 512), (1, 8, 8)), 250)) == 2
    assert len(batched(torch.zeros(8, 1), small, 250, held=2**24)) == 2  # a clone of 16 million weights for each
    assert batched(torch.zeros(0, 1), small, 4) == []


def test_it_gives_signs_of_life() -> None:
    shares: list[float] = []
    attack = UnSplit(options(main=2, batch_size=1))
    attack.begin(view(conv, (8, 8, 8), (1, 8, 8), progress=shares.append))
    attack.reconstruct(torch.rand(2, 8, 8, 8, generator=rng()))
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_a_bottom_without_weights_leaves_only_the_rows_to_move() -> None:
    rows = blobs(2)
    guess, attack = attacked(lambda generator: nn.AvgPool2d(2), rows, **SHORT)
    assert attack.notes()["iterations"] == 25 * 20
    assert attack.notes()["representation_loss"] < 1e-2
    assert guess.shape == rows.shape


def test_what_it_cannot_work_with_is_refused() -> None:
    attack = attacks.get("unsplit")(options(main=1))
    assert attack.needs.words == ("architecture",)
    with pytest.raises(InputError, match="architecture, which it is not granted"):
        attack.begin(view(conv, (8, 8, 8), (1, 8, 8), grants=Grant.NONE))
    with pytest.raises(InputError, match="bottom"):
        attack.begin(view(None, (8, 8, 8), (1, 8, 8)))
    with pytest.raises(InputError, match="passive_1 sends 8×4×4"):
        attack.begin(view(conv, (8, 4, 4), (1, 8, 8)))
    attack.begin(view(conv, (8, 8, 8), (1, 8, 8)))
    with pytest.raises(InputError, match="do not come from passive_1"):
        attack.reconstruct(torch.zeros(2, 8, 4, 4))
    with pytest.raises(InputError, match="not finite"):
        attack.reconstruct(torch.full((2, 8, 8, 8), float("nan")))
    assert attack.reconstruct(torch.zeros(0, 8, 8, 8)).shape == (0, 1, 8, 8)
    assert attack.notes()["representation_loss"] == 0
    with pytest.raises(RunError, match="diverged"):
        attacked(conv, blobs(2), main=2, input_lr=1e30, clone_lr=1e30)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("batching", ["joint", "independent"])
def test_replayed_steps_find_what_eager_ones_do(batching: str) -> None:
    rows = blobs()
    with torch.no_grad():
        payloads = conv(rng(9))(rows)
    found = {}
    for device in ("cpu", "cuda"):
        attack = UnSplit(options(batching=batching, **SHORT))
        there = view(conv, (8, 8, 8), (1, 8, 8))
        attack.begin(AdversaryView(**{**vars(there), "device": torch.device(device)}))
        guess = attack.reconstruct(payloads.to(device)).cpu()
        found[device] = float(affine_aligned_mse(guess, rows).mean())
    assert found["cuda"] == pytest.approx(found["cpu"], rel=0.5, abs=2e-3)  # TF32 and other sums, over 1,000 steps
