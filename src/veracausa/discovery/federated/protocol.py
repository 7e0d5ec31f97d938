"""What may cross in a federated discovery, and in which form."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.discovery.federated.plan import Plan
from veracausa.wire.message import Kind, TensorSpec

_CIPHER = TensorSpec(torch.uint8, (None,), max_free=1 << 33)
_MAYBE_CIPHER = TensorSpec(torch.uint8, (None,), max_free=1 << 33, optional=True)

KEY = Kind("key", {"key": _CIPHER})
COLUMNS = Kind("columns", {"rows": _CIPHER})
"""A source's data, encrypted once under its own key."""
FIRST_SHARE = Kind("first share", {"share": TensorSpec(torch.int64, (None, None, None))}, secret_shared=True)
"""A target's share of the weights that the source drew."""
MASKED = Kind("masked", {"forward": _MAYBE_CIPHER, "backward": _MAYBE_CIPHER, "share": _MAYBE_CIPHER}, {})
"""From target to source: a masked product for the next batch, the masked increment of the last one, and, where norms
are wanted, its own share under its own key."""
ANSWER = Kind(
    "answer",
    {"features": TensorSpec(torch.int64, (None, None), optional=True), "norm": _MAYBE_CIPHER},
    secret_shared=True,
)
"""From source to target: its part of the features, or the masked inner products of both shares."""


def norms(plan: Plan, party: str) -> Kind:
    """A party's shares of all squared strengths that touch its attributes; in mode M1, of the weights themselves."""
    own, others, h = len(range(*plan.own(party).indices(plan.d))), len(plan.foreign(party)), plan.settings.width
    last = (h,) if plan.validator == "M1" else ()
    return Kind(
        "norms",
        {
            "into": TensorSpec(torch.int64, (others, own, *last)),
            "out": TensorSpec(torch.int64, (own, others, *last)),
            "own": TensorSpec(torch.float64, (own, own)),
        },
        {"loss": float},
        secret_shared=True,
    )


def factors(plan: Plan, party: str) -> Kind:
    """From the validator: how every block that touches the party's attributes is scaled."""
    own = len(range(*plan.own(party).indices(plan.d)))
    return Kind(
        "factors",
        {"into": TensorSpec(torch.float64, (plan.d, own)), "out": TensorSpec(torch.float64, (own, plan.d))},
    )


def candidates(plan: Plan, party: str) -> Kind:
    """From the validator: graphs to compare, of which a party sees the edges that touch its attributes."""
    own = len(range(*plan.own(party).indices(plan.d)))
    return Kind(
        "candidates",
        {"into": TensorSpec(torch.bool, (None, plan.d, own)), "out": TensorSpec(torch.bool, (None, own, plan.d))},
    )


LOSSES = Kind("losses", {"losses": TensorSpec(torch.float64, (None,))}, {"empty": float})
"""A party's held-out loss of each candidate, summed over its attributes and rows, and that without any causes."""


def tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
