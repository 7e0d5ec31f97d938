"""Scoring rows together: the active party's side and a passive party's side of one session.

A session begins with a coin toss, a new key and the encrypted head. Passive parties agree on masks over links of their
own. Then the active party asks for rows in order, and opens the sum of the answers. It ends when it asks for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.config import Job
from veracausa.crypto import ring
from veracausa.crypto.agreement import KEY as PUBLIC_KEY
from veracausa.crypto.backends import make_encryption
from veracausa.crypto.randomness import SecureDraws
from veracausa.data.vertical import Part, RowBlock, Split
from veracausa.errors import InputError, WireError
from veracausa.training.blind.answers import (
    AnswerShape,
    HeldHead,
    OwnedHead,
    cancelling_mask,
    dither,
    encoded_weights,
    fingerprint_of,
    opened_scores,
    request_rows,
)
from veracausa.training.blind.book import AnswerBook, row_names
from veracausa.training.blind.head import BlindHead
from veracausa.training.blind.protocol import (
    ASK,
    SESSION,
    answer_kind,
    as_array,
    as_bytes,
    as_tensor,
    elements_of,
    exchange_mask_seeds,
    head_kind,
    toss_for_session,
)
from veracausa.training.blind.rows import LIMIT, OwnColumns, row_contents
from veracausa.wire.link import Link
from veracausa.wire.message import Kind

SCORED: tuple[Split, ...] = ("validation", "test")
"""The splits whose rows may be scored; training rows never are."""


def head_fingerprint(head: BlindHead, active: str, nonce: bytes) -> bytes:
    """The commitment to the weights that passive parties will hold encrypted."""
    sent = {peer: encoded_weights(weights, LIMIT) for peer, weights in head.weights.items() if peer != active}
    return fingerprint_of(sent, nonce)


class ScoreReader:
    """The active party's side: it sends the encrypted head, asks, and opens sums."""

    def __init__(
        self, link: Link, job: Job, head: BlindHead, columns: OwnColumns | None, rows: int, fingerprint: bytes
    ) -> None:
        """`rows`: of the largest split to be scored."""
        self.link, self.head, self.columns = link, head, columns
        self.number = 0
        self.width = request_rows(head.scores_width, rows)
        """Rows of one request."""
        self.heads: dict[str, OwnedHead] = {}
        self.kinds: dict[str, Kind] = {}
        shapes, sent = {}, {}
        for peer in job.parties.passive:
            shapes[peer] = AnswerShape(len(head.weights[peer]), head.scores_width, self.width)
            sent[peer], self.kinds[peer] = session_kinds(job, shapes[peer])
            link.declare(sent[peer], self.kinds[peer], peer=peer)
        encryption = make_encryption(job.blind.encryption, toss_for_session(link), link.me)
        for peer, shape in shapes.items():
            link.send(peer, PUBLIC_KEY, SESSION, {"key": as_tensor(encryption.public_key())})
            self.heads[peer] = OwnedHead(encryption, peer, encoded_weights(head.weights[peer], LIMIT), shape)
            encrypted = {"head": as_tensor(self.heads[peer].encrypted), "fingerprint": as_tensor(fingerprint)}
            link.send(peer, sent[peer], 0, encrypted)

    def outputs(self, split: Split, part: Part) -> Iterator[torch.Tensor]:
        """The head's outputs for all rows of a split, some rows at a time."""
        for block in part.blocks(self.width):
            self.number += 1
            for peer in self.heads:
                self.link.send(peer, ASK, self.number, split=split, start=block.start, rows=len(block))
            shares = []
            for peer, owned in self.heads.items():
                message = self.link.receive(peer, self.kinds[peer], self.number)
                shares += [owned.open(as_array(message, "reply")), elements_of(message, "share")]
            scores = opened_scores(shares, len(block))
            yield self.head.outputs(scores + self._own(block))

    def _own(self, block: RowBlock) -> Array:
        if self.columns is None:
            return np.zeros((len(block), self.head.scores_width))
        return self.head.part(self.link.me, self.columns.of(_held(block, self.link.me)))

    def close(self) -> None:
        """Let the passive parties go."""
        self.number += 1
        for peer in self.heads:
            self.link.send(peer, ASK, self.number, split="", start=0, rows=0)


class ScoreHolder:
    """A passive party's side: it holds its encrypted part of the head, and answers for rows in turn."""

    def __init__(
        self,
        link: Link,
        job: Job,
        columns: OwnColumns,
        scores: int,
        rows: int,
        key: bytes,
        book: AnswerBook,
    ) -> None:
        self.link, self.columns, self.key, self.book, self.step = link, columns, key, book, job.blind.step
        self.active = job.parties.active
        self.shape = AnswerShape(columns.width, scores, request_rows(scores, rows))
        sent, self.kind = session_kinds(job, self.shape)
        link.declare(sent, self.kind, peer=self.active)
        encryption = make_encryption(job.blind.encryption, toss_for_session(link), link.me)
        encryption.meet(self.active, as_array(link.receive(self.active, PUBLIC_KEY, SESSION), "key"))
        message = link.receive(self.active, sent, 0)
        self.fingerprint = as_bytes(message, "fingerprint")
        # From the system also in a simulation: what is opened does not depend on them, and none is used twice.
        self.head = HeldHead(encryption, self.active, as_array(message, "head"), self.shape, SecureDraws())
        places = {name: place for place, name in enumerate(job.parties.passive)}
        others = {name: place for name, place in places.items() if name != link.me}
        self.seeds = exchange_mask_seeds(link, others, places[link.me])

    def serve(self, parts: Mapping[str, Part]) -> None:
        """Answer until the active party asks for no more."""
        number, at = 0, ("", 0)
        coming: Iterator[RowBlock] = iter(())
        while True:
            number += 1
            asked = self.link.receive(self.active, ASK, number).meta
            split, start, rows = str(asked["split"]), int(asked["start"]), int(asked["rows"])
            if not rows:
                return
            if split not in parts:
                raise WireError("ask.split", f"{self.active!r} asks for rows of a split that is not scored")
            expected = min(self.shape.rows, len(parts[split]) - start)
            if start < 0 or rows < 1 or rows != expected:
                raise WireError("ask.rows", f"{self.active!r} asks for {rows} rows from {start} of {len(parts[split])}")
            if at != (split, start):
                coming = parts[split].blocks(self.shape.rows, start)
            block = next(coming)
            at = (split, start + rows)
            self._answer(number, block)

    def _answer(self, number: int, block: RowBlock) -> None:
        features = _held(block, self.link.me)
        named, drawn = row_names(block.ids, row_contents(features))
        self.book.enter(named, self.fingerprint, self.link.me)
        shape = self.shape
        added = cancelling_mask(self.seeds, number, shape.scores, shape.rows)
        added[:, : len(block)] = ring.add(
            added[:, : len(block)], dither(self.key, self.fingerprint, drawn, shape.scores, self.step)
        )
        reply, share = self.head.answer(self.columns.of(features), added)
        self.link.send(self.active, self.kind, number, {"reply": as_tensor(reply), "share": torch.from_numpy(share)})


def session_kinds(job: Job, shape: AnswerShape) -> tuple[Kind, Kind]:
    """What crosses between the active party and one passive party: its part of the head, and answers."""
    encryption = job.blind.encryption
    return head_kind(shape.head_bytes(encryption)), answer_kind(shape.reply_bytes(encryption), shape.scores, shape.rows)


def _held(block: RowBlock, party: str) -> torch.Tensor:
    """The features of rows that a party must hold all of."""
    if block.features is None or len(block.features) < len(block):
        raise InputError(f"party {party!r} lacks rows that are to be predicted; predict rows that every party holds")
    return block.features
