"""Is a surrogate any good? What it should keep and what it should change, as numbers; without labels."""

from __future__ import annotations

from torch import Tensor

from veracausa.data.colour import rgb_to_lab
from veracausa.metrics.images import ssim

STRUCTURE_LOST = 0.5
"""A similarity of luminance below this: the surrogate differs in what matters."""
COLOUR_KEPT = 10.0
"""A change of ab below this: the surrogate hardly differs in anything (natural chroma is 17.5 on average)."""


def distances(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """The distances that suit the rows: of luminance and colour, of intensity, or of a table's columns."""
    if x.ndim == 2:
        return of_tables(x, surrogate)
    return of_colour(x, surrogate) if x.shape[1] == 3 else of_intensity(x, surrogate)


def of_colour(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """SSIM of the luminance, and the mean distance in the ab plane."""
    ours, theirs = rgb_to_lab(x), rgb_to_lab(surrogate)
    luminance = ssim(theirs[:, :1] / 100, ours[:, :1] / 100).mean().item()
    moved = (ours[:, 1:] - theirs[:, 1:]).norm(dim=1).mean().item()
    return {
        "l_ssim": luminance,
        "ab_distance": moved,
        "structure_lost": luminance < STRUCTURE_LOST,
        "colour_kept": moved < COLOUR_KEPT,
    }


def of_intensity(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """SSIM and mean absolute change of the intensity."""
    similarity = ssim(surrogate.mean(1, keepdim=True), x.mean(1, keepdim=True)).mean().item()
    return {
        "intensity_ssim": similarity,
        "mean_absolute_change": (surrogate - x).abs().mean().item(),
        "structure_lost": similarity < STRUCTURE_LOST,
    }


def of_tables(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """The share of values that changed, and the mean absolute change in standard deviations of the column."""
    spread = x.std(0, correction=0)
    varied = spread > 0
    change = (surrogate - x).abs()
    standardised = change[:, varied] / spread[varied]
    return {
        "changed_share": (change > 0).float().mean().item() if change.numel() else 0.0,
        "mean_standardised_change": standardised.mean().item() if standardised.numel() else 0.0,
    }


def clipped_share(unclipped: Tensor) -> float:
    """The share of pixels with a channel outside [0, 1] by more than half a step of eight bits."""
    margin = 0.5 / 255
    return ((unclipped < -margin) | (unclipped > 1 + margin)).any(1).float().mean().item()
