"""Who holds shares of which blocks, and so what each pair of parties must be able to multiply."""

from __future__ import annotations

import numpy as np

from veracausa.crypto.triples import Shape
from veracausa.discovery.federated.plan import Plan
from veracausa.discovery.federated.workshop import Pairing


def pairing(plan: Plan, name: str) -> Pairing:
    sizes = tuple(len(rows) for rows in (*plan.batches, *plan.held_out))
    count = {party: plan.sizes[at] for at, party in enumerate(plan.parties)}
    h, own, peers = plan.numbers, count[name], plan.peers(name)
    if plan.shares == "all":
        blocks = plan.d**2 - sum(size**2 for size in plan.sizes)
        none, every = np.arange(0), np.arange(blocks)
        before = {peer: plan.parties.index(name) < plan.parties.index(peer) for peer in peers}
        return Pairing(
            {peer: Shape(sizes, count[peer], (plan.d - count[peer]) * h, own * h) for peer in peers},
            {peer: Shape(sizes, own, (plan.d - own) * h, count[peer] * h) for peer in peers},
            blocks,
            h,
            {peer: every if before[peer] else none for peer in peers},
            {peer: none if before[peer] else every for peer in peers},
        )
    between = own * (plan.d - own)
    into = np.arange(between).reshape(-1, own)
    out = between + np.arange(between).reshape(own, -1)
    at = {peer: plan.among_foreign(name, peer) for peer in peers}
    return Pairing(
        {peer: Shape(sizes, count[peer], own * h, own * h) for peer in peers},
        {peer: Shape(sizes, own, count[peer] * h, count[peer] * h) for peer in peers},
        2 * between,
        h,
        {peer: into[at[peer]].ravel() for peer in peers},
        {peer: out[:, at[peer]].ravel() for peer in peers},
    )
