"""Norm inflation: a malicious server makes the victim's payloads grow, so that an adaptation of fixed steps fades.

Meant against defenses that adapt a copy of the model by a scale-invariant loss, CausShield among them: the larger the
output, the less a step of the same size turns it. The gradient of −c·‖P‖, averaged over the batch, is added to the
honest one, so the task is still learnt. Granted tampering; and to read, what the inverse network is granted. The
party's own record says how far its adaptation still moves the payload (`drift`); `growth` here says how far the norm
went.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Exchange, Grant, LiveAttack
from veracausa.attacks.methods.features.inverse import InverseNetwork, InverseOptions
from veracausa.errors import InputError

_MEMORY = 0.9


class NormInflationOptions(InverseOptions):
    strength: float = Field(1.0, ge=0)
    """c: the weight of the payloads' mean norm beside the honest loss."""


@attacks.register("norm_inflation", NormInflationOptions)
class NormInflation(LiveAttack):
    """Adds a gradient that makes payloads grow until an adaptation no longer turns them (malicious)."""

    needs = Grant.TAMPER
    reads_with = InverseNetwork.needs | InverseNetwork.uses
    options: NormInflationOptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.norms = torch.zeros(2, device=view.device)
        self.exchanges = 0
        self.reader: InverseNetwork | None = None

    def tamper(self, gradient: Tensor, exchange: Exchange) -> Tensor:
        """The honest gradient and the one of −c·mean‖P‖."""
        return gradient + self.options.strength * lengthening(exchange.payload).to(gradient)

    def observe(self, exchange: Exchange) -> None:
        now = exchange.payload.detach().flatten(1).float().norm(dim=1).mean().to(self.norms.device)
        if not self.exchanges:
            self.norms.fill_(float(now))
        self.norms[1].lerp_(now, 1 - _MEMORY)
        self.exchanges += 1

    def read_with(self, view: AdversaryView) -> None:
        """Learn a decoder of the trained victim's payloads, by a view of the run that this attack left behind."""
        if missing := InverseNetwork.needs & ~view.grants:
            words = ", ".join(missing.words)
            raise InputError(f"attack 'norm_inflation' needs {words} to read what it inflated, which it is not granted")
        self.reader = InverseNetwork(self.options)
        self.reader.begin(view)

    def told(self, labels: Tensor | None) -> None:
        if self.reader is not None:
            self.reader.told(labels)

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The inverse network's reading of the inflated victim."""
        if self.reader is None:
            self.read_with(self.view)
        assert self.reader is not None
        return self.reader.reconstruct(payload, ids)

    def notes(self) -> Mapping[str, float]:
        first, last = self.norms.tolist()
        notes = {"exchanges": float(self.exchanges), "strength": self.options.strength, "norm_first": first}
        notes |= {"norm_last": last, "growth": last / first if first else 1.0}
        return notes | dict(self.reader.notes() if self.reader is not None else {})

    def state(self) -> dict[str, Any]:
        return {"norms": self.norms.clone(), "exchanges": self.exchanges}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.norms.copy_(state["norms"])
        self.exchanges = state["exchanges"]


def lengthening(payload: Tensor) -> Tensor:
    """∂(−mean‖P‖)/∂P = −P/‖P‖ by row, over the number of rows: descending it makes every row's payload longer."""
    norm = payload.flatten(1).norm(dim=1).clamp(min=1e-12).view(-1, *[1] * (payload.ndim - 1))
    direction: Tensor = -payload / (norm * len(payload))
    return direction
