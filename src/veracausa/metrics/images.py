"""How close a reconstruction is to a picture: (n, c, h, w) in [0, 1] against (n, c, h, w), a value a sample."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

PSNR_CAP = 100.0
_K1, _K2 = 0.01, 0.03
_WINDOW, _SIGMA = 11, 1.5
_FEATURES_AT_ONCE = 4096


def mse(guess: Tensor, truth: Tensor) -> Tensor:
    """The mean squared error of each row.

    Args:
        guess: The reconstructions, n rows of any shape.
        truth: The rows they stand for, in the same order and shape.

    Returns:
        (n,) errors.
    """
    _same_shape(guess, truth)
    return (guess - truth).square().flatten(1).mean(1)


def psnr(guess: Tensor, truth: Tensor) -> Tensor:
    """The peak signal-to-noise ratio of each picture: 10·log10(1 / MSE), at most 100.

    Args:
        guess: The reconstructions, values in [0, 1].
        truth: The pictures they stand for, in the same order and shape.

    Returns:
        (n,) decibels.
    """
    return psnr_of_mse(mse(guess, truth))


def psnr_of_mse(error: Tensor) -> Tensor:
    """PSNR of a mean squared error of values in [0, 1], at most 100."""
    return (-10 * error.clamp_min(1e-30).log10()).clamp_max(PSNR_CAP)


def ssim(guess: Tensor, truth: Tensor) -> Tensor:
    """The structural similarity of each picture: Gaussian window 11, σ 1.5, data range 1; differentiable.

    A picture that is smaller than the window gets the largest odd window that fits (`ssim_window`). Every pixel counts:
    the border is reflected, as torchmetrics does, because of a strip of 16 columns only 6 lie further inside than that.

    Args:
        guess: The reconstructions, (n, c, h, w) in [0, 1].
        truth: The pictures they stand for, in the same order and shape.

    Returns:
        (n,) means over channels and pixels; 1 is the same picture.
    """
    _same_shape(guess, truth)
    if guess.ndim != 4:
        raise ValueError(f"ssim compares (n, c, h, w) pictures, not tensors of {guess.ndim} dimensions")
    channels, height, width = guess.shape[1:]
    size = ssim_window(height, width)
    kernel = _gaussian(size).to(guess)
    kernel = torch.outer(kernel, kernel).expand(channels, 1, -1, -1)

    def blurred(values: Tensor) -> Tensor:
        return F.conv2d(values, kernel, groups=channels)

    border = [size // 2] * 4
    guess, truth = F.pad(guess, border, mode="reflect"), F.pad(truth, border, mode="reflect")
    mean_g, mean_t = blurred(guess), blurred(truth)
    # Rounding can make a variance of a constant window slightly negative.
    var_g = (blurred(guess.square()) - mean_g.square()).clamp_min(0)
    var_t = (blurred(truth.square()) - mean_t.square()).clamp_min(0)
    covariance = blurred(guess * truth) - mean_g * mean_t
    luminance = (2 * mean_g * mean_t + _K1**2) / (mean_g.square() + mean_t.square() + _K1**2)
    structure = (2 * covariance + _K2**2) / (var_g + var_t + _K2**2)
    return (luminance * structure).flatten(1).mean(1)


def ssim_window(height: int, width: int) -> int:
    """The side of SSIM's window on such a picture: 11, or the largest odd number that fits."""
    smaller = min(height, width)
    return min(_WINDOW, smaller if smaller % 2 else smaller - 1) if smaller > 1 else 1


def luminance_ssim(guess: Tensor, truth: Tensor) -> Tensor:
    """SSIM of CIELAB's L alone (L-SSIM): structure, whatever became of the colours. Grey needs no Lab.

    Args:
        guess: The reconstructions, (n, 1 or 3, h, w) in [0, 1].
        truth: The pictures they stand for, in the same order and shape.

    Returns:
        (n,) similarities.
    """
    return ssim(_luminance(guess), _luminance(truth))


def affine_aligned_mse(guess: Tensor, truth: Tensor) -> Tensor:
    """MSE after the best a·guess + b of every channel (affine-aligned MSE).

    The fit looks at the truth, which no attacker can: it measures structure found, not pictures stolen.

    Args:
        guess: The reconstructions, (n, c, h, w) in [0, 1].
        truth: The pictures they stand for, in the same order and shape.

    Returns:
        (n,) errors.
    """
    _same_shape(guess, truth)
    g, t = guess.flatten(2), truth.flatten(2)
    g, t = g - g.mean(2, keepdim=True), t - t.mean(2, keepdim=True)
    power = g.square().sum(2, keepdim=True)
    slope = torch.where(power > 1e-12, (g * t).sum(2, keepdim=True) / power.clamp_min(1e-12), 0)
    return (slope * g - t).square().flatten(1).mean(1)


def _luminance(pictures: Tensor) -> Tensor:
    """(n, 1, h, w) L / 100; a grey picture's value stands for itself."""
    if pictures.shape[1] == 1:
        return pictures
    from veracausa.data.colour import rgb_to_lab

    lab: Tensor = rgb_to_lab(pictures)
    return lab[:, :1] / 100


def _gaussian(size: int) -> Tensor:
    offsets = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    weights = torch.exp(-offsets.square() / (2 * _SIGMA**2))
    return weights / weights.sum()


def _same_shape(guess: Tensor, truth: Tensor) -> None:
    if guess.shape != truth.shape:
        raise ValueError(f"{tuple(guess.shape)} cannot be compared with {tuple(truth.shape)}: not the same shape")


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """(n, c) squared Euclidean distances of (n, d) from (c, d), in float64, a block of features at a time."""
    total = torch.zeros(len(first), len(second), dtype=torch.float64, device=first.device)
    for start in range(0, first.shape[1], _FEATURES_AT_ONCE):
        a, b = (side[:, start : start + _FEATURES_AT_ONCE].to(first.device, torch.float64) for side in (first, second))
        total += a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T
    return total.clamp_min(0)
