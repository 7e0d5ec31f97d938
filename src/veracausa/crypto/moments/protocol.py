"""What may cross while sums are made, kind by kind. None has a place for a row's features, apart from the twin's.

The plaintext twin (`encryption = "none"`) sends its rows as plain integers in `moment_query`: NOT PROTECTED.
"""

from __future__ import annotations

import torch

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.moments.packing import INTEGER, PACKET, QUERY_BYTES, REPLY_BYTES, PairPacking
from veracausa.crypto.moments.plan import MomentPlan
from veracausa.crypto.ring import P, Ring
from veracausa.errors import WireError
from veracausa.wire.message import Kind, Message, TensorSpec

TAG = 16
"""Bytes that name the start in which a pair's shares were made."""
HEAD = 256
"""Bytes of an envelope and a seed, at most."""

MOMENT_HELLO = Kind("moment_hello", {"tag": TensorSpec(torch.uint8, (TAG,))}, {"done": int})
"""Which shares of the pair this party has kept, by the start they were made in, and whether it has all sums already."""
MOMENT_TURN = Kind("moment_turn", {}, {"ready": int})
"""To a party that waits: still busy with others (0), or ready for it (1)."""
MOMENT_TAKEN = Kind("moment_taken", {})
"""The answerer has taken a query, and another one may come."""


def moment_query(packing: PairPacking) -> Kind:
    """Owner to answerer: some rows of all its columns under its own key."""
    plain = packing.packet_rows * packing.columns * INTEGER
    most = max(HEAD + packing.ciphertexts(packing.packet_rows) * QUERY_BYTES, plain)
    return Kind("moment_query", {"rows": TensorSpec(torch.uint8, (None,), most)})


def moment_answer(packing: PairPacking) -> Kind:
    """Answerer to owner: masked sums, a chunk of the answerer's columns at a time."""
    most = max(HEAD + min(PACKET, packing.replies) * REPLY_BYTES, packing.columns * packing.factors * 8)
    return Kind("moment_answer", {"sums": TensorSpec(torch.uint8, (None,), most)}, secret_shared=True)


def moment_share(plan: MomentPlan, party: str) -> Kind:
    """To the receiver, once: a party's shares of the sums with each peer, and its own sums, all with its noise.

    `rho` is what the release spends of the rows' budget (−1: it is exact), `release` names it, so that one that is
    sent again counts once, and `rows_digest` names the rows.
    """
    width = plan.widths[party]
    shares = sum(plan.widths[one] * plan.widths[other] for one, other in plan.pairs if party in (one, other))
    return Kind(
        "moment_share",
        {
            "own": TensorSpec(torch.int64, (width * (width + 1) // 2,)),
            "shares": TensorSpec(torch.int64, (shares,)),
        },
        {"rho": float, "release": str, "rows_digest": str},
        secret_shared=True,
    )


def elements(message: Message, name: str) -> Ring:
    """A message's numbers; any that are not of the field are refused."""
    numbers: Ring = message.tensors[name].numpy()
    if numbers.size and (numbers.min() < 0 or numbers.max() >= P):
        raise WireError(f"{message.kind}.{name}", "holds numbers outside the field")
    return numbers


def payload(message: Message, name: str) -> Bytes:
    data: Bytes = message.tensors[name].numpy()
    return data
