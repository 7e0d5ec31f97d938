"""Scoring rows together: how the head comes to the passive parties, once, and the two sides of a session.

In training all toss a coin, and the active party encrypts the head under a new key. Each passive party keeps its part
before it says so, and nothing is asked until all have said it: two parties never hold parts of two heads.

A session begins with the hash of what each passive party keeps. Passive parties agree on masks over links of their own.
Then the active party asks for rows in order, and opens the sum of the answers. It ends when it asks for none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.config import Job
from veracausa.crypto import ring
from veracausa.crypto.agreement import KEY as PUBLIC_KEY
from veracausa.crypto.backends import KeepableEncryption, make_encryption
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.data.vertical import Part, RowBlock, Split
from veracausa.errors import InputError, WireError
from veracausa.training.blind.answers import (
    AnswerShape,
    HeldHead,
    OwnedHead,
    cancelling_mask,
    dither,
    encoded_weights,
    encrypted_head,
    fingerprint_of,
    opened_scores,
    request_rows,
)
from veracausa.training.blind.book import AnswerBook, row_names
from veracausa.training.blind.head import BlindHead
from veracausa.training.blind.kept_head import HeadKey, KeptHead, head_name
from veracausa.training.blind.protocol import (
    ASK,
    HEAD,
    HEAD_KEPT,
    answer_kind,
    as_array,
    as_bytes,
    as_tensor,
    elements_of,
    exchange_mask_seeds,
    head_kind,
    toss_for_head,
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


def send_head(link: Link, job: Job, head: BlindHead, commitment: bytes, save: Callable[[HeadKey], None]) -> HeadKey:
    """Encrypt the head under a new key and send each passive party its part; `save` keeps the key before any leaves."""
    shapes = {peer: answer_shape(len(head.weights[peer]), head.scores_width) for peer in job.parties.passive}
    kinds = {peer: head_kind(shape.head_bytes(job.blind.encryption)) for peer, shape in shapes.items()}
    for peer, kind in kinds.items():
        link.declare(kind, peer=peer)
    toss = toss_for_head(link)
    encryption = make_encryption(job.blind.encryption, toss, link.me)
    assert isinstance(encryption, KeepableEncryption)
    public_key = encryption.public_key()
    parts = {
        peer: encrypted_head(encryption, peer, encoded_weights(head.weights[peer], LIMIT), shape)
        for peer, shape in shapes.items()
    }
    names = {peer: head_name(part, public_key, toss.seed) for peer, part in parts.items()}
    key = HeadKey(encryption.secret_bytes(), public_key, toss.seed, names)
    save(key)
    for peer, part in parts.items():
        link.send(peer, PUBLIC_KEY, HEAD, {"key": as_tensor(public_key)})
        link.send(peer, kinds[peer], 0, {"head": as_tensor(part), "fingerprint": as_tensor(commitment)})
    return key


def receive_head(link: Link, job: Job, width: int, scores: int) -> KeptHead:
    """A passive party's part of the head, to be kept for as long as the model serves."""
    active = job.parties.active
    kind = head_kind(answer_shape(width, scores).head_bytes(job.blind.encryption))
    link.declare(kind, peer=active)
    toss = toss_for_head(link)
    public_key = as_array(link.receive(active, PUBLIC_KEY, HEAD), "key")
    message = link.receive(active, kind, 0)
    return KeptHead(as_array(message, "head"), public_key, toss.seed, as_bytes(message, "fingerprint"))


class ScoreReader:
    """The active party's side: it asks, and opens sums with the key that it kept."""

    def __init__(self, link: Link, job: Job, head: BlindHead, columns: OwnColumns | None, key: HeadKey) -> None:
        self.link, self.head, self.columns = link, head, columns
        self.number = 0
        self.width = request_rows(head.scores_width)
        """Rows of one request."""
        self.heads: dict[str, OwnedHead] = {}
        self.kinds: dict[str, Kind] = {}
        encryption = key.encryption(job.blind.encryption, link.me)
        for peer in job.parties.passive:
            shape = answer_shape(len(head.weights[peer]), head.scores_width)
            self.kinds[peer] = session_kind(job, shape)
            link.declare(self.kinds[peer], peer=peer)
            self.heads[peer] = OwnedHead(encryption, shape)
        for peer in self.heads:
            if as_bytes(link.receive(peer, HEAD_KEPT, 0), "name") != key.names.get(peer):
                raise WireError(
                    "head_kept.name",
                    f"{peer!r} keeps another head than {link.me!r} has the key of; train again, or put back the "
                    "folders of one training",
                )

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
        kept: KeptHead,
        key: bytes,
        book: AnswerBook,
        secret: bool,
    ) -> None:
        """`secret`: not a simulation, so the dither follows from the ciphertexts."""
        self.link, self.columns, self.key, self.book, self.step = link, columns, key, book, job.blind.step
        self.active, self.name, self.blur_name = job.parties.active, kept.name, kept.blur_name(secret)
        self.shape = answer_shape(columns.width, scores)
        self.kind = session_kind(job, self.shape)
        link.declare(self.kind, peer=self.active)
        encryption = make_encryption(job.blind.encryption, Toss(kept.toss), link.me)
        encryption.meet(self.active, kept.public_key)
        # From the system also in a simulation: what is opened does not depend on them, and none is used twice.
        self.head = HeldHead(encryption, self.active, kept.encrypted, self.shape, SecureDraws())
        link.send(self.active, HEAD_KEPT, 0, {"name": as_tensor(self.name)})
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
        self.book.enter(named, self.name, self.link.me)
        shape = self.shape
        added = cancelling_mask(self.seeds, number, shape.scores, shape.rows)
        added[:, : len(block)] = ring.add(
            added[:, : len(block)], dither(self.key, self.blur_name, drawn, shape.scores, self.step)
        )
        reply, share = self.head.answer(self.columns.of(features), added)
        self.link.send(self.active, self.kind, number, {"reply": as_tensor(reply), "share": torch.from_numpy(share)})


def answer_shape(features: int, scores: int) -> AnswerShape:
    """Of one passive party's answers in all sessions, those of training among them."""
    return AnswerShape(features, scores, request_rows(scores))


def session_kind(job: Job, shape: AnswerShape) -> Kind:
    """One passive party's answers."""
    return answer_kind(shape.reply_bytes(job.blind.encryption), shape.scores, shape.rows)


def _held(block: RowBlock, party: str) -> torch.Tensor:
    """The features of rows that a party must hold all of."""
    if block.features is None or len(block.features) < len(block):
        raise InputError(f"party {party!r} lacks rows that are to be predicted; predict rows that every party holds")
    return block.features
