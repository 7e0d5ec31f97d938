"""What a party of a training will send, as far as that is known before it runs: for whoever is asked to agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from veracausa import seeding
from veracausa.config import Job
from veracausa.crypto.moments.packing import QUERY_BYTES, REPLY_BYTES, PairPacking
from veracausa.crypto.randomness import KEY, NONCE
from veracausa.models.runner import wire_dtype
from veracausa.training.blind.answers import AnswerShape, request_rows
from veracausa.training.blind.protocol import FINGERPRINT, MOST_FEATURES
from veracausa.training.split.halves import build_defended, make_defense
from veracausa.wire.message import MESSAGE, Declared

FEATURES_A_COLUMN = 8
"""What a column of a table becomes at most with the usual map, as a guess before it is fitted."""
FEATURES_OF_PICTURES = 512
PUBLIC_KEY = 1 << 20
"""Bytes of a public key, about."""


@dataclass(frozen=True)
class OwnPart:
    """What a party knows of its own part beforehand."""

    job: Job
    me: str
    rows: int
    """At most, as if all were trained on."""
    shape: tuple[int, ...]
    columns: int | None
    outputs: int | None
    """None: only the active party knows yet."""

    @property
    def active(self) -> bool:
        return self.me == self.job.parties.active

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in (self.job.parties.active, *self.job.parties.passive) if name != self.me)

    @property
    def scores(self) -> int | None:
        """How many numbers of a predicted row a blind run opens."""
        return None if self.outputs is None else max(1, self.outputs - 1)


def declared_training(part: OwnPart) -> Iterator[Declared]:
    """What the party sends beside the matching of rows."""
    return _DECLARED[part.job.training.protocol](part)


def _split(part: OwnPart) -> Iterator[Declared]:
    job, rows, active = part.job, part.rows, (part.job.parties.active,)
    size = wire_dtype(job.runtime).itemsize
    messages = MESSAGE * (rows // job.training.batch_size + 1)
    if not part.active:
        defense = make_defense(job, part.me)
        rng = seeding.generator(job.seed, part.me)
        built = build_defended(job, part.me, part.shape, part.outputs or 2, rng, defense, columns=part.columns)
        each = " × ".join(map(str, built.payload))
        yield Declared("hello", active, f"which of {rows} training rows it has", "run", MESSAGE + rows)
        payloads = rows * prod(built.payload) * size + messages
        yield Declared("representation", active, f"rows × {each}", "epoch", payloads)
        yield Declared("ready", active, "how far it is prepared", "run", MESSAGE)
        return
    peers = part.peers
    yield Declared("request", peers, "rows, their positions", "epoch", (8 * rows + messages) * len(peers))
    each = "of the shape that the peer sends"
    yield Declared("gradient", peers, f"training rows × a payload {each}", "epoch", None)
    yield Declared("ready", peers, "how far all are prepared", "run", MESSAGE * len(peers))


def _blind(part: OwnPart) -> Iterator[Declared]:
    """Sizes of ciphertexts follow from how many features there are, which is a guess until the maps are fitted."""
    job, peers, active = part.job, part.peers, (part.job.parties.active,)
    blind, rows = job.blind, part.rows
    width = _features(part)
    if part.active:
        if blind.labels != "none":
            what = "a label a training row" + (", randomised" if blind.labels == "private" else ", AS IT IS")
            yield Declared("labels", peers, what, "run", (4 * rows + MESSAGE) * len(peers))
        yield Declared("ready", peers, "how far all are prepared", "run", MESSAGE * len(peers))
    else:
        yield Declared("hello", active, "how many rows it has", "run", MESSAGE)
        yield Declared("ready", active, "how far it is prepared", "run", MESSAGE)
    yield Declared("width", peers, "how many features it has", "run", MESSAGE * len(peers))
    for kind in ("toss", "toss shown"):
        yield Declared(kind, peers, "a random number", "run", 2 * (NONCE + MESSAGE) * len(peers))
    yield Declared("key", peers, "a public key of this run", "run", 2 * PUBLIC_KEY * len(peers))
    yield Declared("agreed", peers, "a fingerprint of plan and keys", "run", MESSAGE * len(peers))
    for kind in ("moment_hello", "moment_turn"):
        yield Declared(kind, peers, "how far it is with the sums", "run", MESSAGE * len(peers))
    packing = PairPacking.best(width, width, max(rows, 1), blind.block_rows)
    hidden = "in clear (NOT ENCRYPTED)" if blind.encryption == "none" else "encrypted under its own key"
    query = rows * width * 4 if blind.encryption == "none" else packing.ciphertexts(rows) * QUERY_BYTES
    yield Declared(
        "moment_query", peers, f"training rows × about {width} features, {hidden}", "run", query * len(peers)
    )
    answer = 8 * width**2 if blind.encryption == "none" else packing.replies * REPLY_BYTES
    yield Declared("moment_answer", peers, "masked sums over all rows", "run", answer * len(peers))
    yield Declared("moment_taken", peers, "that a query was taken", "run", MESSAGE * len(peers))
    if part.active:
        yield from _head(part, peers)
        return
    noise = "exact" if blind.epsilon is None else f"with noise, epsilon = {blind.epsilon:g}"
    sums = f"its share of all sums over rows, {noise}"
    yield Declared("moment_share", active, sums, "run", 8 * width * (width + 1) // 2 + 8 * width**2 * len(peers))
    others = tuple(name for name in peers if name != active[0])
    if others:
        yield Declared("mask_seed", others, "what hides its scores from all but their sum", "run", KEY * len(others))
    yield Declared("head_kept", active, "the hash of the encrypted head that it keeps", "run", FINGERPRINT + MESSAGE)
    yield _answers(part, active)


def _head(part: OwnPart, peers: tuple[str, ...]) -> Iterator[Declared]:
    shape = f"the peer's weights, encrypted, to be kept there, and a fingerprint of {FINGERPRINT} bytes"
    yield Declared("head", peers, shape, "run", None)
    yield Declared("ask", peers, "how many rows to score, and from which position", "run", MESSAGE * len(peers))


def _answers(part: OwnPart, active: tuple[str, ...]) -> Declared:
    if part.scores is None:
        return Declared("answer", active, "validation and test rows × scores, encrypted and masked", "run", None)
    each = request_rows(part.scores)
    shape = AnswerShape(min(MOST_FEATURES, _features(part)), part.scores, each)
    one = shape.reply_bytes(part.job.blind.encryption) + 8 * part.scores * each + MESSAGE
    what = f"validation and test rows × {part.scores} scores, encrypted and masked"
    return Declared("answer", active, what, "run", one * (part.rows // each + 1))


def _features(part: OwnPart) -> int:
    guess = FEATURES_OF_PICTURES if part.columns is None else FEATURES_A_COLUMN * part.columns
    if part.columns is not None:
        guess = max(guess, prod(part.shape))
    return max(1, min(MOST_FEATURES, guess)) if part.shape else 1 + (part.outputs or 2)


_DECLARED: dict[str, Callable[[OwnPart], Iterator[Declared]]] = {"split": _split, "blind": _blind}
