"""The inverse network at oracle level (§4.3, AD-1 of §4.7), at the fixed strength of Appendix H.

It is given the victim's trained model and its defense, and learns a decoder from payloads of auxiliary rows to these
rows. No partner has that much; what it reads is an upper bound for attackers that must do with less and decode alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Attack, Grant, Progress
from veracausa.attacks.fitting import FitOptions, Fitted, fit_decoder
from veracausa.errors import InputError
from veracausa.models.decoders import strong_decoder
from veracausa.seeding import drawing_from

_ROWS_AT_ONCE = 512


class InverseOptions(FitOptions):
    channels: int = Field(128, ge=1)
    blocks: int = Field(4, ge=0)
    average: int | None = Field(None, ge=1)
    """Payloads of one id to average where the defense is random; unset: as many as training showed, up to 32."""


@attacks.register("inverse", InverseOptions)
class InverseNetwork(Attack):
    """A decoder trained on payloads that the victim's own model and defense give for auxiliary rows."""

    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.DEFENSE
    options: InverseOptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        if view.auxiliary is None or view.oracle is None:
            raise InputError("attack 'inverse' needs auxiliary rows and the victim's own payloads for them")
        source = view.oracle if view.fresh else view.oracle()
        self.fit(source, view.auxiliary, view.rng, view.progress, view.pixels)

    def fit(
        self,
        payloads: Tensor | Callable[[], Tensor],
        rows: Tensor,
        rng: torch.Generator,
        progress: Progress = lambda share: None,
        pixels: bool = True,
    ) -> InverseNetwork:
        """Train on pairs; a callable gives fresh payloads of all `rows` for every epoch. On the device of `rows`."""
        if len(rows) < 4:
            raise InputError(f"attack 'inverse' needs at least 4 auxiliary rows to learn from, there are {len(rows)}")
        self.pixels, self.device = pixels, rows.device
        first = payloads() if callable(payloads) else payloads
        if not first.isfinite().all():
            raise InputError("some payloads are not finite: no decoder can be trained on them")
        with drawing_from(rng):
            decoder = strong_decoder(first.shape[1:], rows.shape[1:], self.options.blocks, self.options.channels)
        self.decoder: nn.Module = decoder.to(self.device)
        source = payloads if callable(payloads) else None
        self.fitted: Fitted = fit_decoder(self.decoder, first, rows, self.options, rng, progress, source)
        return self

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The rows behind these payloads; pixels in [0, 1]."""
        parts = []
        with torch.no_grad():
            for part in torch.split(payload, _ROWS_AT_ONCE):
                guess = self.decoder(part.to(self.device, torch.float32)).float()
                parts.append(guess.clamp(0, 1) if self.pixels else guess)
        return torch.cat(parts)

    def notes(self) -> Mapping[str, float]:
        return {"held_out_mse": self.fitted.held_out_mse, "best_epoch": float(self.fitted.best_epoch)}
