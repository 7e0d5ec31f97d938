"""An attack's guesses are scored per sample, beside guesses that need no payload."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from veracausa.audit import measure as measuring
from veracausa.audit.measure import measure, trivial_guesses


@pytest.fixture(autouse=True)
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path))
    measuring._network.cache_clear()


def test_a_perfect_copy_and_a_blind_guess() -> None:
    truth = torch.rand(20, 3, 16, 8, generator=torch.Generator().manual_seed(0))
    blind = {"mean image": truth.mean(0, keepdim=True).expand_as(truth)}
    copied = measure(truth.clone(), truth, blind, pixels=True)
    assert copied.scores["leakage"] == 1
    assert copied.others["identified"]["top_1"] == 1
    assert copied.others["success"]["ssim_0.5"]["attack"] == 1
    assert copied.trivial["mean image"] == copied.scores["blind_mse"]
    assert "lpips_unavailable" in copied.others
    assert "lpips" not in copied.scores
    guessed = measure(blind["mean image"], truth, blind, pixels=True)
    assert guessed.scores["leakage"] == pytest.approx(0, abs=1e-6)
    assert guessed.others["identified"]["top_1"] == pytest.approx(guessed.others["identified"]["chance"])
    assert set(guessed.samples) == {"mse", "psnr", "ssim", "affine_mse", "luminance_ssim"}
    assert all(len(values) == 20 for values in guessed.samples.values())


def test_a_table_has_no_pictures_scores() -> None:
    truth = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    found = measure(truth, truth, {"mean image": torch.zeros_like(truth)}, pixels=False)
    assert set(found.samples) == {"mse"}
    assert found.scores["leakage"] == 1


def test_trivial_guesses_know_nothing_of_the_victim() -> None:
    auxiliary = torch.rand(9, 1, 4, 4)
    guesses = trivial_guesses(auxiliary, 5)
    assert guesses["grey"].shape == guesses["mean colour"].shape == (5, 1, 4, 4)
    assert guesses["grey"].unique().tolist() == [0.5]
    assert guesses["mean colour"].std() < 1e-6
