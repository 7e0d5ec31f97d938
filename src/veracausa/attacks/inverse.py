"""The inverse network at oracle level, at the fixed strength that leakage is measured with.

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
from veracausa.metrics.ridge import Ridge, best_penalty, fit_ridge
from veracausa.models.decoders import strong_decoder
from veracausa.models.levelled import Levelled
from veracausa.seeding import drawing_from

_ROWS_AT_ONCE = 512
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_AFFORDABLE = 3e10


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
        source = view.oracle if view.fresh or view.redrawn else view.oracle()
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
        self.linear: Ridge | None = None
        self.linear_share, self.held_out_mse = 0.0, self.fitted.held_out_mse
        if linear_is_affordable(len(rows), first[0].numel()):
            other = source() if source is not None else first
            self._add_linear(first.to(self.device, torch.float32), other.to(self.device, torch.float32), rows)
        return self

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The rows behind these payloads; pixels in [0, 1]."""
        parts = []
        for part in torch.split(payload.to(self.device, torch.float32), _ROWS_AT_ONCE):
            guess = self._decoded(part)
            if self.linear is not None and self.linear_share:
                guess = torch.lerp(guess, self._bounded(self.linear(self._level(part))), self.linear_share)
            parts.append(guess)
        return torch.cat(parts)

    def notes(self) -> Mapping[str, float]:
        return {
            "held_out_mse": self.held_out_mse,
            "best_epoch": float(self.fitted.best_epoch),
            "linear_share": self.linear_share,
        }

    def _add_linear(self, payloads: Tensor, other: Tensor, rows: Tensor) -> None:
        """A linear reader beside the network, in the share that does best on the held-out pairs.

        With a few hundred pairs it reads more than any network does; with thousands its share is nearly nothing.
        """
        learnt, held = self.fitted.learnt, self.fitted.held
        decoded = self._decoded(other[held])
        payloads, other = self._level(payloads), self._level(other)
        penalty, _ = best_penalty(payloads[learnt], rows[learnt], other[held], rows[held])
        self.linear = fit_ridge(payloads[learnt], rows[learnt], penalty)
        read = self._bounded(self.linear(other[held]))
        errors = {share: float((torch.lerp(decoded, read, share) - rows[held]).square().mean()) for share in _SHARES}
        self.linear_share = min(errors, key=lambda share: errors[share])
        self.held_out_mse = errors[self.linear_share]

    def _level(self, payloads: Tensor) -> Tensor:
        level = Levelled.of(self.decoder)
        assert level is not None
        with torch.no_grad():
            levelled: Tensor = level(level.shaped(payloads))
        return levelled

    def _decoded(self, payloads: Tensor) -> Tensor:
        with torch.no_grad():
            return self._bounded(self.decoder(payloads).float())

    def _bounded(self, guess: Tensor) -> Tensor:
        return guess.clamp(0, 1) if self.pixels else guess


def linear_is_affordable(rows: int, features: int) -> bool:
    """Whether a closed-form fit is a matter of seconds: its cost is min² · max of the two."""
    return min(rows, features) ** 2 * max(rows, features) <= _AFFORDABLE
