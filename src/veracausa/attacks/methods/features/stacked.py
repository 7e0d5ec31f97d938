"""Everything in one decoder: what all passive parties send for a person, over the whole training, side by side.

Where `inverse` reads one party at one moment, this one is given the payloads of every party at every snapshot that was
kept, as channels of one map. What one of them lost another may have kept. It is granted what `inverse` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Beside
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions


class StackedOptions(DecoderOptions):
    parties: Literal["victim", "all"] = "all"
    """Whose payloads the decoder sees."""
    moments: Literal["end", "all"] = "all"
    """Of which models: the last, or every one that was kept."""


@attacks.register("stacked", StackedOptions)
class StackedDecoder(DecoderAttack):
    """A decoder of what all parties send for a row at all snapshots, trained on what their own models give."""

    title = "oracle decoder, all stacked"
    quick: ClassVar = {"epochs": 12, "channels": 16, "blocks": 1}
    options: StackedOptions

    @property
    def beside(self) -> Beside:
        return Beside(self.options.parties == "all", self.options.moments == "all")

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.stacked, self.from_first = view.stacked, view.from_first

    def notes(self) -> Mapping[str, float]:
        whole = {"whole_training": 1.0} if self.from_first else {}
        return {**super().notes(), **whole, "payloads_stacked": float(self.stacked)}
