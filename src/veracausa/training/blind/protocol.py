"""What is sent in blind training beside the sums, kind by kind; `crypto.moments` declares those of the sums.

No kind has a place for a row's features. Of a training row nothing leaves a party but its part of the sums, and its
label where the job lets labels out. Of a predicted row, scores leave as shares: the active party opens their sum.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.config import Job
from veracausa.crypto.agreement import KEY as PUBLIC_KEY
from veracausa.crypto.agreement import TOSS, TOSS_SHOWN, toss_together
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.randomness import KEY as SEED_BYTES
from veracausa.crypto.randomness import Toss
from veracausa.crypto.ring import P, Ring
from veracausa.errors import WireError
from veracausa.events import Observer, ProgressCallback
from veracausa.training.split.protocol import READY
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message, TensorSpec

MOST_FEATURES = 1024
"""Of a party: as many products are summed up in one ciphertext."""
FINGERPRINT = 32
"""Bytes of a head's commitment, and of its name."""
MOST_CLASSES = 1 << 16
HEAD = 1
"""The number of the toss and the key of the head; those of the sums have 0."""

BLIND_HELLO = Kind("hello", {}, {"train": int, "validation": int, "test": int, "held": int})
"""Passive to active, at every start: how many rows it knows, and how many training rows it really holds."""
WIDTH = Kind("width", {}, {"features": int})
"""Everybody to everybody, when its features are there: how many columns its part of the sums has."""
MASK_SEED = Kind("mask_seed", {"seed": TensorSpec(torch.uint8, (SEED_BYTES,))})
"""Between two passive parties: what the masks follow from that they add to their shares, one with either sign."""
HEAD_KEPT = Kind("head_kept", {"name": TensorSpec(torch.uint8, (FINGERPRINT,))})
"""Passive to active, as a session begins: the hash of the encrypted head that it keeps and will answer with."""
ASK = Kind("ask", {}, {"split": str, "start": int, "rows": int})
"""Active to passive: rows to score, in order from a position; no rows: that was all."""


def labels_kind(rows: int, by_row: bool) -> Kind:
    """Active to passive, where the job lets labels out: a label a training row, and by which chances it was drawn.

    The chances are those of all rows alike, or each row's own (`by_row`). True labels have none.
    """
    shape = (rows, None, None) if by_row else (None, None)
    return Kind(
        "labels",
        {
            "told": TensorSpec(torch.int32, (rows,)),
            "transition": TensorSpec(torch.float64, shape, max_free=MOST_CLASSES, optional=True),
        },
        {"classes": int},
    )


def head_kind(size: int) -> Kind:
    """Active to passive, once, in training: this party's part of the head as ciphertexts, and a commitment to all."""
    specs = {"head": TensorSpec(torch.uint8, (size,)), "fingerprint": TensorSpec(torch.uint8, (FINGERPRINT,))}
    return Kind("head", specs)


def answer_kind(reply: int, scores: int, rows: int) -> Kind:
    """Passive to active: masked scores of the asked rows under the active party's key, and the masks as a share."""
    specs = {"reply": TensorSpec(torch.uint8, (reply,)), "share": TensorSpec(torch.int64, (scores, rows))}
    return Kind("answer", specs, secret_shared=True)


def declare_all(link: Link, job: Job) -> None:
    """Declare, before the first word, what a party that is ahead may say while this one still waits for another."""
    link.declare(WIDTH, TOSS, TOSS_SHOWN)
    for peer in link.peers:
        if job.parties.active in (peer, link.me):
            link.declare(READY, PUBLIC_KEY, peer=peer)
    declare_scoring(link, job)


def declare_scoring(link: Link, job: Job) -> None:
    """All that can be said where rows are scored after training, but the answers: no kind brings a head or a key."""
    for peer in link.peers:
        if job.parties.active in (peer, link.me):
            link.declare(BLIND_HELLO, HEAD_KEPT, ASK, peer=peer)
        else:
            link.declare(MASK_SEED, peer=peer)


def toss_for_head(link: Link) -> Toss:
    """A coin toss of all parties on this link, for the public halves of the head's ciphertexts."""
    return toss_together(link, link.peers, HEAD, 0)


def exchange_widths(link: Link, own: int) -> dict[str, int]:
    """How many columns everybody's part of the sums has, this party's own included."""
    link.broadcast(WIDTH, 0, features=own)
    widths = {link.me: own}
    for peer, message in link.gather(WIDTH, 0).items():
        width = message.meta["features"]
        if not isinstance(width, int) or not 0 < width <= MOST_FEATURES:
            raise WireError("width.features", f"{peer!r} announces {width}, 1 to {MOST_FEATURES} can be")
        widths[peer] = width
    return widths


def exchange_mask_seeds(link: Link, others: Mapping[str, int], me: int) -> dict[str, tuple[int, bytes]]:
    """With each other passive party a seed that only the two know, fresh in every session, and the sign of its masks.

    `others` and `me` are places in the job's list of passive parties. The first of two draws.
    """
    seeds: dict[str, tuple[int, bytes]] = {}
    for peer, place in others.items():
        if me < place:
            seeds[peer] = (1, secrets.token_bytes(SEED_BYTES))
            link.send(peer, MASK_SEED, 0, {"seed": as_tensor(seeds[peer][1])})
    for peer, place in others.items():
        if me > place:
            seeds[peer] = (-1, as_bytes(link.receive(peer, MASK_SEED, 0), "seed"))
    return seeds


def as_tensor(value: bytes | Bytes) -> Tensor:
    """Bytes as they cross."""
    return torch.from_numpy(np.frombuffer(bytes(value), dtype=np.uint8).copy())


def as_bytes(message: Message, name: str) -> bytes:
    found: bytes = message.tensors[name].cpu().numpy().tobytes()
    return found


def as_array(message: Message, name: str) -> NDArray[Any]:
    found: NDArray[Any] = message.tensors[name].cpu().numpy()
    return found


def elements_of(message: Message, name: str) -> Ring:
    """Numbers of the field; a peer's others are refused."""
    numbers: Ring = as_array(message, name)
    if (numbers.view(np.uint64) >= P).any():
        raise WireError(f"{message.kind}.{name}", "holds numbers outside the field")
    return numbers


class PhaseProgress:
    """Tells whoever watches how far a phase is, about twice a second."""

    def __init__(self, notify: Observer, party: str, what: str, beat: ProgressCallback = lambda share: None) -> None:
        """`beat` hears every share as well: it keeps the party's links alive."""
        self._notify, self._party, self._what, self._beat = notify, party, what, beat
        self._spoke = -math.inf

    def __call__(self, share: float) -> None:
        self._beat(share)
        now = time.monotonic()
        if share >= 1 or now - self._spoke >= 0.5:
            self._spoke = now
            self._notify({"event": "phase", "party": self._party, "what": self._what, "share": float(share)})


class ReadyRounds:
    """The active party's side of `Heartbeat` while it works itself: called with a share, it answers now and then.

    A passive party waits for the answer to each of its words, so a long fit at the active party must not leave it
    without one.
    """

    def __init__(self, link: Link, notify: Observer) -> None:
        self._link, self._notify, self._number = link, notify, 0
        self._every = min(1.0, link.timeout / 4)
        self._spoke = time.monotonic()

    def __call__(self, share: float) -> None:
        if time.monotonic() - self._spoke >= self._every:
            self._round(share, done=False)

    def done(self) -> None:
        """Wait until every passive party is ready too."""
        while not self._round(1.0, done=True):
            pass

    def _round(self, share: float, done: bool) -> bool:
        heard = {peer: message.meta for peer, message in self._link.gather(READY, self._number).items()}
        for peer, meta in heard.items():
            self._notify({"event": "phase", "party": peer, "what": "features", "share": float(meta["share"])})
        everybody = done and all(meta["done"] for meta in heard.values())
        least = min([share, *(float(meta["share"]) for meta in heard.values())])
        self._link.broadcast(READY, self._number, share=min(1.0, max(0.0, least)), done=int(everybody))
        self._number += 1
        self._spoke = time.monotonic()
        return everybody
