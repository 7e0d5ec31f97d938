"""Surrogates of any image: the amplitudes of its spectrum are mixed with another image's, its phases are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import (
    Groups,
    Surrogate,
    SurrogateOptions,
    bank_of,
    partners,
    uniform,
)
from veracausa.defenses.protocols import no_progress
from veracausa.events import ProgressCallback

BANK = 256


class FourierOptions(SurrogateOptions):
    """Amplitude mixing: phase is taken for structure, amplitude for style."""

    strength: float = Field(1.0, ge=0, le=1)
    """The share of the partner's amplitudes is drawn for each row between 0 and this."""
    central: float = Field(1.0, gt=0, le=1)
    """Mix only the lowest frequencies, this share of the spectrum's area."""


def mix_amplitudes(x: Tensor, partner: Tensor, share: Tensor | float, central: float = 1.0) -> Tensor:
    """Images with their own phases and `(1 − share)` of their own amplitudes, the rest the partner's; not clipped."""
    height, width = x.shape[-2:]
    spectrum = torch.fft.rfft2(x)
    down = torch.fft.fftfreq(height, device=x.device).abs()[:, None]
    across = torch.fft.rfftfreq(width, device=x.device)[None, :]
    reach = 0.5 * central**0.5
    mixed = share * ((down <= reach) & (across <= reach))
    amplitude = (1 - mixed) * spectrum.abs() + mixed * torch.fft.rfft2(partner).abs()
    mixture: Tensor = torch.fft.irfft2(torch.polar(amplitude, spectrum.angle()), s=(height, width))
    return mixture


@surrogates.register("fourier", FourierOptions)
class Fourier(Surrogate):
    """Mixes a row's amplitudes with those of another training row."""

    suits = "images"
    options: FourierOptions
    bank: Tensor

    def fit(
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = no_progress, groups: Groups | None = None
    ) -> None:
        self.check(rows.shape[1:])
        self.bank = bank_of(rows, BANK, rng)

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        self.bank = self.bank.to(x.device)
        partner = partners(x, self.bank, rng)
        share = uniform(len(x), 0, self.options.strength, rng, like=x)
        return mix_amplitudes(x, partner, share, self.options.central)

    def state(self) -> dict[str, Any]:
        return {"bank": self.bank}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.bank = state["bank"]
