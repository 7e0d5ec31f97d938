"""The inverse network at oracle level, at the fixed strength that leakage is measured with.

It is given the victim's trained model and its defense, and learns a decoder from payloads of auxiliary rows to these
rows. It is the active party, so it is told the labels, too: the blind guess it is measured against knows them. No
partner has that much; what it reads is an upper bound for attackers that must do with less and decode alike.
"""

from __future__ import annotations

from typing import ClassVar

from veracausa.attacks import attacks
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions


class InverseOptions(DecoderOptions):
    """Those of every decoder."""


@attacks.register("inverse", InverseOptions)
class InverseNetwork(DecoderAttack):
    """A decoder trained on payloads that the victim's own model and defense give for auxiliary rows."""

    title = "oracle decoder"
    snapshots = True
    by_default = "always"
    quick: ClassVar = {"epochs": 12, "channels": 16, "blocks": 1}
    options: InverseOptions
