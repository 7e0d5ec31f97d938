"""Mutated and lying messages of a discovery from sums: each is refused with a `WireError`, or is in range.

`python tests/fuzz_sums.py --messages 100000` is a long run. Those of the sums themselves are in `fuzz_ciphertexts`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from fuzz_blind import ME, OTHER, BlindTarget, MutatedLink, fuzz_targets, message
from veracausa.data.causal import topological_order
from veracausa.discovery.engines.sums import protocol
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.protocol import MATRICES, PartyLayout
from veracausa.discovery.methods.moments.expansion import NodeLayout, PairLayout
from veracausa.discovery.methods.moments.settings import SumsSettings

COLUMNS = {ME: ("a", "b"), OTHER: ("c", "d", "e")}
LAYOUT = PartyLayout((NodeLayout("c", "number", 3, 2, 1), None, NodeLayout("e", "binary", 1)), (PairLayout(0, 2, 2),))
WIDTH = 9


def fuzz_plan(**settings: object) -> SumsPlan:
    return SumsPlan(SumsSettings(encryption="none", **settings), COLUMNS, 800, 1)  # type: ignore[arg-type]


def sums_targets() -> list[BlindTarget]:
    return [hello_target(), layout_target(), opened_target(), found_target("all"), found_target("own")]


def hello_target() -> BlindTarget:
    plan, kind = fuzz_plan(), protocol.SUMS_HELLO

    def read(data: bytes) -> bool:
        found = MutatedLink(data, kind).receive(OTHER, kind, 0)
        return 0 < protocol.received_width(plan, OTHER, found) <= plan.most_features(OTHER)

    parts = {"fingerprint": protocol.as_tensor(bytes(32))}
    return BlindTarget(kind, message(kind, parts, width=WIDTH), read)


def layout_target() -> BlindTarget:
    plan = fuzz_plan()
    kind = protocol.layout_kind(plan)

    def read(data: bytes) -> bool:
        found = MutatedLink(data, kind).receive(OTHER, kind, 0)
        layout = protocol.received_layout(plan, OTHER, found, WIDTH)
        nodes = [node for node in layout.nodes if node is not None]
        whole = sum(node.width for node in nodes) + sum(pair.width for pair in layout.pairs)
        return whole == WIDTH and len(layout.nodes) == 3 and all(node.functions > 0 for node in nodes)

    return BlindTarget(kind, message(kind, protocol.sent_layout(LAYOUT)), read)


def opened_target() -> BlindTarget:
    plan = fuzz_plan(receiver="all")
    moments = plan.moments({ME: 4, OTHER: 3})
    kind = protocol.opened_kind(moments)
    most = moments.rows * moments.most**2

    def read(data: bytes) -> bool:
        found = protocol.received_sums(moments, MutatedLink(data, kind).receive(OTHER, kind, 0))
        return found.shape == (7, 7) and np.array_equal(found, found.T) and bool((np.abs(found) <= most).all())

    parts = {"sums": protocol.sent_sums(np.eye(7, dtype=np.int64))}
    return BlindTarget(kind, message(kind, parts, rho=-1.0, release="ab", rows_digest=""), read)


def found_target(reveal: str) -> BlindTarget:
    """Told by the validator, which is `OTHER` here, to `ME`."""
    plan = fuzz_plan(reveal=reveal)
    kind = protocol.found_kind(plan, ME)
    rng = np.random.default_rng(0)
    matrices = {name: rng.random((5, 5)) for name in MATRICES}
    matrices["adjacency"] = np.triu(np.ones((5, 5)), 1)
    matrices["undirected"] = np.zeros((5, 5))
    matrices["confidence"] = np.full((5, 5), np.nan)

    def read(data: bytes) -> bool:
        found = protocol.received_found(plan, ME, MutatedLink(data, kind).receive(OTHER, kind, 0))
        edges = np.nan_to_num(found["adjacency"])
        told = ~np.isnan(found["adjacency"])
        own = bool(told.all()) if reveal == "all" else not told[2:, 2:].any()
        return own and set(np.unique(edges)) <= {0.0, 1.0} and topological_order(edges > 0) is not None

    parts = protocol.sent_found(plan, ME, matrices, rng.random(5))
    return BlindTarget(kind, message(kind, parts, model="additive"), read)


def fuzz_sums(messages: int, seed: int, seconds: float = float("inf")) -> Counter[str]:
    return fuzz_targets(sums_targets(), messages, seed, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    start = time.perf_counter()
    found = fuzz_sums(asked.messages, asked.seed)
    for what, count in sorted(found.items()):
        print(f"{count:8d}  {what}")
    print(f"no crash, no hang, nothing but WireError in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
