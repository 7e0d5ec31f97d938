"""The inverse network at shadow level: a partner that knows the defense's code, but not the victim's weights.

While the victim trains, it simulates the victim's bottom model as SDAR does. Afterwards it runs the same defense, with
surrogates and the like made from its auxiliary rows, on its simulation, and learns a decoder from what would then have
been sent. It is the defense-aware attacker against CausShield, and against every defense whose code is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.defended_shadow import DefendedShadow, standardised
from veracausa.attacks.fitting import FitOptions, fit_decoder
from veracausa.attacks.methods.features.sdar import SDAR, SDAROptions
from veracausa.errors import InputError
from veracausa.models.decoders import strong_decoder
from veracausa.seeding import drawing_from

_ROWS_AT_ONCE = 512


class ShadowOptions(SDAROptions, FitOptions):
    reader_blocks: int = Field(4, ge=0)
    reader_channels: int = Field(128, ge=1)
    """Of the decoder that is trained at the end; `blocks` and `channels` are those of SDAR's own."""


@attacks.register("shadow", ShadowOptions)
class Shadow(SDAR):
    """Runs the victim's defense on its own simulation of the victim's model, and learns to read the outcome."""

    title = ""
    needs = SDAR.needs | Grant.DEFENSE
    options: ShadowOptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        options = self.options
        if options.reads != "end":
            raise InputError(
                "attack 'shadow' reads with a decoder that it trains at the end: leave shadow.reads at 'end'"
            )
        with drawing_from(view.rng):
            reader = strong_decoder(view.payload_shape, view.row_shape, options.reader_blocks, options.reader_channels)
        self.reader = reader.to(self.device).eval()
        self.held_out_mse, self.by_batch = -1.0, False

    def conclude(self) -> None:
        """The defense on the simulation, then a decoder from its payloads to auxiliary rows."""
        shadow = DefendedShadow(self.view, self.victim.simulator, self.batch)
        self.by_batch = shadow.by_batch
        fresh = shadow.payloads if shadow.random or shadow.by_batch else None
        rng, progress = self.view.rng, self.view.progress
        rows = self.victim.rows
        self.held_out_mse = fit_decoder(
            self.reader, shadow.payloads(), rows, self.options, rng, progress, fresh
        ).held_out_mse

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """What the decoder of defended simulations reads."""
        if self.held_out_mse < 0:
            self.conclude()
        payload = payload.to(self.device, torch.float32)
        if self.by_batch and len(payload) > 1:
            payload = standardised(payload)
        with torch.no_grad():
            guess = torch.cat([self.reader(part).float() for part in torch.split(payload, _ROWS_AT_ONCE)])
        return guess.clamp(0, 1) if self.view.pixels else guess

    def notes(self) -> Mapping[str, float]:
        return {**super().notes(), "held_out_mse": self.held_out_mse}

    def state(self) -> dict[str, Any]:
        own = {"reader": self.reader.state_dict(), "held_out_mse": self.held_out_mse, "by_batch": self.by_batch}
        return {**super().state(), **own}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.reader.load_state_dict(state["reader"])
        self.held_out_mse, self.by_batch = state["held_out_mse"], state["by_batch"]
