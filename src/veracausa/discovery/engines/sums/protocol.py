"""What crosses in a discovery from sums beside the sums; `crypto.moments` declares those.

No kind has a place for a row. A party says how many features each of its columns has, and hears the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.arrays import Array
from veracausa.crypto.moments import MomentPlan
from veracausa.data.causal import topological_order
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.expansion import POWERS, PRODUCTS, ColumnKind, NodeLayout, PairLayout
from veracausa.errors import WireError
from veracausa.wire.message import Kind, Message, TensorSpec

FINGERPRINT = 32
KINDS: tuple[ColumnKind, ...] = ("number", "binary", "nominal")
MATRICES = (
    "adjacency",
    "undirected",
    "strengths",
    "slopes",
    "bends",
    "margins",
    "joined",
    "confidence",
    "skeleton_confidence",
)
"""What is told of every pair of columns."""
MODELS = ("linear", "lingam", "additive")
MOST_FEATURES = 4096

SUMS_HELLO = Kind("sums_hello", {"fingerprint": TensorSpec(torch.uint8, (FINGERPRINT,))}, {"width": int})
"""Everybody to everybody: the plan's fingerprint, and how many features this party sums up; 0: the validator."""
SUMS_BEAT = Kind("sums_beat", {}, {"done": int})
"""Who searches, to who waits: still busy (0), or the result follows (1)."""


def layout_kind(plan: SumsPlan) -> Kind:
    """A party to whoever opens sums: of each column its kind, functions, powers and whether it has a mask; and of which
    two columns there are so many products."""
    most = max(len(own) for own in plan.columns.values())
    specs = {
        "nodes": TensorSpec(torch.int64, (None, 4), max_free=most),
        "pairs": TensorSpec(torch.int64, (None, 3), max_free=most * (most - 1) // 2),
    }
    return Kind("sums_layout", specs)


def opened_kind(moments: MomentPlan) -> Kind:
    """Where all parties see the sums: all of them, from the party that added up the shares.

    It is that party's own release too, so its ledger has what it spends.
    """
    entries = moments.width * (moments.width + 1) // 2
    return Kind(
        "sums_opened",
        {"sums": TensorSpec(torch.int64, (entries,))},
        {"rho": float, "release": str, "rows_digest": str},
    )


def found_kind(plan: SumsPlan, party: str) -> Kind:
    """From the validator. Under `reveal = "own"` there is no place in it for edges between other parties' columns.

    No message holds what is not finite, so each part comes with where it has values.
    """
    d, own, count = plan.d, len(plan.columns[party]), len(MATRICES)
    shapes: dict[str, tuple[int, ...]] = {"whole": (count, d, d), "explained": (d,)}
    if plan.settings.reveal == "own":
        shapes = {"into": (count, d, own), "out": (count, own, d), "explained": (own,)}
    specs = {name: TensorSpec(torch.float64, shape) for name, shape in shapes.items()}
    there = {f"{name}_there": TensorSpec(torch.bool, shape) for name, shape in shapes.items()}
    return Kind("sums_found", specs | there, {"model": str})


def as_tensor(value: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(value, dtype=np.uint8).copy())


def received_width(plan: SumsPlan, peer: str, message: Message) -> int:
    """How many features a peer sums up; refused where the plan allows no such number."""
    width = message.meta["width"]
    most = 0 if peer not in plan.columns else min(MOST_FEATURES, plan.most_features(peer))
    if not isinstance(width, int) or not (0 < width <= most or width == most == 0):
        raise WireError("sums_hello.width", f"{peer!r} announces {width} features, {most} at most were agreed")
    return width


@dataclass(frozen=True)
class PartyLayout:
    """Which of a party's features are what."""

    nodes: tuple[NodeLayout | None, ...]
    """By its columns; None: it takes no part."""
    pairs: tuple[PairLayout, ...] = ()


def sent_layout(layout: PartyLayout) -> dict[str, Tensor]:
    nodes = [
        [0, 0, 0, 0] if node is None else [KINDS.index(node.kind), node.functions, node.powers, node.mask]
        for node in layout.nodes
    ]
    pairs = [[pair.first, pair.second, pair.width] for pair in layout.pairs]
    made = {"nodes": (nodes, 4), "pairs": (pairs, 3)}
    return {name: torch.tensor(rows, dtype=torch.int64).reshape(-1, width) for name, (rows, width) in made.items()}


def received_layout(plan: SumsPlan, party: str, message: Message, width: int) -> PartyLayout:
    """A peer's columns; refused where they do not fit the plan or the width that it announced."""
    nodes = _received_nodes(plan, party, message.tensors["nodes"].tolist(), width)
    pairs = _received_pairs(party, message.tensors["pairs"].tolist(), nodes)
    features = sum(node.width for node in nodes if node is not None) + sum(pair.width for pair in pairs)
    if features != width:
        raise WireError("sums_layout.nodes", f"{party!r} describes other features than the {width} that it announced")
    return PartyLayout(nodes, pairs)


def _received_nodes(
    plan: SumsPlan, party: str, rows: Sequence[Sequence[int]], width: int
) -> tuple[NodeLayout | None, ...]:
    field, names = "sums_layout.nodes", plan.columns[party]
    if len(rows) != len(names):
        raise WireError(field, f"{party!r} describes {len(rows)} columns, it has {len(names)}")
    found: list[NodeLayout | None] = []
    for name, (kind, functions, powers, mask) in zip(names, rows, strict=True):
        if not (0 <= kind < len(KINDS) and 0 <= functions <= width and powers in (0, POWERS) and mask in (0, 1)):
            raise WireError(field, f"{party!r} describes a column as no column can be")
        if not functions and (powers or mask):
            raise WireError(field, f"{party!r} sums up squares of a column that takes no part")
        if powers and KINDS[kind] != "number":
            raise WireError(field, f"{party!r} sums up squares of categories")
        found.append(NodeLayout(name, KINDS[kind], functions, powers, mask) if functions else None)
    return tuple(found)


def _received_pairs(
    party: str, rows: Sequence[Sequence[int]], nodes: Sequence[NodeLayout | None]
) -> tuple[PairLayout, ...]:
    field, seen = "sums_layout.pairs", set()
    for first, second, width in rows:
        if not (0 <= first < second < len(nodes) and 1 <= width <= len(PRODUCTS)) or (first, second) in seen:
            raise WireError(field, f"{party!r} describes products as none can be")
        if any(node is None or node.kind == "nominal" for node in (nodes[first], nodes[second])):
            raise WireError(field, f"{party!r} multiplies columns that are no numbers or take no part")
        seen.add((first, second))
    return tuple(PairLayout(*row) for row in rows)


def sent_found(plan: SumsPlan, party: str, matrices: Mapping[str, Array], explained: Array) -> dict[str, Tensor]:
    """What a party is told: all, or what touches its own columns."""
    stack = np.stack([np.asarray(matrices[name], dtype=np.float64) for name in MATRICES])
    own = plan.own(party)
    parts = {"whole": stack, "explained": explained}
    if plan.settings.reveal == "own":
        parts = {"into": stack[:, :, own], "out": stack[:, own], "explained": explained[own]}
    sent: dict[str, Tensor] = {}
    for name, part in parts.items():
        there = np.isfinite(part)
        sent[name] = torch.from_numpy(np.where(there, part, 0.0))
        sent[f"{name}_there"] = torch.from_numpy(there)
    return sent


def received_found(plan: SumsPlan, party: str, message: Message) -> dict[str, Any]:
    """What a party was told, as (d, d) arrays with nan where it was told nothing; refused where it is no graph."""
    tensors = {
        name: np.where(message.tensors[f"{name}_there"].numpy(), part.numpy(), np.nan)
        for name, part in message.tensors.items()
        if not name.endswith("_there")
    }
    own = plan.own(party)
    stack, explained = np.full((len(MATRICES), plan.d, plan.d), np.nan), np.full(plan.d, np.nan)
    if plan.settings.reveal == "own":
        stack[:, :, own], stack[:, own] = tensors["into"], tensors["out"]
        explained[own] = tensors["explained"]
        told = np.zeros((plan.d, plan.d), dtype=bool)
        told[:, own] = told[own] = True
    else:
        stack[:], explained[:] = tensors["whole"], tensors["explained"]
        told = np.ones((plan.d, plan.d), dtype=bool)
    found: dict[str, Any] = dict(zip(MATRICES, stack, strict=True))
    for name in ("adjacency", "undirected"):
        if not np.isin(found[name][told], (0.0, 1.0)).all():
            raise WireError(f"sums_found.{name}", "is no graph")
    edges = np.nan_to_num(found["adjacency"]) > 0
    if topological_order(edges) is None:
        raise WireError("sums_found.adjacency", "has a cycle, and a causal graph has none")
    model = message.meta["model"]
    if model not in MODELS:
        raise WireError("sums_found.model", "names a model that does not exist")
    return found | {"explained": explained, "model": model}


def sent_sums(integers: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(integers[np.triu_indices(len(integers))].copy())


def received_sums(moments: MomentPlan, message: Message) -> NDArray[np.int64]:
    """All sums; refused where they can not be sums of so many rows."""
    entries = message.tensors["sums"].numpy()
    whole = np.zeros((moments.width, moments.width), dtype=np.int64)
    whole[np.triu_indices(moments.width)] = entries
    whole += np.triu(whole, 1).T
    most = moments.rows * moments.most**2 + moments.noise_room
    if entries.size and (int(entries.max()) > most or int(entries.min()) < -most):
        raise WireError("sums_opened.sums", "holds numbers that are no sums of so many rows")
    return whole
