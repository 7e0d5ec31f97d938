"""What may cross in a federated discovery, and in which form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.crypto.agreement import tensor as tensor
from veracausa.crypto.ring import P, Ring
from veracausa.discovery.engines.shares.plan import HELD_OUT_ROWS, Plan
from veracausa.discovery.privacy.countermeasures import SECRET
from veracausa.errors import WireError
from veracausa.wire.message import Kind, Message, TensorSpec

RESTART_BITS = 32
"""An exchange's number has as many: messages of a run before it was resumed have other numbers, and are refused."""
SEARCH_BITS = 29
"""Of these, an exchange's number within its search."""
BYTES_A_VALUE = 1024
"""No encryption needs more for a number: a Paillier ciphertext of its own has 768."""
CIPHERTEXT = 1 << 20

OFFLINE = ("toss", "toss shown", "key", "agreed", "columns", "pad secret", "triples")
"""Kinds that do not depend on what is learnt: they are sent ahead of the steps, or once. All others are online."""


def counter(restart_index: int, number: int) -> int:
    """What a message is numbered by; both ends count, and one with another number is refused."""
    return restart_index << RESTART_BITS | number


def first_exchange(search: int) -> int:
    """Where the numbers of a search begin, however many exchanges there were in those before it."""
    return search << SEARCH_BITS


def columns(plan: Plan) -> Kind:
    """A source's data, encrypted once under its own key; a second time where weights are wider than gradients."""
    most = plan.rows * max(plan.sizes) * plan.d * plan.numbers
    cipher = _cipher(most, chunks=2 * max(plan.sizes) + 2 * len(plan.batches))
    return Kind("columns", {"rows": cipher, "wide": _cipher(most, 2 * max(plan.sizes), optional=True)})


def triples(plan: Plan) -> Kind:
    """Masked products with the other's rows, a party's masks of norms under its own key, and their masked products."""
    width = plan.numbers * (plan.d if plan.shares == "all" else max(plan.sizes))
    graphs = plan.settings.candidates + 2 if plan.every_graph else 1
    rows = max(plan.rows, len(plan.held_out) * HELD_OUT_ROWS * graphs)
    blocks = plan.d**2 if plan.shares == "all" else max(plan.sizes) ** 2
    updates = len(plan.batches) + 1
    products = _cipher(updates * blocks * plan.numbers, 1, optional=True)
    return Kind("triples", {
        "forward": _cipher(rows * width, 1, optional=True),
        "backward": _cipher(plan.rows * max(plan.sizes) * width, len(plan.batches), optional=True),
        "factors": products,
        "products": products,
    })  # fmt: skip


def _cipher(values: int, chunks: int, optional: bool = False) -> TensorSpec:
    """Encrypted numbers, as many bytes as the plan could need at most; exact lengths are the encryption's business."""
    return TensorSpec(torch.uint8, (None,), BYTES_A_VALUE * values + CIPHERTEXT * chunks, optional)


def first_share(plan: Plan, one: str, other: str) -> Kind:
    """Shares of the weights that the source drew."""
    return Kind("first share", {"share": _flat(plan, *_weights(plan, one, other))}, secret_shared=True)


def masked(plan: Plan, one: str, other: str) -> Kind:
    """From target to source, each hidden by a mask that is used once: its share, its last gradients, and, where norms
    are wanted, its share at their scale."""
    a, b, h = plan.count(one), plan.count(other), plan.numbers
    n = len(plan.batches[0])
    return Kind("masked", {
        "weights": _flat(plan, *_weights(plan, one, other)),
        "gradients": _flat(plan, n * a * h, n * b * h),
        "norms": _flat(plan, _blocks(plan, a, b) * h),
    }, secret_shared=True)  # fmt: skip


def answer(plan: Plan, one: str, other: str) -> Kind:
    """From source to target: its part of the features, or its own share hidden by a mask that is used once."""
    a, b, h = plan.count(one), plan.count(other), plan.numbers
    rows = {len(batch) for batch in (*plan.batches, *plan.held_out)}
    sizes = {n * size * h for n in rows for size in (a, b)}
    numbers = {"features": _flat(plan, *sizes), "norms": _flat(plan, _blocks(plan, a, b) * h)}
    return Kind("answer", numbers, secret_shared=True)


def _weights(plan: Plan, one: str, other: str) -> set[int]:
    """How many numbers one party's share of the other's blocks has, in both directions."""
    a, b, h = plan.count(one), plan.count(other), plan.numbers
    return {a * b * h} if plan.shares == "two" else {size * (plan.d - size) * h for size in (a, b)}


def _blocks(plan: Plan, a: int, b: int) -> int:
    return a * b if plan.shares == "two" else int(plan.between.sum())


def _flat(plan: Plan, *sizes: int) -> TensorSpec:
    """Elements of the field in a row, for all searches side by side; of exactly that many where it is always the
    same."""
    most = plan.most_together * max(sizes)
    always = len(set(sizes)) == 1 and plan.most_together == 1
    return TensorSpec(torch.int64, (most if always else None,), most, optional=True)


def elements(message: Message, name: str, *shape: int) -> Ring:
    """A message's numbers in the shape that the plan says; anything else is refused."""
    return in_field(_numbers(message, name, shape), message.kind, name)


def all_elements(messages: Mapping[str, Message], name: str, shapes: Sequence[tuple[int, ...]], axis: int) -> Ring:
    """The numbers of several messages side by side, each in its shape; they are looked at together, which is sooner."""
    parts = [_numbers(message, name, shape) for message, shape in zip(messages.values(), shapes, strict=True)]
    return in_field(np.concatenate(parts, axis), next(iter(messages.values())).kind, name)


def in_field(numbers: Ring, kind: str, name: str) -> Ring:
    """The same numbers, refused where one is no element of the field."""
    if numbers.size and numbers.view(np.uint64).max() >= P:
        raise WireError(f"{kind}.{name}", "holds numbers outside the field")
    return numbers


def _numbers(message: Message, name: str, shape: tuple[int, ...]) -> Ring:
    if name not in message.tensors:
        raise WireError(f"{message.kind}.{name}", "is missing")
    numbers: Ring = message.tensors[name].numpy()
    if numbers.size != math.prod(shape):
        raise WireError(f"{message.kind}.{name}", f"holds {numbers.size} numbers, {math.prod(shape)} are expected")
    return numbers.reshape(shape)


PAD_SECRET = Kind("pad secret", {"secret": TensorSpec(torch.uint8, (SECRET,))})
"""Between two sources, at every start: what the pads on their answers to the others follow from."""


def norms(plan: Plan, party: str) -> Kind:
    """A party's shares of all squared strengths that touch its attributes, search by search, and the losses since the
    last time; in mode M1, of the weights themselves."""
    own, others, h = plan.count(party), len(plan.foreign(party)), plan.numbers
    last = (h,) if plan.validator == "M1" else ()
    into, out = ((others, own), (own, others)) if plan.shares == "two" else ((int(plan.between.sum()),), (0,))
    most = plan.most_together
    return Kind(
        "norms",
        {
            "into": TensorSpec(torch.int64, (None, *into, *last), most),
            "out": TensorSpec(torch.int64, (None, *out, *last), most),
            "own": TensorSpec(torch.float64, (None, own, own), most),
            "losses": TensorSpec(torch.float64, (None,), most),
        },
        secret_shared=True,
    )


def factors(plan: Plan, party: str) -> Kind:
    """From the validator: how every block that the party has a share of is scaled, search by search."""
    into, out = _concerned(plan, party)
    most = plan.most_together
    specs = {
        "into": TensorSpec(torch.float64, (None, *into), most),
        "out": TensorSpec(torch.float64, (None, *out), most),
    }
    return Kind("factors", specs)


def of_each(message: Message, searches: int) -> Mapping[str, NDArray[Any]]:
    """The arrays of a message that has one for each of so many searches; anything else is refused."""
    arrays = {name: part.numpy() for name, part in message.tensors.items()}
    for name, array in arrays.items():
        if len(array) != searches:
            raise WireError(f"{message.kind}.{name}", f"is of {len(array)} searches, {searches} are expected")
    return arrays


def candidates(plan: Plan, party: str) -> Kind:
    """From the validator: which edges to leave out, in turn, and compare the loss of the held-out rows.

    Among the party's own attributes only; of whole graphs, the edges of blocks that it has a share of.
    """
    most = plan.settings.candidates + 2
    if not plan.every_graph:
        own = plan.count(party)
        return Kind("candidates", {"own": TensorSpec(torch.bool, (None, own, own), most)})
    into, out = _concerned(plan, party)
    specs = {
        "into": TensorSpec(torch.bool, (None, *into), most),
        "out": TensorSpec(torch.bool, (None, *out), most),
    }
    return Kind("candidates", specs)


def _concerned(plan: Plan, party: str) -> tuple[tuple[int, int], tuple[int, int]]:
    at = plan.concerned(party)
    return (plan.d, at.stop - at.start), (at.stop - at.start, plan.d)


LOSSES = Kind("losses", {"losses": TensorSpec(torch.float64, (None,))}, {"empty": float})
"""A party's held-out loss of each candidate, summed over its attributes and rows, and that without any causes."""
