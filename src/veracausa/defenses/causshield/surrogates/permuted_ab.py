"""Surrogates of colour images without learning: a row's own luminance under another row's colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import Groups, Surrogate, SurrogateOptions, bank_of, partners
from veracausa.defenses.protocols import no_progress
from veracausa.events import ProgressCallback

BANK = 256


@surrogates.register("permuted_ab", SurrogateOptions)
class PermutedAb(Surrogate):
    """Keeps L and takes a and b from another training row: what learnt colours are worth is seen beside it."""

    suits = "colour images"
    bank: Tensor

    def fit(
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = no_progress, groups: Groups | None = None
    ) -> None:
        self.check(rows.shape[1:])
        self.bank = bank_of(rows, BANK, rng)

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        self.bank = self.bank.to(x.device)
        colours = rgb_to_lab(partners(x, self.bank, rng))[:, 1:]
        return lab_to_rgb(torch.cat((rgb_to_lab(x)[:, :1], colours), dim=1), clip=False)

    def state(self) -> dict[str, Any]:
        return {"bank": self.bank}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.bank = state["bank"]
