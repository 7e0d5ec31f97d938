"""Arithmetic on shares modulo 2^64: every party, the dealer and the clear run the same computation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.crypto.ring64 import fixed64 as rounding
from veracausa.crypto.ring64.arithmetic import Arithmetic, PlaintextArithmetic
from veracausa.crypto.ring64.fixed64 import SEED_BYTES, Stream, Words, decode, encode, fresh_seed, signed, word
from veracausa.crypto.ring64.shared import Dealer, DealerTape, SharedArithmetic
from veracausa.errors import RunError, WireError

Program = Callable[[Arithmetic, list[Words]], list[Words]]


def as_words(values: Any) -> Words:
    return np.array(values, dtype=np.int64).view(np.uint64)


class Board:
    """Parties in threads that add up what they write on a board, which a test may read."""

    def __init__(self, parties: int) -> None:
        self.parties, self.written = parties, [np.zeros(0, dtype=np.uint64)] * parties
        self.barrier = threading.Barrier(parties, timeout=10)
        self.seen: list[list[Words]] = []

    def add_up(self, at: int, share: Words) -> Words:
        self.written[at] = share
        if self.barrier.wait() == 0:
            self.seen.append([part.copy() for part in self.written])
        total: Words = np.sum(self.written, axis=0, dtype=np.uint64)
        self.barrier.wait()
        return total


def streams(parties: int, purpose: str, seed: int = 0) -> list[Stream]:
    return [Stream(fresh_seed(seed, purpose, at)) for at in range(parties)]


def shares_of(values: Words, parties: int) -> list[Words]:
    rng = np.random.default_rng(5)
    parts = [rng.integers(0, 2**64, values.shape, dtype=np.uint64) for _ in range(parties - 1)]
    return [values - np.sum(parts, axis=0, dtype=np.uint64) if parts else values, *parts]


def run_shared(program: Program, values: list[Words], parties: int, seed: int = 0) -> tuple[list[Words], Board]:
    """The sum of what the parties end with; what `reveal` opens is everybody's here, so it comes back as it is."""
    dealer = Dealer(streams(parties, "masks", seed), streams(parties, "roundings", seed))
    program(dealer, [np.zeros(value.shape, dtype=np.uint64) for value in values])
    dealt, board = dealer.collect(), Board(parties)
    ends: list[list[Words]] = [[] for _ in range(parties)]
    masks, roundings = streams(parties, "masks", seed), streams(parties, "roundings", seed)
    inputs = [shares_of(value, parties) for value in values]

    def work(at: int) -> None:
        arithmetic = SharedArithmetic(
            at == 0, masks[at], roundings[at], lambda s: board.add_up(at, s), lambda s: board.add_up(at, s)
        )
        arithmetic.begin(dealt)
        ends[at] = program(arithmetic, [parts[at] for parts in inputs])
        arithmetic.end()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [np.sum(parts, axis=0, dtype=np.uint64) for parts in zip(*ends, strict=True)], board


def everything(arithmetic: Arithmetic, inputs: list[Words]) -> list[Words]:
    """Each operation, some on the results of others."""
    x, y, z = inputs
    a, b, c = arithmetic.mask(x, y, z)
    product = arithmetic.product(np.matmul, a, b)
    (d,) = arithmetic.truncate_and_mask((product, 9))
    inner = arithmetic.product(lambda p, q: (p * q).sum(-1), d, d)
    cubes, mixed = arithmetic.cube(c), arithmetic.times_square(c.view(lambda w: w[:1]), d.view(lambda w: w.T[:4, :3]))
    short, shorter = arithmetic.truncate((cubes, 12), (mixed, 20))
    return [product, inner, cubes, mixed, short, shorter, arithmetic.share(d)]


def some_inputs() -> list[Words]:
    rng = np.random.default_rng(1)
    return [as_words(rng.integers(-(2**11), 2**11, shape)) for shape in ((3, 5), (5, 4), (4, 3))]


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_add_up_to_the_clear_computation(parties: int) -> None:
    inputs = some_inputs()
    expected = everything(PlaintextArithmetic(streams(parties, "roundings")), inputs)
    found, _ = run_shared(everything, inputs, parties)
    for one, other in zip(found, expected, strict=True):
        assert (one == other).all()
    x, y, z = map(signed, inputs)
    assert (signed(expected[0]) == x @ y).all()
    assert (signed(expected[2]) == z**3).all()


@given(
    st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=8), st.integers(1, 60), st.integers(0, 2**32)
)
@settings(max_examples=60, deadline=None)
def test_rounding_is_next_door_whatever_the_mask(values: list[int], bits: int, seed: int) -> None:
    mask = np.random.default_rng(seed).integers(0, 2**64, len(values), dtype=np.uint64)
    top = np.random.default_rng(seed + 1).integers(0, 2**64, (2, len(values)), dtype=np.uint64)
    above, high = rounding.mask_parts(mask, bits)
    opened = as_words(values) + rounding.OFFSET + mask
    first = rounding.truncate_share(opened, above - top[0], high - top[1], bits, True)
    second = rounding.truncate_share(opened, top[0], top[1], bits, False)
    for value, found, low in zip(values, signed(first + second), rounding.low_bits(mask, bits), strict=True):
        assert int(found) == (value + int(low)) >> bits
        assert int(found) - (value >> bits) in (0, 1)


def test_rounding_is_right_on_average() -> None:
    values = np.full(40_000, 1000 * 2**10 + 300, dtype=np.int64).view(np.uint64)
    found = signed(PlaintextArithmetic(streams(2, "average")).truncate((values, 10))[0])
    assert set(found.tolist()) == {1000, 1001}
    assert abs(found.mean() - 1000 - 300 / 1024) < 0.012  # five standard errors


def test_a_number_at_the_edge_of_the_range_is_refused_in_the_clear() -> None:
    plain = PlaintextArithmetic(streams(2, "edge"))
    plain.truncate((as_words([2**62 - 1, -(2**62) + 1]), 8))
    for beyond in (2**62, -(2**63)):
        with pytest.raises(RunError, match="diverged"):
            plain.truncate((as_words([beyond]), 8))


def test_what_is_opened_does_not_depend_on_the_secret_and_no_mask_serves_twice() -> None:
    """Other secrets move openings by just the difference, so uniform masks hide them; other masks change all."""

    def opened(shift: int, seed: int) -> Words:
        def program(arithmetic: Arithmetic, inputs: list[Words]) -> list[Words]:
            arithmetic.mask(*inputs)
            return arithmetic.truncate((inputs[0], 4))

        inputs = [value + word(shift) for value in some_inputs()[:2]]
        _, board = run_shared(program, inputs, 3, seed)
        return np.concatenate([np.sum(parts, axis=0, dtype=np.uint64) for parts in board.seen])

    base = opened(0, 0)
    assert (opened(77, 0) - base == 77).all()
    assert (opened(0, 1) != base).all()
    assert len(np.unique(base)) == len(base)


def test_words_of_a_stream_are_uniform_and_never_repeat() -> None:
    stream = Stream(fresh_seed(None))
    drawn = np.concatenate([stream.take((70_000,)), stream.take((100, 900)).ravel()])  # over a block's end
    assert len(np.unique(drawn)) == len(drawn)
    for shift in (0, 31, 56):
        counts = np.bincount(((drawn >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        statistic = (np.square(counts - len(drawn) / 256) / (len(drawn) / 256)).sum()
        assert 255 - 6 * 22.6 < statistic < 255 + 6 * 22.6  # chi-square with 255 degrees of freedom


def test_a_seed_repeats_a_stream_and_the_system_gives_none_twice() -> None:
    assert (Stream(b"s" * SEED_BYTES).take((9,)) == Stream(b"s" * SEED_BYTES).take((3, 3)).ravel()).all()
    assert fresh_seed(None) != fresh_seed(None)
    assert len(fresh_seed(3, "a")) == SEED_BYTES
    assert fresh_seed(3, "a") != fresh_seed(3, "b")
    with pytest.raises(ValueError, match="32 bytes"):
        Stream(b"short")


def test_a_dealer_who_sends_too_little_or_too_much_is_caught() -> None:
    dealt = DealerTape(np.arange(6, dtype=np.uint64))
    assert dealt.take((2, 2)).tolist() == [[0, 1], [2, 3]]
    with pytest.raises(WireError, match="fewer"):
        dealt.take((3,))
    with pytest.raises(WireError, match="more"):
        dealt.end()


def test_numbers_come_back_from_words() -> None:
    values = np.array([-3.25, 0.0, 7.5])
    assert (decode(encode(values, 8, 8.0), 8) == values).all()
    for bad in (8.0, np.nan, np.inf):
        with pytest.raises(RunError, match="diverged"):
            encode(np.array([bad]), 8, 8.0)


def test_revealed_numbers_are_rounded_and_their_last_bits_are_drowned() -> None:
    """Two secrets that differ below the rounding give the same distribution of what is sent, up to that difference."""

    def program(arithmetic: Arithmetic, inputs: list[Words]) -> list[Words]:
        return [arithmetic.reveal(inputs[0], 12)]

    values = as_words(np.arange(-40, 40) * 1000)
    found = signed(PlaintextArithmetic(streams(3, "roundings")).reveal(values, 12))
    assert (np.abs(found - signed(values) / 4096) < 1).all()
    _, board = run_shared(program, [values], 3)
    sent = signed(np.sum(board.seen[0], axis=0, dtype=np.uint64)) - signed(values)
    assert ((sent >= 0) & (sent < 4096)).all()
    assert len(set(sent.tolist())) > 70
    assert (sent + signed(values) >> 12 == found).all()
