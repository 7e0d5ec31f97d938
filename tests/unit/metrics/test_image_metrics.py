"""Picture metrics against torchmetrics, and against what they must be whoever computes them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from veracausa.metrics.images import (
    affine_aligned_mse,
    luminance_ssim,
    mse,
    psnr,
    psnr_of_mse,
    ssim,
    ssim_window,
)


def pictures(n: int, *shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    truth = torch.rand(n, *shape, generator=rng)
    return (truth + 0.2 * torch.randn(n, *shape, generator=rng)).clamp(0, 1), truth


@pytest.mark.parametrize("shape", [(3, 32, 16), (1, 28, 14), (3, 11, 11)])
def test_ssim_is_torchmetrics_ssim(shape: tuple[int, ...]) -> None:
    guess, truth = pictures(5, *shape)
    reference = structural_similarity_index_measure(
        guess, truth, gaussian_kernel=True, sigma=1.5, kernel_size=11, data_range=1.0, reduction="none"
    )
    assert torch.allclose(ssim(guess, truth), reference, atol=1e-5)


def test_psnr_is_torchmetrics_psnr() -> None:
    guess, truth = pictures(4, 3, 9, 7)
    reference = peak_signal_noise_ratio(guess, truth, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert torch.allclose(psnr(guess, truth), reference, atol=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 3]))
def test_what_holds_for_any_picture(seed: int, height: int, width: int, channels: int) -> None:
    guess, truth = pictures(3, channels, height, width, seed=seed)
    same = ssim(truth, truth)
    assert torch.allclose(same, torch.ones(3), atol=1e-4)
    assert (ssim(guess, truth) <= 1 + 1e-5).all()
    # Jensen: the mean of the PSNRs is at least the PSNR of the mean error.
    assert psnr(guess, truth).mean() >= psnr_of_mse(mse(guess, truth).mean()) - 1e-4
    assert (affine_aligned_mse(guess, truth) <= mse(guess, truth) + 1e-6).all()
    assert ssim_window(height, width) % 2 == 1
    assert ssim_window(height, width) <= min(height, width, 11)


def test_a_perfect_copy_has_the_capped_psnr() -> None:
    _, truth = pictures(2, 1, 4, 4)
    assert psnr(truth, truth).tolist() == [100.0, 100.0]


def test_affine_alignment_forgives_scale_and_offset_of_each_channel() -> None:
    _, truth = pictures(2, 3, 6, 5)
    guess = truth * torch.tensor([-0.5, 2.0, 0.1]).view(3, 1, 1) + torch.tensor([0.3, 0.0, 0.9]).view(3, 1, 1)
    assert affine_aligned_mse(guess, truth).max() < 1e-6
    flat = torch.full_like(truth, 0.5)
    assert torch.allclose(affine_aligned_mse(flat, truth), truth.flatten(2).var(2, unbiased=False).mean(1), atol=1e-6)


def test_luminance_ssim_does_not_see_colour() -> None:
    colour = pytest.importorskip("veracausa.data.colour")
    guess, truth = pictures(2, 1, 16, 8)
    assert torch.equal(luminance_ssim(guess, truth), ssim(guess, truth))
    _, coloured = pictures(2, 3, 16, 8)
    drained = colour.without_chroma(coloured)
    assert torch.allclose(luminance_ssim(drained, coloured), torch.ones(2), atol=1e-2)
    assert ssim(drained, coloured).max() < 0.9


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        ssim(torch.rand(1, 1, 8, 8), torch.rand(1, 1, 8, 4))
