"""Mutated and lying messages of blind training by the thousand: each is refused with a `WireError`, or is in range.

`python tests/fuzz_blind.py --messages 100000` is a long run; a hang dumps its stack. The readers are the program's own,
behind a link that hands them the mutated bytes. Those of the sums are in `fuzz_ciphertexts`.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fuzz_ciphertexts import HANG, flipped, moved, overwritten, resized, signed
from veracausa.config import load_job
from veracausa.crypto.backends import make_encryption
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.crypto.ring import P
from veracausa.data.vertical import Part
from veracausa.errors import WireError
from veracausa.training.blind.active import BlindActive
from veracausa.training.blind.answers import AnswerShape, HeldHead, OwnedHead, encrypted_head
from veracausa.training.blind.kept_head import HeadKey
from veracausa.training.blind.passive import BlindPassive
from veracausa.training.blind.predict import ScoreHolder, ScoreReader, answer_shape
from veracausa.training.blind.protocol import (
    ASK,
    BLIND_HELLO,
    HEAD_KEPT,
    MASK_SEED,
    WIDTH,
    answer_kind,
    as_array,
    elements_of,
    exchange_mask_seeds,
    exchange_widths,
    head_kind,
    labels_kind,
)
from veracausa.wire.codec import Layout, decode, encode
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message

ME, OTHER = "me", "other"
ROWS, CLASSES = 12, 3
SHAPE = AnswerShape(2, 1, 5)


class MutatedLink(Link):
    """Hands out one message, however it was mutated, and then what was put after it."""

    def __init__(self, data: bytes, *kinds: Kind, after: tuple[Message, ...] = ()) -> None:
        super().__init__(ME, (OTHER,))
        self.declare(*kinds)
        self.data, self.after = data, list(after)

    def _deliver(self, message: Message, plan: Layout) -> None:
        pass

    def _collect(self, sender: str) -> Message:
        if self.data is None:
            return self.after.pop(0)
        data, self.data = self.data, None  # type: ignore[assignment]
        return decode(data, self.kinds[sender])

    def abort(self, reason: str, lost: str | None = None) -> None:
        pass


@dataclass(frozen=True)
class BlindTarget:
    """A kind of message: a good one, who reads it, and what may be true of it if it is taken."""

    kind: Kind
    good: Message
    read: Callable[[bytes], bool]
    """Whether what was taken is in range."""
    weight: float = 4.0


def message(kind: Kind, parts: dict[str, torch.Tensor] | None = None, **meta: Any) -> Message:
    return Message(OTHER, ME, kind.name, meta.pop("step", 0), parts or {}, meta)


def job(active: str, passive: str) -> Any:
    """Of two parties."""
    tree: dict[str, Any] = {
        "name": "fuzz",
        "data": {"name": "digits"},
        "parties": {"active": active, "passive": [passive]},
        "training": {"protocol": "blind"},
        "blind": {"encryption": "none", "labels": "private"},
    }
    return load_job(tree)


def blind_targets() -> list[BlindTarget]:
    return [*ciphertext_targets(), ask_target(), labels_target(), *small_targets()]


def ciphertext_targets() -> Iterator[BlindTarget]:
    """The head on its way to a passive party, and an answer on its way back."""
    toss = Toss(os.urandom(32))
    active, passive = make_encryption("bfv", toss, OTHER), make_encryption("bfv", toss, ME)
    passive.meet(OTHER, active.public_key())
    whole = np.array([[3], [-4]])
    encrypted = encrypted_head(active, ME, whole, SHAPE)
    sent = head_kind(SHAPE.head_bytes("bfv"))

    def keep(data: bytes) -> bool:
        found = MutatedLink(data, sent).receive(OTHER, sent, 0)
        HeldHead(passive, OTHER, as_array(found, "head"), SHAPE, SecureDraws())
        return True

    parts = {"head": torch.from_numpy(encrypted.copy()), "fingerprint": torch.zeros(32, dtype=torch.uint8)}
    yield BlindTarget(sent, message(sent, parts), keep, 1.0)
    held = HeldHead(passive, OTHER, encrypted, SHAPE, SecureDraws())
    reply, share = held.answer(np.ones((5, 2)), np.zeros((1, 5), dtype=np.int64))
    kept: Any = type(active)
    opener = kept.of_kept(active.secret_bytes(), toss, OTHER, active.public_key())  # type: ignore[attr-defined]
    owned = OwnedHead(opener, SHAPE)
    back = answer_kind(SHAPE.reply_bytes("bfv"), SHAPE.scores, SHAPE.rows)

    def opened(data: bytes) -> bool:
        found = MutatedLink(data, back).receive(OTHER, back, 0)
        both = np.stack([owned.open(as_array(found, "reply")), elements_of(found, "share")])
        return both.shape == (2, 1, 5) and 0 <= both.min() <= both.max() < P

    parts = {"reply": torch.from_numpy(reply.copy()), "share": torch.from_numpy(share)}
    yield BlindTarget(back, message(back, parts), opened, 2.0)


def ask_target() -> BlindTarget:
    """A passive party that is asked for rows answers for those it has, in blocks of one size, or not at all."""
    parts = {"test": Part(ROWS, torch.zeros(ROWS, 1)), "validation": Part(0)}

    def asked(data: bytes) -> bool:
        holder = ScoreHolder.__new__(ScoreHolder)
        end = message(ASK, split="", start=0, rows=0, step=2)
        holder.link, holder.active, holder.shape = MutatedLink(data, ASK, after=(end,)), OTHER, SHAPE
        answered: list[int] = []
        holder._answer = lambda number, block: answered.append(len(block))  # type: ignore[method-assign]
        holder.serve(parts)
        return all(0 < rows <= SHAPE.rows for rows in answered)

    return BlindTarget(ASK, message(ASK, split="test", start=5, rows=5, step=1), asked)


def labels_target() -> BlindTarget:
    kind = labels_kind(ROWS, by_row=False)
    passive = BlindPassive.__new__(BlindPassive)
    passive.job, passive.name, passive.active = job(OTHER, ME), ME, OTHER
    passive.data = SimpleNamespace(train=Part(ROWS, torch.zeros(ROWS, 1)))  # type: ignore[assignment]

    def heard(data: bytes) -> bool:
        told = passive._hear_labels(MutatedLink(data))
        assert told.transition is not None
        chances = told.transition
        fits = chances.shape == (told.classes, told.classes) and bool(((chances >= 0) & (chances <= 1)).all())
        return fits and 0 <= int(told.values.min()) <= int(told.values.max()) < told.classes

    parts = {
        "told": torch.arange(ROWS, dtype=torch.int32) % CLASSES,
        "transition": torch.full((CLASSES, CLASSES), 1 / CLASSES, dtype=torch.float64),
    }
    return BlindTarget(kind, message(kind, parts, classes=CLASSES), heard)


def small_targets() -> Iterator[BlindTarget]:
    """Words at the beginning of a run, and of a session."""

    def width(data: bytes) -> bool:
        return 0 < exchange_widths(MutatedLink(data, WIDTH), 3)[OTHER] <= 1024

    yield BlindTarget(WIDTH, message(WIDTH, features=7), width)

    def seeds(data: bytes) -> bool:
        return len(exchange_mask_seeds(MutatedLink(data, MASK_SEED), {OTHER: 0}, 1)[OTHER][1]) == 32

    yield BlindTarget(MASK_SEED, message(MASK_SEED, {"seed": torch.zeros(32, dtype=torch.uint8)}), seeds)
    active = BlindActive.__new__(BlindActive)
    active.name = ME
    active.data = SimpleNamespace(part=lambda split: range(ROWS))  # type: ignore[assignment]

    def hello(data: bytes) -> bool:
        active._meet(MutatedLink(data, BLIND_HELLO))
        return True

    counts = {"train": ROWS, "validation": ROWS, "test": ROWS, "held": ROWS}
    yield BlindTarget(BLIND_HELLO, message(BLIND_HELLO, **counts), hello)
    name = b"n" * 32
    key = HeadKey(b"", np.zeros(0, dtype=np.uint8), b"t" * 32, {OTHER: name})
    head: Any = SimpleNamespace(weights={OTHER: np.zeros((2, 1))}, scores_width=1)
    both = job(ME, OTHER)
    assert answer_shape(2, 1).rows > SHAPE.rows

    def kept(data: bytes) -> bool:
        ScoreReader(MutatedLink(data, HEAD_KEPT), both, head, None, key)
        return True

    yield BlindTarget(
        HEAD_KEPT, message(HEAD_KEPT, {"name": torch.frombuffer(bytearray(name), dtype=torch.uint8)}), kept
    )


WILD = (0, 1, -1, 2, 5, 7, ROWS, ROWS + 1, 1024, 1025, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -(1 << 63), True)
WORDS = ("", "test", "train", "validation", "x" * 300, "\x00", "../..", "\ud7ff")


def lie(rng: np.random.Generator, target: BlindTarget) -> bytes:
    """Well-formed, and with numbers, words, shapes or contents of the peer's own making."""
    good = target.good
    meta: dict[str, Any] = dict(good.meta)
    for name in meta:
        if rng.random() < 0.6:
            pool: tuple[Any, ...] = WORDS if isinstance(meta[name], str) else WILD
            meta[name] = pool[int(rng.integers(len(pool)))]
    parts = dict(good.tensors)
    for name, part in good.tensors.items():
        draw = rng.random()
        if draw < 0.15:
            del parts[name]
        elif draw < 0.3:
            parts[name] = torch.zeros([int(rng.integers(0, 5)) for _ in range(part.ndim)], dtype=part.dtype)
        elif draw < 0.4:
            parts[name] = part.to(torch.float32)
        elif draw < 0.7:
            raw = np.frombuffer(bytearray(part.numpy().tobytes()), dtype=np.uint8)
            changed = overwritten(rng, raw) if raw.size else raw
            if part.dtype == torch.uint8 and raw.size > 1000 and rng.random() < 0.7:
                changed = signed(changed)  # a ciphertext whose digest fits
            parts[name] = torch.from_numpy(changed.view(part.numpy().dtype).reshape(tuple(part.shape)).copy())
    step = good.step if rng.random() < 0.9 else int(rng.integers(0, 9))
    sender = good.sender if rng.random() < 0.95 else ME
    return bytes(encode(Message(sender, good.receiver, good.kind, step, parts, meta)))


def mutated(rng: np.random.Generator, target: BlindTarget, of: list[BlindTarget]) -> bytes:
    if rng.random() < 0.6:
        return lie(rng, target)
    data: Bytes = np.frombuffer(bytes(encode(target.good)), dtype=np.uint8)
    kind = int(rng.integers(5))
    if kind == 4:
        return bytes(encode(of[int(rng.integers(len(of)))].good))
    change = (flipped, overwritten, moved, resized)[kind]
    return change(rng, data).tobytes()


def _refused(target: BlindTarget, data: bytes) -> WireError | None:
    """Why it was refused; None where it was taken."""
    faulthandler.dump_traceback_later(HANG, exit=True)
    try:
        assert target.read(data), f"{target.kind.name}: taken, and out of range"
    except WireError as error:
        return error
    finally:
        faulthandler.cancel_dump_traceback_later()
    return None


def fuzz_blind(messages: int, seed: int, seconds: float = float("inf")) -> Counter[str]:
    """How often what happened; raises where something happened that must not."""
    return fuzz_targets(blind_targets(), messages, seed, seconds)


def fuzz_targets(of: list[BlindTarget], messages: int, seed: int, seconds: float = float("inf")) -> Counter[str]:
    """The same for any kinds of message."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for target in of:
        assert target.read(bytes(encode(target.good))), f"{target.kind.name}: a good message was refused"
    weights = np.array([target.weight for target in of])
    end = time.monotonic() + seconds
    for _ in range(messages):
        if time.monotonic() > end:
            break
        target = of[int(rng.choice(len(of), p=weights / weights.sum()))]
        data = mutated(rng, target, of)
        refused = _refused(target, data)
        assert refused is None or len(str(refused)) < 700, f"{target.kind.name}: says too much"
        said = "taken, in range" if refused is None else f"refused ({refused.field.split('.')[0]})"
        found[f"{target.kind.name}: {said}"] += 1
        found["messages"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    start = time.perf_counter()
    found = fuzz_blind(asked.messages, asked.seed)
    for what, count in sorted(found.items()):
        print(f"{count:8d}  {what}")
    print(f"no crash, no hang, nothing but WireError in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
