"""PCAT: a passive server trains shadows of the bottom models against its own honest top model.

Exchange by exchange the shadows learn to give, for labelled auxiliary rows, payloads that the top model classifies
rightly. The top was trained on the victim's payloads, so the shadow comes to speak the victim's language; a decoder of
the shadow's payloads then reads the victim's. Deep cuts leave a shadow too much freedom, and it fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks import attacks
from veracausa.attacks.adversarial_training import adam, captured_training, precision, sgd_step
from veracausa.attacks.base import AdversaryView, Exchange, Grant, LiveAttack
from veracausa.attacks.fitting import FitOptions, fit_decoder
from veracausa.models.decoders import strong_decoder
from veracausa.models.runner import eval_mode
from veracausa.seeding import drawing_from

_ROWS_AT_ONCE = 512


class PCATOptions(FitOptions):
    epochs: int = Field(30, ge=1)
    """Of the decoder, on the shadow's pairs."""
    lr_shadow: float = Field(1e-4, gt=0)
    """Adam's, for the shadows."""
    batch: int = Field(128, ge=2)
    """Auxiliary rows an exchange."""
    repeats: int = Field(1, ge=1)
    """Auxiliary batches an exchange."""
    blocks: int = Field(4, ge=0)
    channels: int = Field(64, ge=1)


@attacks.register("pcat", PCATOptions)
class PCAT(LiveAttack):
    """Trains a shadow of the victim's model with the honest top model, and reads the victim by the shadow's decoder."""

    needs = Grant.ARCHITECTURE | Grant.LABELS | Grant.AUXILIARY | Grant.LABELLED_AUXILIARY
    options: PCATOptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        view = self.view
        self.predict = view.predict
        self.rows = {view.victim: view.auxiliary, **view.others}
        self.targets = view.auxiliary_labels
        makers = {view.victim: view.bottom, **view.other_bottoms}
        # A list, as a party may have any name; the victim's comes first.
        self.shadows = nn.ModuleList(makers[name](view.rng) for name in self.rows).train()
        self.optimizer = adam([self.shadows], self.options.lr_shadow, view.device)
        with drawing_from(view.rng):
            decoder = strong_decoder(view.payload_shape, view.row_shape, self.options.blocks, self.options.channels)
        self.decoder: nn.Module = decoder.to(view.device).eval()
        self.loss = torch.zeros((), device=view.device)
        self.drawn = torch.arange(min(self.options.batch, len(self.targets)), device=view.device)
        self.step: Callable[[], None] | None = None
        self.exchanges, self.held_out_mse = 0, -1.0

    def observe(self, exchange: Exchange) -> None:
        """CE(top(S(x')), y') on auxiliary rows, one step of the shadows; the top's weights stay as they are."""
        if self.step is None:
            self.step = captured_training(self._step, self.view.device, [self.shadows], [self.optimizer], (self.loss,))
        for _ in range(self.options.repeats):
            self.drawn.copy_(torch.randperm(len(self.targets), generator=self.view.rng)[: len(self.drawn)])
            self.step()
        self.exchanges += 1

    def conclude(self) -> None:
        """Train the decoder on pairs of the victim's shadow and its rows."""
        rows = self.rows[self.view.victim]
        fitted = fit_decoder(self.decoder, self._shadowed(rows), rows, self.options, self.view.rng, self.view.progress)
        self.held_out_mse = fitted.held_out_mse

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        if self.held_out_mse < 0:
            self.conclude()
        with torch.no_grad():
            parts = torch.split(payload.to(self.view.device, torch.float32), _ROWS_AT_ONCE)
            guess = torch.cat([self.decoder(part).float() for part in parts])
        return guess.clamp(0, 1) if self.view.pixels else guess

    def notes(self) -> Mapping[str, float]:
        return {
            "exchanges": float(self.exchanges),
            "shadow_loss": float(self.loss),
            "held_out_mse": self.held_out_mse,
        }

    def state(self) -> dict[str, Any]:
        return {
            "shadows": self.shadows.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "decoder": self.decoder.state_dict(),
            "loss": self.loss.clone(),
            "exchanges": self.exchanges,
            "held_out_mse": self.held_out_mse,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.shadows.load_state_dict(state["shadows"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.decoder.load_state_dict(state["decoder"])
        self.loss.copy_(state["loss"])
        self.exchanges, self.held_out_mse = state["exchanges"], state["held_out_mse"]
        self.step = None  # a captured step reads from the optimiser's old memory

    def _step(self) -> None:
        payloads = {}
        for shadow, (name, rows) in zip(self.shadows, self.rows.items(), strict=True):
            with precision(self.view.device):
                payload = shadow(rows.index_select(0, self.drawn))
            payloads[name] = payload.float()
        output, wanted = self.predict(payloads, self.drawn), self.targets.index_select(0, self.drawn)
        loss = F.cross_entropy(output, wanted) if self.view.classes else F.mse_loss(output.flatten(), wanted)
        sgd_step(loss, self.optimizer)
        self.loss.copy_(loss.detach())

    def _shadowed(self, rows: Tensor) -> Tensor:
        shadow = self.shadows[0]
        with eval_mode(shadow), torch.no_grad():
            return torch.cat([shadow(part).float() for part in torch.split(rows, _ROWS_AT_ONCE)])
