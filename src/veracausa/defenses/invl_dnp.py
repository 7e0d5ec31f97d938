"""InvL-DNP: noise in every value of a payload, as strong as that value depends on the row."""

from __future__ import annotations

from typing import Literal

from veracausa.defenses import defenses
from veracausa.defenses.invl import InvL, InvLOptions


class InvLDNPOptions(InvLOptions):
    """Settings of InvL-DNP, reconstructed: the authors' code is not public."""

    shape: Literal["spectral", "diag", "isotropic"] = "diag"
    """The noise's covariance: the diagonal of n² J Jᵀ, all of it, or a multiple of the identity of the same total."""


@defenses.register("invl_dnp", InvLDNPOptions)
class InvLDNP(InvL):
    """Adds uncorrelated noise of deviation n ‖∂r_j/∂x‖ (reconstructed: the authors' code is not public).

    The diagonal of ENP's covariance, so of the same total power, and as cheap by one product; independent in every
    value, it needs the norms of the Jacobian's rows.
    """

    options: InvLDNPOptions
