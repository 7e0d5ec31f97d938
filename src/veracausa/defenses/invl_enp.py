"""InvL-ENP: noise along the directions in which a row can be read back from its payload."""

from __future__ import annotations

from veracausa.defenses import defenses
from veracausa.defenses.invl import InvL, InvLOptions


class InvLENPOptions(InvLOptions):
    """Settings of InvL-ENP, reconstructed: the authors' code is not public."""


@defenses.register("invl_enp", InvLENPOptions)
class InvLENP(InvL):
    """Adds n J w, noise along the Jacobian's directions (reconstructed: the authors' code is not public).

    Every direction of the row that the payload carries is then read with an error of variance n². One Jacobian product
    draws it; the form `svd` finds the strongest directions first, as the paper is understood to do.
    """

    options: InvLENPOptions
