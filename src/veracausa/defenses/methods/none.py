"""No defense: the representation is sent as it is."""

from __future__ import annotations

from veracausa.defenses import defenses
from veracausa.defenses.base import Defense


@defenses.register("none")
class Undefended(Defense):
    """Sends the bottom model's output unchanged; whoever receives it can reconstruct much of the input."""
