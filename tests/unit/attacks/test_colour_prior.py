"""Lightness read, colour filled in: where it must succeed, where it must fail, and whose colours it takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView
from veracausa.attacks.methods.features.colour_prior import ColourPrior, ColourPriorOptions, class_colours
from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.errors import InputError
from veracausa.metrics.images import luminance_ssim
from veracausa.metrics.leakage import blind_guesses, blind_mse, leakage

COUNT, LEARNT = 260, 200
HUES = torch.tensor([[40.0, 20.0], [-40.0, 30.0], [0.0, -40.0]])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scene() -> tuple[Tensor, Tensor]:
    """3×8×4 pictures of smooth lightness, in one of three colours that are their classes."""
    grid = torch.linspace(0, 3.14, 8).view(8, 1) + torch.linspace(0, 1.5, 4)
    waves = torch.stack([torch.sin(n * grid) for n in range(1, 5)])
    light = 45 + 25 * torch.tanh(torch.einsum("nk,khw->nhw", torch.randn(COUNT, 4, generator=rng(1)), waves))
    labels = torch.randint(0, 3, (COUNT,), generator=rng(2))
    ab = HUES[labels].view(-1, 2, 1, 1).expand(-1, 2, 8, 4)
    return lab_to_rgb(torch.cat([light.unsqueeze(1), ab], 1)), labels


ROWS, LABELS = scene()
SMALL = ColourPriorOptions(name="colour_prior", epochs=8, channels=16, blocks=1, batch_size=32)


def greyed(rows: Tensor) -> Tensor:
    """A payload of lightness alone, mixed."""
    return rgb_to_lab(rows)[:, 0].flatten(1) / 100 @ torch.randn(32, 48, generator=rng(3))


def view(payloads: Tensor, **given) -> AdversaryView:
    known = {
        "grants": ColourPrior.needs,
        "row_shape": (3, 8, 4),
        "pixels": True,
        "auxiliary": ROWS[:LEARNT],
        "auxiliary_labels": LABELS[:LEARNT],
        "labels": LABELS[LEARNT:],
        "classes": 3,
        "oracle": lambda: payloads[:LEARNT],
        "transmit": torch.clone,
        "defense": torch.clone,
    }
    fixed = {"victim": "passive_1", "payload_shape": tuple(payloads.shape[1:]), "device": torch.device("cpu")}
    return AdversaryView(**{**known, **fixed, "rng": rng(4), **given})


def attacked(payloads: Tensor, **given) -> ColourPrior:
    attack = ColourPrior(SMALL)
    attack.begin(view(payloads, **given))
    return attack


def leaked(guess: Tensor) -> float:
    truth = ROWS[LEARNT:]
    blind = blind_guesses(ROWS[:LEARNT], len(truth), auxiliary_labels=LABELS[:LEARNT], labels=LABELS[LEARNT:])
    return leakage(float((guess - truth).square().mean()), blind_mse(blind, truth)[0])


def test_it_reads_lightness_and_fills_in_the_class_colours() -> None:
    payloads = greyed(ROWS)
    attack = attacked(payloads)
    guess = attack.reconstruct(payloads[LEARNT:], torch.arange(COUNT - LEARNT))
    assert leaked(guess) > 0.6
    assert luminance_ssim(guess, ROWS[LEARNT:]).mean() > 0.5
    assert guess.min() >= 0
    assert guess.max() <= 1
    without = attack.reconstruct(payloads[LEARNT:], torch.full((COUNT - LEARNT,), -1))
    assert leaked(without) < leaked(guess)
    assert torch.equal(without, attack.reconstruct(payloads[LEARNT:], torch.arange(COUNT - LEARNT) + 10_000))
    assert torch.equal(without, attack.reconstruct(payloads[LEARNT:]))
    assert attack.notes()["held_out_luminance_mse"] < 0.01


def test_it_reads_nothing_from_noise() -> None:
    payloads = torch.randn(COUNT, 48, generator=rng(5))
    guess = attacked(payloads).reconstruct(payloads[LEARNT:], torch.arange(COUNT - LEARNT))
    assert leaked(guess) < 0.1


def test_a_class_without_rows_and_the_last_entry_are_the_mean_over_classes() -> None:
    ab = torch.tensor([1.0, 3.0, 10.0]).view(3, 1, 1, 1).expand(3, 2, 1, 1)
    means = class_colours(ab, torch.tensor([0, 0, 2]), 3)[:, 0, 0, 0]
    assert means.tolist() == [2.0, 6.0, 10.0, 6.0]
    assert class_colours(ab, torch.tensor([0.1, 0.2, 0.3]), 0)[0, 0, 0, 0] == pytest.approx(14 / 3)


def test_the_same_generator_gives_the_same_pictures() -> None:
    payloads = greyed(ROWS)
    short = SMALL.model_copy(update={"epochs": 1})
    found = []
    for _ in range(2):
        attack = ColourPrior(short)
        attack.begin(view(payloads))
        found.append(attack.reconstruct(payloads[:5], torch.arange(5)))
    assert torch.equal(*found)


def test_fresh_payloads_are_asked_for_where_the_defense_is_random() -> None:
    payloads, asked = greyed(ROWS), []

    def oracle() -> Tensor:
        asked.append(1)
        return payloads[:LEARNT]

    attack = ColourPrior(SMALL.model_copy(update={"epochs": 3}))
    attack.begin(view(payloads, oracle=oracle, fresh=True))
    assert len(asked) == 4  # the first, another for the held-out pairs, and one for each further epoch


def test_what_it_cannot_work_with_is_refused() -> None:
    payloads = greyed(ROWS)
    assert "labels" in attacks.get("colour_prior").needs.words
    with pytest.raises(InputError, match="three channels"):
        attacked(payloads, row_shape=(1, 8, 4))
    with pytest.raises(InputError, match="three channels"):
        attacked(payloads, row_shape=(3,), pixels=False)
    with pytest.raises(InputError, match="auxiliary_labels"):
        attacked(payloads, auxiliary_labels=None)
    with pytest.raises(InputError, match="which it is not granted"):
        attacked(payloads, grants=~ColourPrior.needs)
    with pytest.raises(InputError, match="not finite"):
        attacked(payloads / 0)
    with pytest.raises(InputError, match="at least 4"):
        attacked(payloads, auxiliary=ROWS[:3])
