"""What is sent in split training, kind by kind, and how parties get ready together.

Labels and raw features have no kind: they cannot be sent. A defense may prepare for many minutes, and nobody must take
that for silence: see `Heartbeat`.
"""

from __future__ import annotations

import time
from itertools import count

import torch

from veracausa.events import Observer
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, TensorSpec

MAX_ROWS = 1 << 26

HELLO = Kind(
    "hello",
    {
        "shape": TensorSpec(torch.int64, (None,), max_free=4),
        "expected": TensorSpec(torch.int64, (None,), max_free=4, optional=True),
        "present": TensorSpec(torch.bool, (None,), MAX_ROWS),
    },
    {"train": int, "validation": int, "test": int},
)
"""Passive to active, once: the shape of its payload, how many rows it knows, and which training ids it really holds.

`expected` is the shape that the model's own bottom gives, said only where a defense with layers sends another.
The last is membership: with partial overlap the active party learns who is missing at whom.
"""

READY = Kind("ready", {}, {"share": float, "done": int})
"""Passive to active, after HELLO, numbered from 0: how much of what its defense prepares is done, and whether all is.

The active party answers each round of them with the least share and whether everybody is done; then requests begin.
"""

REQUEST = Kind(
    "request",
    {"ids": TensorSpec(torch.int64, (None,), MAX_ROWS)},
    {"purpose": str, "split": str, "at": int, "of": int},
)
"""Active to passive: positions to answer for.

Purposes: train (step `at` `of` so many), infer, epoch (one has ended; nothing is sent back), save (a checkpoint, now),
done.
"""


def representation(shape: tuple[int, ...], dtype: torch.dtype) -> Kind:
    """Passive to active: the payload of the requested rows."""
    return Kind("representation", {"payload": TensorSpec(dtype, (None, *shape), MAX_ROWS)})


def gradient(shape: tuple[int, ...], dtype: torch.dtype) -> Kind:
    """Active to passive: the loss's gradient with respect to the payload, and over how many rows the loss was taken.

    No rows, no update: a step on a gradient of zeros would still move weights by momentum and decay.
    """
    return Kind("gradient", {"gradient": TensorSpec(dtype, (None, *shape), MAX_ROWS)}, {"rows": int})


class Heartbeat:
    """A passive party's side: called with a share of its work, it says so to the active party now and then.

    Every word is answered, and the answer comes when all parties have spoken. So those that are done hear from the
    active party while others still prepare, and where parties take turns (on a GPU) each gives its turn away.
    """

    def __init__(self, link: Link, active: str) -> None:
        self.link, self.active = link, active
        # Parties that take turns speak one after the other, and all must have spoken within the time-out.
        self.every = min(1.0, link.timeout / 4 / len(link.peers))
        self._number = 0
        self._spoke = time.monotonic()

    def __call__(self, share: float) -> None:
        if time.monotonic() - self._spoke >= self.every:
            self._say(share, done=False)

    def done(self) -> None:
        """Say that nothing is left to prepare, until that is so for everyone."""
        while not self._say(1.0, done=True):
            pass

    def _say(self, share: float, done: bool) -> bool:
        self.link.send(self.active, READY, self._number, share=min(1.0, max(0.0, float(share))), done=int(done))
        answer = self.link.receive(self.active, READY, self._number)
        self._number += 1
        self._spoke = time.monotonic()
        return bool(answer.meta["done"])


def await_ready(link: Link, notify: Observer) -> None:
    """The active party's side: return when every passive party is ready; `notify` hears how far each one is."""
    busy: set[str] = set()
    for number in count():
        heard = {peer: message.meta for peer, message in link.gather(READY, number).items()}
        for peer, meta in heard.items():
            if not meta["done"]:
                busy.add(peer)
            elif peer not in busy:
                continue
            else:
                busy.remove(peer)
            notify({"event": "preparing", "party": peer, "share": float(meta["share"])})
        done = all(meta["done"] for meta in heard.values())
        link.broadcast(READY, number, share=min(float(meta["share"]) for meta in heard.values()), done=int(done))
        if done:
            return
