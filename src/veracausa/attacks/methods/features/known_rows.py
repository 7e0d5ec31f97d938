"""Known rows: an attacker that has some of the victim's customers among its own, and kept all that ever crossed.

It needs nobody's weights and no query. Of a few hundred training rows it knows what the victim holds, and it has their
payloads like everybody's. A decoder learns from what really crossed for them, several epochs stacked, with what the
other passive parties sent for the same people beside it. Then it reads the rest of the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack, Grant
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions
from veracausa.attacks.transcript import nearest_payloads, spread, stack
from veracausa.errors import InputError


class KnownRowsOptions(DecoderOptions):
    exchanges: int = Field(4, ge=1)
    """How many payloads of an id are stacked, spread evenly over the training; the last is always among them."""
    parties: Literal["victim", "all"] = "all"
    """Whose payloads the decoder sees."""


@attacks.register("known_rows", KnownRowsOptions)
class KnownTrainingRows(DecoderAttack):
    """Learns from rows it knows and all payloads that crossed for them, and reads everybody else's."""

    title = "known rows"
    needs = Grant.KNOWN_ROWS
    uses = Grant.LABELS
    uses_transcript = True
    splits: ClassVar = ("train",)
    quick: ClassVar = {"epochs": 12, "channels": 16, "blocks": 1}
    options: KnownRowsOptions

    def begin(self, view: AdversaryView) -> None:
        FeatureAttack.begin(self, view)
        if not hasattr(view, "transcript"):
            raise InputError("attack 'known_rows' reads what crossed in training: record a transcript")
        self.view = view
        self.sources = [view.transcript]
        if self.options.parties == "all" and hasattr(view, "partners"):
            self.sources += [view.partners[name] for name in sorted(view.partners)]
        self.steps = spread(view.transcript, self.options.exchanges)
        stacked, crossed = self._stacked(view.known_ids)
        if int(crossed.sum()) < 4:
            raise InputError("attack 'known_rows' knows too few rows that ever crossed: it needs at least 4")
        self.learnt_from = int(crossed.sum())
        there = crossed.to(view.known.device)
        self.like = stacked[crossed].mean(0)
        told = self.options.labels and hasattr(view, "labels")
        self.labels = view.labels if told else None
        labels = view.labels[view.known_ids.to(view.labels.device)][crossed.to(view.labels.device)] if told else None
        rows = view.known[there]
        self.fit(stacked[crossed].to(rows.device), rows, view.rng, view.progress, view.pixels, labels, view.classes)

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """From all that crossed for these ids; of an id that never crossed it has the mean of what it learnt from."""
        if ids is None:
            raise InputError("attack 'known_rows' reads by the positions of training rows: give them as `ids`")
        stacked, crossed = self._stacked(ids)
        stacked[~crossed] = self.like
        return super().reconstruct(stacked, ids)

    def notes(self) -> Mapping[str, float]:
        return {
            **super().notes(),
            "whole_training": 1.0,
            "known_rows": float(self.learnt_from),
            "exchanges": float(len(self.steps)),
            "parties_read": float(len(self.sources)),
        }

    def _stacked(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """(n, …): the payloads of each id from all sources as channels, or as one vector; and which ids crossed."""
        parts, crossed = [], torch.ones(len(ids), dtype=torch.bool)
        for source in self.sources:
            found, known = nearest_payloads(source, ids, self.steps)
            parts.append(found.flatten(1, 2))
            crossed &= known & (ids.cpu() >= 0)
        return stack(parts), crossed
