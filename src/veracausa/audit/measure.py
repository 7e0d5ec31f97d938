"""An attack's guesses beside the truth and beside the best guess without the payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from veracausa.metrics import images
from veracausa.metrics.leakage import blind_mse, grey, leakage, mean_colour, table_leakage


@dataclass(frozen=True)
class Measured:
    """The scores of one attack on one party's rows of one split."""

    scores: Mapping[str, float]
    """`mse`, `leakage`, `blind_mse`, and for pictures `psnr`, `ssim`, `affine_mse`, `luminance_ssim`: means."""
    blind: str
    """The name of the best guess without the payload."""
    samples: Mapping[str, Tensor]
    """The same scores a sample."""
    trivial: Mapping[str, float] = field(default_factory=dict)
    """The MSE of every guess that needs no payload, by name."""


def measure(
    guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], pixels: bool, groups: Sequence[int] | None = None
) -> Measured:
    """Score `guess` against `truth` and against the best of the blind guesses."""
    samples = {"mse": images.mse(guess, truth)}
    if pixels:
        samples["psnr"] = images.psnr_of_mse(samples["mse"])
        samples["ssim"] = images.ssim(guess, truth)
        samples["affine_mse"] = images.affine_aligned_mse(guess, truth)
        if truth.shape[1] in (1, 3):
            samples["luminance_ssim"] = images.luminance_ssim(guess, truth)
    without, name = blind_mse(blind, truth)
    scores = {score: float(values.mean()) for score, values in samples.items()}
    leaked = leakage(scores["mse"], without) if pixels else table_leakage(guess, truth, blind, groups)
    trivial = {name: float(images.mse(other, truth).mean()) for name, other in blind.items()}
    return Measured({**scores, "leakage": leaked, "blind_mse": without}, name, samples, trivial)


def trivial_guesses(auxiliary: Tensor, count: int) -> dict[str, Tensor]:
    """For pictures: what takes no knowledge of the victim at all, for the table. None of them is the blind guess."""
    some = mean_colour(auxiliary, count)
    return {"grey": grey(some), "mean colour": some}


def mean_errors(guesses: Mapping[str, Tensor], truth: Tensor) -> dict[str, float]:
    """The MSE of every guess."""
    return {name: float((guess - truth).square().mean()) for name, guess in guesses.items()}
