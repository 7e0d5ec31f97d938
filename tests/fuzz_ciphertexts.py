"""Mutated BFV messages by the thousand: each is refused with a `WireError`, or opens to numbers of the right shape.

`python tests/fuzz_ciphertexts.py --messages 100000` is a long run; a crash ends the process, a hang dumps its stack.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.crypto.backends.base import Bytes, Encryption
from veracausa.crypto.backends.bfv.ciphertexts import HEAD, TAG, fingerprint
from veracausa.crypto.moments.bfv_pairs import BfvKeys, partial_sums
from veracausa.crypto.moments.packing import PairPacking
from veracausa.crypto.moments.plan import MomentPlan
from veracausa.crypto.moments.protocol import elements, moment_share
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.crypto.ring import P
from veracausa.errors import WireError
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair
from veracausa.wire.codec import decode, encode
from veracausa.wire.message import Message

HANG = 60.0
"""Seconds after which a message is taken to hang."""
SIZES, COLUMNS, WIDTH = [3, 3], 1, 5
MOMENTS = (2, 3)
"""Columns of the two parties of a sum over rows."""


@dataclass(frozen=True)
class Target:
    """A kind of message: a good one, and who reads it."""

    name: str
    good: Bytes
    read: Callable[[Bytes], NDArray[np.int64] | None]
    shape: tuple[int, ...] | None
    """Of what it opens to."""
    weight: float
    """How often it comes: keys and rows take milliseconds to read, so they come less often."""
    digest: bool = True
    """Whether damage is found by one. Without one it is taken where it leaves numbers of the field."""


def targets(owner: Encryption, peer: Encryption) -> list[Target]:
    draws = SecureDraws()
    key = owner.public_key()
    encrypted = owner.encrypt_rows(PEER, [np.ones((n, COLUMNS)) for n in SIZES], WIDTH)
    rows = peer.open_rows(OWNER, encrypted, SIZES, COLUMNS, WIDTH)
    forward, _ = rows.forward([0, 1], draws.uniform(2, COLUMNS, WIDTH), draws)
    backward, _ = rows.backward([0, 1], draws.uniform(6, WIDTH), draws)
    values = owner.encrypt(PEER, 0, draws.uniform(7))
    products, _ = peer.products(OWNER, 0, values, draws.uniform(7), draws)
    zeros = np.zeros(7, dtype=np.int64)

    def open_key(data: Bytes) -> None:
        peer.meet(OWNER, data)
        peer.meet(OWNER, key)  # the good one again, for the messages after it

    def open_rows(data: Bytes) -> None:
        peer.open_rows(OWNER, data, SIZES, COLUMNS, WIDTH)

    def open_values(data: Bytes) -> None:
        peer.products(OWNER, 0, data, zeros, draws)

    return [
        Target("forward", forward, lambda d: owner.decrypt_forward(d, SIZES, COLUMNS, WIDTH), (6, WIDTH), 4),
        Target(
            "backward", backward, lambda d: owner.decrypt_backward(d, SIZES, COLUMNS, WIDTH), (2, COLUMNS, WIDTH), 4
        ),
        Target("products", products, lambda d: owner.decrypt_products(d, (7,)), (7,), 4),
        Target("values", values, open_values, None, 2),
        Target("rows", encrypted, open_rows, None, 1),
        Target("key", key, open_key, None, 0.25),
        *moment_targets(),
    ]


def moment_targets() -> list[Target]:
    """A query of rows and the answer with their sums."""
    toss = Toss(os.urandom(32))
    one, other = BfvKeys(toss, OWNER), BfvKeys(toss, PEER)
    one.meet(PEER, other.public_key())
    other.meet(OWNER, one.public_key())
    packing = PairPacking.best(*MOMENTS, 128, 128)
    owner, answerer = one.owner(PEER, packing), other.answerer(OWNER, packing, SecureDraws())
    own = np.ones((128, MOMENTS[1]))
    query = owner.query(0, np.ones((128, MOMENTS[0])))

    def open_query(data: Bytes) -> None:
        for task in answerer.tasks(0, data, own):
            partial_sums(task)

    for task in answerer.tasks(0, query, own):
        answerer.add(partial_sums(task))
    (answer,) = answerer.replies()
    return [
        Target("moment_answer", answer, lambda d: owner.opened(iter([d])), MOMENTS, 4),
        Target("moment_query", query, open_query, None, 2),
        moment_share_target(),
    ]


def moment_share_target() -> Target:
    """A share on its way to the receiver, as it crosses."""
    plan = MomentPlan((OWNER, PEER), dict(zip((OWNER, PEER), MOMENTS, strict=True)), 128, OWNER)
    kind = moment_share(plan, PEER)
    parts = {name: torch.from_numpy(SecureDraws().uniform(*spec.shape)) for name, spec in kind.tensors.items()}
    message = Message(PEER, OWNER, kind.name, 0, parts, {"rho": 0.1, "release": "a", "rows_digest": "b"})

    def open_share(data: Bytes) -> NDArray[np.int64]:
        if data.dtype != np.uint8 or data.ndim != 1:
            raise WireError("body", "no bytes")  # a link has nothing else
        read = decode(data.tobytes(), {kind.name: kind})
        return np.concatenate([elements(read, "own"), elements(read, "shares")])

    good = np.frombuffer(encode(message), dtype=np.uint8)
    return Target(kind.name, good, open_share, (6 + MOMENTS[0] * MOMENTS[1],), 4, digest=False)


def signed(data: Bytes) -> Bytes:
    """With a digest that fits: what a peer that lies, and no accident, would send."""
    out = data.copy()
    out[3 * TAG : HEAD] = np.frombuffer(fingerprint(out[HEAD:].tobytes()), dtype=np.uint8)
    return out


def flipped(rng: np.random.Generator, data: Bytes, low: int = 0) -> Bytes:
    out = data.copy()
    at = rng.integers(low, out.size, rng.integers(1, 9))
    out[at] ^= (1 << rng.integers(0, 8, at.size)).astype(np.uint8)
    return out


def overwritten(rng: np.random.Generator, data: Bytes, low: int = 0) -> Bytes:
    out = data.copy()
    start = int(rng.integers(low, out.size))
    stop = min(out.size, start + int(rng.choice([1, 8, 64, 4096, 70000])))
    out[start:stop] = rng.choice([0, 255]) if rng.random() < 0.5 else rng.integers(0, 256, stop - start, dtype=np.uint8)
    return out


def moved(rng: np.random.Generator, data: Bytes) -> Bytes:
    out = data.copy()
    size = int(rng.integers(1, min(200_000, out.size // 2)))
    here, there = rng.integers(0, out.size - size, 2)
    out[here : here + size] = data[there : there + size]
    return out


def resized(rng: np.random.Generator, data: Bytes) -> Bytes:
    cuts = [0, 1, HEAD - 1, HEAD, HEAD + 8, data.size - 1, data.size // 2, int(rng.integers(0, data.size))]
    if rng.random() < 0.7:
        return data[: rng.choice(cuts)].copy()
    return np.concatenate([data, rng.integers(0, 256, int(rng.choice([1, 8, 5000])), dtype=np.uint8)])


def reshaped(rng: np.random.Generator, data: Bytes) -> Bytes:
    """Arrays that are no bytes at all."""
    kinds: list[Any] = [
        data.astype(np.int64),
        data.view(np.int8),
        data.reshape(1, -1),
        data[::-1],
        np.zeros((), dtype=np.uint8),
        data.astype(np.float32),
    ]
    return cast(Bytes, kinds[int(rng.integers(len(kinds)))])


def mutants(rng: np.random.Generator, of: list[Target]) -> Iterator[tuple[Target, Bytes, bool]]:
    """Messages without end, and whether a digest that fits was put on them."""
    weights = np.array([target.weight for target in of])
    while True:
        target = of[int(rng.choice(len(of), p=weights / weights.sum()))]
        kind = int(rng.integers(8))
        if kind == 0:
            yield target, flipped(rng, target.good), False
        elif kind == 1:
            yield target, overwritten(rng, target.good), False
        elif kind == 2:
            yield target, moved(rng, target.good), False
        elif kind == 3:
            yield target, resized(rng, target.good), False
        elif kind == 4:
            yield target, reshaped(rng, target.good), False
        elif kind == 5:
            yield target, of[int(rng.integers(len(of)))].good, False
        elif kind == 6:
            yield target, signed(flipped(rng, target.good, HEAD)), True
        else:
            yield target, signed(overwritten(rng, target.good, HEAD)), True


def _read(target: Target, data: Bytes) -> tuple[str | None, NDArray[np.int64] | None]:
    """Why it was refused, or what it opened to."""
    faulthandler.dump_traceback_later(HANG, exit=True)
    try:
        return None, target.read(data)
    except WireError as error:
        return str(error), None
    finally:
        faulthandler.cancel_dump_traceback_later()


def fuzz(messages: int, seed: int, seconds: float = float("inf"), only: str = "") -> Counter[str]:
    """How often what happened; raises where something happened that must not. `only` is how names begin."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    of = [target for target in targets(*tossed_pair("bfv")) if target.name.startswith(only)]
    end = time.monotonic() + seconds
    for (target, data, fits), _ in zip(mutants(rng, of), range(messages), strict=False):
        if time.monotonic() > end:
            break
        unchanged = data.dtype == np.uint8 and np.array_equal(data, target.good)
        refused, opened = _read(target, data)
        if refused is not None:
            assert not unchanged, f"a good message was refused: {refused}"
            assert len(refused) < 160, f"{target.name}: says too much"
            found[f"{target.name}: {refused if ' bytes' not in refused else 'wrong length'}"] += 1
        else:
            assert unchanged or fits or not target.digest, f"{target.name}: a damaged message was taken"
            if target.shape is not None:
                assert opened is not None
                assert opened.shape == target.shape
                assert opened.min() >= 0
                assert opened.max() < P
            found[f"{target.name}: taken, {'unchanged' if unchanged else 'in range, with a digest that fits'}"] += 1
        found["messages"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="how the names of the messages begin, for instance moment")
    asked = parser.parse_args()
    start = time.perf_counter()
    found = fuzz(asked.messages, asked.seed, only=asked.only)
    for what, count in sorted(found.items()):
        print(f"{count:8d}  {what}")
    print(f"no crash, no hang, nothing but WireError in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
