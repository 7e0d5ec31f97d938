"""What a step on encrypted columns costs, beside the published rate and beside scalar Paillier.

An iteration is one forward and one backward pass of a batch for one party, in both roles, with all its peers. All
parties are of one size, so one pair is measured, with both of its ends, and counted once for every peer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.dispatch_pair import KEY, OFFLINE, ONLINE, STAGES, Costs, Sizes, measure
from benchmarks.rows import Row
from veracausa.crypto.backends import encryption_class
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError

BACKENDS = ("none", "bfv", "paillier")
PUBLISHED_RATE = 12_500
"""Multiplications a second, from VFedCD's account of its cost."""
TRAINING_ROWS = 800
"""Of 1000, so that an epoch of batches of 16 has 50; they are prepared, and packed, together."""
SAMPLES = (22, 66)
"""Rows at which Paillier is measured when a batch has more: its work ahead grows along a line."""
MB = 1e6


@dataclass(frozen=True)
class Case:
    """Rows of a batch, attributes, parties."""

    n: int
    d: int
    parties: int
    h: int = Settings().width

    def __post_init__(self) -> None:
        if self.d % self.parties:
            raise InputError(
                f"--d {self.d}: is no multiple of --parties {self.parties}; the parties here are of one size"
            )

    @property
    def peers(self) -> int:
        return self.parties - 1

    @property
    def batches(self) -> int:
        """Of an epoch."""
        return max(1, TRAINING_ROWS // self.n)

    @property
    def looks(self) -> int:
        """At the whole graph, in an epoch."""
        every = Settings().structure_every
        return max(1, self.batches // every) if isinstance(every, int) else 1

    def sizes(self, n: int, batches: int, looks: int) -> Sizes:
        columns = self.d // self.parties
        return Sizes(n, batches, looks, columns, columns, self.h)

    @property
    def multiplications(self) -> int:
        """Of one party's iteration, as the paper counts: forward n·d·d·h with its K − 1 parts, backward likewise."""
        return self.h * self.n * self.d**2

    @property
    def figures(self) -> dict[str, float]:
        return {"n": self.n, "d": self.d, "parties": self.parties}


def run(case: Case, backends: Sequence[str] | None = None, repeats: int = 7) -> list[Row]:
    """Every backend beside the paper and beside scalar Paillier, then the parts of its time and its bytes.

    Without `backends` these are all whose libraries are installed.
    """
    for name in backends or ():
        encryption_class(name)
    with one_core():
        rates = scalar_rates()
        costs: dict[str, tuple[Costs, float]] = {}
        for name in backends or BACKENDS:
            try:
                encryption_class(name)
            except InputError as problem:
                print(f"{name}: left out: {problem}", file=sys.stderr)
                continue
            costs[name] = backend_costs(name, case, repeats)
    rows = [row for name, (cost, part) in costs.items() for row in comparisons(name, case, cost, part, rates)]
    return rows + [row for name, (cost, _) in costs.items() for row in parts(name, cost)]


def backend_costs(name: str, case: Case, repeats: int) -> tuple[Costs, float]:
    """One party's, and what part of the rows was measured."""
    if name != "paillier":
        return measure(name, case.sizes(case.n, case.batches, case.looks), repeats).times(case.peers), 1.0
    # Paillier packs nothing over batches: one of them costs what each does. It is slow, and varies little.
    if case.n <= SAMPLES[-1]:
        return measure(name, case.sizes(case.n, 1, 1), 0).times(case.peers), 1.0
    short, long = (measure(name, case.sizes(n, 1, looks), 0) for looks, n in enumerate(SAMPLES))
    slope = (case.n - SAMPLES[0]) / (SAMPLES[1] - SAMPLES[0])
    # Online all of them do the same arithmetic.
    twin = measure("none", case.sizes(case.n, 1, 1), repeats)
    return short.along(long, slope).with_stage(ONLINE, twin).times(case.peers), sum(SAMPLES) / case.n


def comparisons(name: str, case: Case, cost: Costs, part: float, rates: ScalarRates | None) -> list[Row]:
    """All that is done ahead and the step, and the step alone, beside what others need for the same iteration."""
    paper = case.multiplications / PUBLISHED_RATE
    rate = f"the paper's {PUBLISHED_RATE} multiplications/s"
    pairs = [("vs paper", cost.iteration, rate, paper), ("online vs paper", cost.seconds[ONLINE], rate, paper)]
    if rates is not None:
        alone = f"{rates.name}, {1 / rates.multiply:.0f} multiplications/s"
        in_full = f"{rates.name}, encrypting, obfuscating and decrypting too"
        pairs.append(("vs phe", cost.iteration, alone, case.multiplications * rates.multiply))
        pairs.append(("vs phe in full", cost.iteration, in_full, scalar_seconds(case, rates)))
    sent = {"MB offline": cost.bytes[OFFLINE] / MB, "MB online": cost.bytes[ONLINE] / MB}
    measured = {"measured part": part} if part < 1 else {}
    return [
        Row(f"{name} {what}", seconds, against, theirs, {"× faster": theirs / seconds} | sent | measured | case.figures)
        for what, seconds, against, theirs in pairs
    ]


def scalar_seconds(case: Case, rates: ScalarRates) -> float:
    """Number by number, with all that the published protocol must encrypt and give back."""
    columns = case.d // case.parties
    width, every_width = columns * case.h, case.d * case.h
    encrypted = case.peers * columns * every_width + case.n * width
    returned = case.peers * (case.n * every_width + columns * width)
    multiplied = case.multiplications * rates.multiply
    return multiplied + encrypted * rates.encrypt + returned * (rates.obfuscate + rates.decrypt)


def parts(name: str, cost: Costs) -> list[Row]:
    """Where the seconds go, each beside a whole iteration; phases only of what encrypts."""
    whole = f"{name}, offline + online"
    stages = [
        Row(f"{name} {stage}", cost.seconds[stage], whole, cost.iteration, {"MB": cost.bytes[stage] / MB})
        for stage in STAGES
    ]
    phases = [
        Row(f"{name} {stage}: {phase}", cost.phases[stage, phase], whole, cost.iteration)
        for stage, phase in sorted(cost.phases, key=lambda at: (STAGES.index(at[0]), -cost.phases[at]))
        if name != "none" and stage != KEY
    ]
    return stages + phases


@contextmanager
def one_core() -> Iterator[None]:
    """Everything on one core, with one thread."""
    import torch
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    may = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with threadpool_limits(1):
        try:
            torch.set_num_threads(1)
            if may:
                os.sched_setaffinity(0, {min(may)})
            yield
        finally:
            torch.set_num_threads(threads)
            if may:
                os.sched_setaffinity(0, may)


# ---- Paillier a number at a time: `phe` where it is installed, else the same operations by gmpy2 ---------------------

KEY_BITS = 2048
_ROUNDS, _LEAST_SECONDS = 5, 0.1


@dataclass(frozen=True)
class ScalarRates:
    """Seconds of one operation."""

    name: str
    multiply: float
    encrypt: float
    obfuscate: float
    decrypt: float


def scalar_rates(bits: int = KEY_BITS) -> ScalarRates | None:
    """Measured now, in CPU time, with integers as small as this protocol's: that favours who multiplies one by one.

    None, and a word on standard error, where nothing can measure it.
    """
    values = np.rint(np.random.default_rng(0).normal(size=64) * 128).astype(int).tolist()
    try:
        import phe
    except ImportError:
        try:
            return _by_gmpy2(bits, values)
        except ImportError:
            print("phe: left out: it is not installed; pip install phe", file=sys.stderr)
            return None
    public, secret = phe.generate_paillier_keypair(n_length=bits)
    encrypted = [public.encrypt(value) for value in values[:4]]
    return ScalarRates(
        f"phe at {bits} bits",
        _seconds(lambda at: encrypted[at % 4] * values[at % 64]),
        _seconds(lambda at: public.encrypt(values[at % 64])),
        _seconds(lambda at: encrypted[at % 4].obfuscate()),
        _seconds(lambda at: secret.decrypt(encrypted[at % 4])),
    )


def _by_gmpy2(bits: int, values: list[int]) -> ScalarRates:
    from gmpy2 import powmod

    from veracausa.crypto.backends.paillier.keys import PaillierSecretKey

    secret = PaillierSecretKey(bits)
    public = secret.public
    encrypted = [secret.encrypt(value) for value in values[:4]]
    return ScalarRates(
        f"Paillier at {bits} bits by gmpy2 (phe is not installed; pip install phe)",
        _seconds(lambda at: powmod(encrypted[at % 4], values[at % 64], public.square)),
        _seconds(lambda at: public.add(1, values[at % 64])),
        _seconds(lambda at: public.add(encrypted[at % 4], 0)),
        _seconds(lambda at: secret.decrypt(encrypted[at % 4])),
    )


def _seconds(operation: Callable[[int], Any]) -> float:
    """Of one, in the least disturbed of some rounds."""
    operation(0)
    return min(_round(operation) for _ in range(_ROUNDS))


def _round(operation: Callable[[int], Any]) -> float:
    count, started = 0, time.process_time()
    while (taken := time.process_time() - started) < _LEAST_SECONDS:
        operation(count)
        count += 1
    return taken / count
