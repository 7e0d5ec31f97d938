"""No surrogate: each row stands for itself."""

from __future__ import annotations

from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import Surrogate, SurrogateOptions


@surrogates.register("none", SurrogateOptions)
class IdentitySurrogate(Surrogate):
    """Gives the row itself: what is left of the defense then is decorrelation alone."""
