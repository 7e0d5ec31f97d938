"""URVFL that knows the defense: its decoder is trained on what the defense makes of the shadow's payloads.

Meant against CausShield, whose adaptation moves the victim's payloads away from those of the shadow it was drawn to,
and against any defense whose code is public. Granted what URVFL is, and the defense. It doubles URVFL's epochs; sweep
`grad_scale` with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.defended_shadow import DefendedShadow, standardised
from veracausa.attacks.fitting import FitOptions, fit_decoder
from veracausa.attacks.methods.features.urvfl import URVFL, URVFLOptions


class URVFLAwareOptions(URVFLOptions):
    epochs: int = Field(40, ge=0)
    """Of stage 1, on the auxiliary rows."""
    reader_epochs: int = Field(20, ge=1)
    """Of the decoder alone, on what the defense makes of the trained shadow's payloads."""


@attacks.register("urvfl_aware", URVFLAwareOptions)
class URVFLAware(URVFL):
    """URVFL whose decoder was trained on its shadow's payloads after the victim's own defense (malicious)."""

    title = ""
    needs = URVFL.needs | Grant.DEFENSE
    options: URVFLAwareOptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.by_batch = False

    def pretrain(self) -> None:
        """Stage 1 as in URVFL; then the decoder again, behind the defense; with `sync` that comes at the end."""
        super().pretrain()
        if not self.options.sync:
            self._learn_defended()

    def conclude(self) -> None:
        super().conclude()
        if self.options.sync:
            self._learn_defended()

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """Dec(P); where a payload depends on its batch, of standardised payloads, as the decoder learnt them."""
        return super().reconstruct(standardised(payload.float()) if self.by_batch else payload, ids)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "by_batch": self.by_batch}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.by_batch = state["by_batch"]

    def _learn_defended(self) -> None:
        shadow = DefendedShadow(self.view, self.shadow, self.options.batch_size)
        self.by_batch = shadow.by_batch
        fresh = shadow.payloads if shadow.random or shadow.by_batch else None
        # At a rate at which what stage 1 taught is refined, not lost.
        fit = FitOptions(
            name=self.options.name, epochs=self.options.reader_epochs, lr=5 * self.options.lr, batch_size=128
        )
        rows, rng = self.view.auxiliary, self.view.rng
        fit_decoder(self.decoder, shadow.payloads(), rows, fit, rng, self.view.progress, fresh)
        self.decoder.train()
