"""One source and one target: their set-up, triples made ahead, the steps that use them, and a look at the norms."""

from __future__ import annotations

import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import getattr_static, isclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.crypto import fixed_point, ring
from veracausa.crypto.backends import make_encryption
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.crypto.ring import Ring
from veracausa.crypto.triples import Needs, Shape, SourceTriples, TargetTriples, ask, open_asked
from veracausa.errors import RunError
from veracausa.wire.codec import decode, encode
from veracausa.wire.message import Kind, Message, TensorSpec

KEY, SET_UP, OFFLINE, ONLINE = "key", "set-up", "offline", "online"
LOOK_OFFLINE, LOOK_ONLINE = "look offline", "look online"
MEDIAN = "offline + online, median round"
GROWING = (SET_UP, OFFLINE, MEDIAN)
STAGES = (KEY, SET_UP, OFFLINE, ONLINE, MEDIAN, LOOK_OFFLINE, LOOK_ONLINE)

Place = tuple[Any, str, str]
"""A module or class, the name of a function in it, and the phase that this function is."""


def watched(name: str) -> list[Place]:
    """The parts of an encryption, so that each can be timed."""
    from veracausa.crypto.randomness import SecureDraws

    places: list[Place] = [(SecureDraws, "uniform", "draw")]
    if name == "bfv":
        import seal

        from veracausa.crypto.backends.bfv import ciphertexts, keys

        places += [
            (ciphertexts, "encode", "encode"),
            (ciphertexts, "factor", "transform"),
            (ciphertexts, "load", "load"),
            (ciphertexts, "unpack", "validate"),
            (ciphertexts, "unwrap", "validate"),
            (ciphertexts, "wrap", "serialise"),
            (ciphertexts, "pack", "serialise"),
            (ciphertexts, "residues_of", "serialise"),
            (keys.BfvSecretKey, "encrypt", "encrypt"),
            (keys.BfvSecretKey, "decrypt", "decrypt"),
            (keys, "answered", "mask"),
            (keys, "second_half", "toss"),
            (keys, "first_half", "mask"),
            (ciphertexts, "rounded", "mask"),
            (keys, "fresh_noise", "noise"),
            (keys, "ternary", "mask"),
            (seal.Evaluator, "multiply_plain", "multiply"),
            (seal.Evaluator, "add_inplace", "add"),
            (seal.Evaluator, "transform_from_ntt_inplace", "transform"),
            (seal.Evaluator, "mod_switch_to_next_inplace", "switch"),
        ]
    if name == "paillier":
        from veracausa.crypto.backends.paillier import encryption
        from veracausa.crypto.backends.paillier import keys as paillier_keys

        places += [
            (paillier_keys.PaillierSecretKey, "encrypt", "encrypt"),
            (encryption, "combinations", "multiply"),
            (encryption, "shifted", "shift"),
            (encryption.Blocks, "hiding", "mask"),
            (paillier_keys.PaillierPublicKey, "add", "mask and re-randomise"),
            (paillier_keys.PaillierPublicKey, "write_ciphertexts", "serialise"),
            (paillier_keys.PaillierPublicKey, "read_ciphertexts", "validate"),
            (paillier_keys.PaillierPublicKey, "read", "validate"),
            (paillier_keys.PaillierSecretKey, "decrypt", "decrypt"),
            (encryption.Blocks, "open", "unpack"),
        ]
    return places


class Stopwatch:
    """CPU seconds of this process by stage and phase. A phase inside another takes its seconds away from it.

    Functions are wrapped, not profiled: Python's profilers do not see the methods of SEAL.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._open: list[tuple[str, str]] = []
        self._since = 0.0

    def stage_seconds(self, stage: str) -> float:
        return sum(seconds for (of, _), seconds in self.seconds.items() if of == stage)

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self._running((name, "other"))

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Counts within a stage only."""
        return self._running((self._open[0][0], name)) if self._open else nullcontext()

    @contextmanager
    def _running(self, name: tuple[str, str]) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def watching(self, places: Sequence[Place]) -> Iterator[None]:
        """Each of these functions is a phase, as long as this lasts, in every module that imported it."""
        with ExitStack() as wrapped:
            for owner, name, phase in places:
                found = getattr(owner, name)
                timed: Any = self._timed(found, phase)
                if isinstance(getattr_static(owner, name), staticmethod | classmethod):
                    timed = staticmethod(timed)
                for holder in [owner] if isclass(owner) else _importing(found, name):
                    wrapped.callback(setattr, holder, name, getattr_static(holder, name))
                    setattr(holder, name, timed)
            yield

    def _timed(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase):
                return function(*args, **kwargs)

        return wraps(function, assigned=("__name__", "__doc__"))(timed)


def _importing(function: Callable[..., Any], name: str) -> list[Any]:
    """The package's modules that have this function under its name."""
    loaded = [module for key, module in sys.modules.items() if key.startswith("veracausa.")]
    return [module for module in loaded if vars(module).get(name) is function]


_MOST = 1 << 32
_BENCH = Kind(
    "bench",
    {
        "bytes": TensorSpec(torch.uint8, (None,), max_free=_MOST, optional=True),
        "more": TensorSpec(torch.uint8, (None,), max_free=_MOST, optional=True),
        "elements": TensorSpec(torch.int64, (None, None), max_free=_MOST, optional=True),
    },
)


@dataclass(frozen=True)
class Sizes:
    """Of what one pair computes."""

    n: int
    batches: int
    """Prepared, and packed, together."""
    looks: int
    columns: int
    targets: int
    h: int

    @property
    def shape(self) -> Shape:
        width = self.targets * self.h
        return Shape((self.n,) * self.batches, self.columns, width, width)


@dataclass(frozen=True)
class Costs:
    """CPU seconds and bytes by stage, and the seconds again by stage and phase.

    Offline and online are of one iteration, the others of one look; the bytes are those that a target gets and gives.
    """

    seconds: dict[str, float]
    bytes: dict[str, float]
    phases: dict[tuple[str, str], float]

    @property
    def iteration(self) -> float:
        return self.seconds[OFFLINE] + self.seconds[ONLINE]

    def times(self, peers: int) -> Costs:
        """With so many peers; there is one key for all of them."""

        def counted(found: Mapping[Any, float], stage: Callable[[Any], str]) -> dict[Any, float]:
            return {name: value * (1 if stage(name) == KEY else peers) for name, value in found.items()}

        return Costs(
            counted(self.seconds, str), counted(self.bytes, str), counted(self.phases, lambda name: str(name[0]))
        )

    def along(self, other: Costs, slope: float) -> Costs:
        """So far along the line through this and another, for what grows with the rows; the rest is the other's."""

        def reached(a: Mapping[Any, float], b: Mapping[Any, float], stage: Callable[[Any], str]) -> dict[Any, float]:
            found = dict(b)
            for name in b:
                if stage(name) in GROWING:
                    here = a.get(name, 0.0)
                    # A part that takes no time may seem to fall; a time is never negative.
                    found[name] = max(here + slope * (b[name] - here), 0.0)
            return found

        return Costs(
            reached(self.seconds, other.seconds, str),
            reached(self.bytes, other.bytes, str),
            reached(self.phases, other.phases, lambda name: str(name[0])),
        )

    def with_stage(self, stage: str, other: Costs) -> Costs:
        """This, with one stage of another."""
        phases = {name: seconds for name, seconds in self.phases.items() if name[0] != stage}
        phases |= {name: seconds for name, seconds in other.phases.items() if name[0] == stage}
        return Costs(self.seconds | {stage: other.seconds[stage]}, self.bytes | {stage: other.bytes[stage]}, phases)


def measure(name: str, sizes: Sizes, repeats: int) -> Costs:
    """The least disturbed of `repeats` rounds, and the phases of one more, whose functions are watched one by one.

    On a shared core the work of others only ever adds; the median of all rounds stands beside. With `repeats` = 0 the
    watched round is all there is.
    """
    pair, watch = Pair(name, sizes), Stopwatch()
    with watch.watching(watched(name)):
        pair.set_up(watch)
        pair.round(watch)
    sent = dict(pair.sent)
    rounds = [Stopwatch() for _ in range(repeats)] or [watch]
    for one in rounds[:repeats]:
        pair.round(one)

    def iteration(of: Stopwatch) -> float:
        return of.stage_seconds(OFFLINE) + of.stage_seconds(ONLINE)

    least = min(rounds, key=iteration)
    seconds = {stage: least.stage_seconds(stage) for stage in STAGES}
    seconds |= {stage: watch.stage_seconds(stage) for stage in (KEY, SET_UP)}
    seconds[MEDIAN] = float(np.median([iteration(one) for one in rounds]))
    looks = max(sizes.looks, 1)
    per = {
        OFFLINE: sizes.batches,
        ONLINE: sizes.batches,
        MEDIAN: sizes.batches,
        LOOK_OFFLINE: looks,
        LOOK_ONLINE: looks,
    }
    return Costs(
        {stage: seconds[stage] / per.get(stage, 1) for stage in STAGES},
        {stage: sent.get(stage, 0) / per.get(stage, 1) for stage in STAGES},
        {place: spent / per.get(place[0], 1) for place, spent in watch.seconds.items()},
    )


class Pair:
    """Both ends, in one process; every message is written as bytes and read again."""

    def __init__(self, name: str, sizes: Sizes) -> None:
        self.name, self.sizes, self.shape = name, sizes, sizes.shape
        self.draws, self.toss, self.rounds = SecureDraws(), Toss(secrets.token_bytes(32)), 0
        rng = np.random.default_rng(0)
        values = np.clip(rng.normal(size=(sizes.batches, sizes.n, sizes.columns)), -8, 8)
        names = [str(at) for at in range(sizes.columns)]
        self.batches = [fixed_point.encode_columns(batch, names) for batch in values]
        self.gradients = rng.normal(size=(sizes.n, self.shape.width)) * 0.01
        self.rounding = rng
        self.sent: dict[str, int] = {}

    def set_up(self, watch: Stopwatch) -> None:
        """Keys of both; the source's rows, encrypted, and as the target keeps them."""
        shape = self.shape
        with watch.stage(KEY):
            self.source = make_encryption(self.name, self.toss, "source")
        self.target = make_encryption(self.name, self.toss, "target")
        with watch.stage(SET_UP):
            rows = self.source.encrypt_rows("target", self.batches, shape.width)
            got = self._cross(watch, SET_UP, bytes=rows, more=self.source.public_key())
            self.target.meet("source", got["more"])
            self.rows = self.target.open_rows("source", got["bytes"], shape.sizes, shape.columns, shape.width)
            self.source.meet("target", self.target.public_key())

    def round(self, watch: Stopwatch) -> None:
        """Every batch once forward and backward, with triples made before; and looks at the norms."""
        needs = Needs(tuple(range(self.sizes.batches)), tuple(range(self.sizes.batches)))
        with watch.stage(OFFLINE):
            target, parts = ask(self.shape, self.rows, self.rows, needs, self.draws)
            got = self._cross(watch, OFFLINE, bytes=parts["forward"], more=parts["backward"])
            source = open_asked(self.shape, self.source, needs, {"forward": got["bytes"], "backward": got["more"]})
        for batch in range(self.sizes.batches):
            self._step(watch, batch, target, source)
        if self.sizes.looks:
            self._looks(watch)

    def _step(self, watch: Stopwatch, batch: int, target: TargetTriples, source: SourceTriples) -> None:
        x, shape = self.batches[batch], self.shape
        rows = slice(batch * len(x), (batch + 1) * len(x))
        s, r = (self.draws.uniform(shape.columns, shape.width) for _ in range(2))
        with watch.stage(ONLINE):
            opened = self._cross(watch, ONLINE, elements=ring.subtract(s, target.weight_masks[batch]))["elements"]
            answer = ring.matmul(x, ring.add(opened, r), source.features[rows])
            answer = self._cross(watch, ONLINE, elements=answer)["elements"]
            features = ring.add(answer, target.features[rows])
            steps = fixed_point.encode_gradient(self.gradients, self.rounding.random(self.gradients.shape)).astype(
                np.int64
            )
            hidden = ring.subtract(ring.reduce(steps), target.gradient_masks[rows])
            hidden = self._cross(watch, ONLINE, elements=hidden)["elements"]
            increment = ring.matmul(np.ascontiguousarray(x.T), hidden, source.increments[batch])
        self._check(features, ring.matmul(x, ring.add(s, r)))
        wanted = ring.matmul(x.T, ring.reduce(steps))
        self._check(ring.add(increment, target.increments[batch]), wanted)

    def _looks(self, watch: Stopwatch) -> None:
        """Shares of all blocks' squared norms: with masks A and B, E = S + R − A − B is opened to both holders."""
        shape = (self.sizes.looks, self.sizes.columns, self.shape.width)
        s, r = (self.draws.uniform(*shape) for _ in range(2))
        with watch.stage(LOOK_OFFLINE):
            a, b = (self.draws.uniform(*shape) for _ in range(2))
            self.rounds += 1
            asked = self.target.encrypt("source", self.rounds, a)
            asked = self._cross(watch, LOOK_OFFLINE, bytes=asked)["bytes"]
            reply, kept = self.source.products("target", self.rounds, asked, b, self.draws)
            reply = self._cross(watch, LOOK_OFFLINE, bytes=reply)["bytes"]
            products = self.target.decrypt_products(reply, shape)
            # ‖A + B‖² = ‖A‖² + ‖B‖² + 2⟨A, B⟩, with the last one shared.
            at_target = self._summed(ring.add_scaled(ring.multiply(a, a), products, 2))
            at_source = self._summed(ring.add_scaled(ring.multiply(b, b), kept, 2))
        with watch.stage(LOOK_ONLINE):
            flat = (-1, self.shape.width)
            hidden = self._cross(watch, LOOK_ONLINE, elements=ring.subtract(s, a).reshape(flat))["elements"]
            more = self._cross(watch, LOOK_ONLINE, elements=ring.subtract(r, b).reshape(flat))["elements"]
            opened = ring.add(hidden, more).reshape(shape)
            # ‖W‖² = ‖E‖² + 2⟨E, A + B⟩ + ‖A + B‖²
            at_target = ring.add(at_target, self._summed(ring.multiply(opened, ring.add_scaled(opened, a, 2))))
            at_source = ring.add(at_source, self._summed(ring.multiply(opened, ring.scale(b, 2))))
        w = ring.add(s, r)
        self._check(ring.add(at_source, at_target), self._summed(ring.multiply(w, w)))

    def _summed(self, products: Ring) -> Ring:
        """Over the units of each block."""
        return ring.total(products.reshape(*products.shape[:2], self.sizes.targets, self.sizes.h), 3)

    def _check(self, found: Ring, wanted: Ring) -> None:
        if not np.array_equal(found, wanted):
            raise RunError(f"{self.name}: a result is not the one of the ring; its times mean nothing")

    def _cross(self, watch: Stopwatch, stage: str, **arrays: NDArray[Any]) -> dict[str, NDArray[Any]]:
        with watch.phase("message"):
            tensors = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in arrays.items()}
            data = encode(Message("a", "b", _BENCH.name, 0, tensors), _MOST)
            self.sent[stage] = self.sent.get(stage, 0) + len(data)
            received = decode(data, {_BENCH.name: _BENCH}, _MOST)
            return {name: tensor.numpy() for name, tensor in received.tensors.items()}
