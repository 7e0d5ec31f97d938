"""Arithmetic of three servers, each with two of three summands: the numbers of the clear, and no more."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.crypto.ring64 import waves
from veracausa.crypto.ring64.arithmetic import Masked, WaveArithmetic
from veracausa.crypto.ring64.fixed64 import Words, decode, encode, fresh_seed, signed
from veracausa.crypto.ring64.replicated import (
    CipherStream,
    CommonKey,
    ReplicatedArithmetic,
    ReplicatedInTheClear,
    held,
    split,
)
from veracausa.errors import RunError

ROUNDERS = np.array([1, 2, 0])


def as_words(values: Any) -> Words:
    return np.array(values, dtype=np.int64).view(np.uint64)


class Table:
    """Three servers in threads, and all that each of them received."""

    def __init__(self, seed: int | None = 0) -> None:
        self.received: list[list[Words]] = [[], [], []]
        self.opened: list[Words] = []
        self._posted: dict[tuple[int, int, int], Words] = {}
        self._counts, self._changed = [0, 0, 0], threading.Condition()
        self._board, self._barrier = [np.zeros(0, dtype=np.uint64)] * 3, threading.Barrier(3, timeout=10)
        keys = [fresh_seed(seed, "key", at) for at in range(3)]
        self.servers = [
            ReplicatedArithmetic(
                at,
                CommonKey(keys[at]),
                CommonKey(keys[(at + 2) % 3]),
                CipherStream(fresh_seed(seed, "roundings", at)),
                lambda sent, expected, at=at: self._swap(at, sent, expected),  # type: ignore[misc]
                lambda share, at=at: self._hand_over(at, share),  # type: ignore[misc]
                ROUNDERS,
            )
            for at in range(3)
        ]

    def _swap(self, me: int, sent: Mapping[int, Words], expected: Mapping[int, int]) -> dict[int, Words]:
        with self._changed:
            self._counts[me] += 1
            for to, words in sent.items():
                self._posted[me, to, self._counts[me]] = words
            self._changed.notify_all()
            awaited = {peer: (peer, me, self._counts[me]) for peer in expected}
            assert self._changed.wait_for(lambda: all(key in self._posted for key in awaited.values()), 10)
            found = {peer: self._posted.pop(key) for peer, key in awaited.items()}
        assert {peer: len(words) for peer, words in found.items()} == dict(expected)
        self.received[me] += found.values()
        return found

    def _hand_over(self, me: int, share: Words) -> Words:
        self._board[me] = share
        if self._barrier.wait() == 0:
            self.opened.append(np.sum(self._board, axis=0, dtype=np.uint64))
        self._barrier.wait()
        return np.sum(self._board, axis=0, dtype=np.uint64)

    def run(self, program: Any, inputs: list[Words]) -> list[Words]:
        """What the servers' shares of the results add up to."""
        drawn = CipherStream(fresh_seed(None))
        summands = [split(value, drawn) for value in inputs]
        ends: list[list[Words]] = [[], [], []]

        def work(at: int) -> None:
            ends[at] = program(self.servers[at], [Masked(*held(parts, at)) for parts in summands])

        threads = [threading.Thread(target=work, args=(at,)) for at in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(ends), "a server failed"
        return [np.sum(parts, axis=0, dtype=np.uint64) for parts in zip(*ends, strict=True)]


def clear(seed: int = 0) -> ReplicatedInTheClear:
    return ReplicatedInTheClear([CipherStream(fresh_seed(seed, "roundings", at)) for at in range(3)], ROUNDERS)


def in_the_clear(program: Any, inputs: list[Words], seed: int = 0) -> list[Words]:
    found: list[Words] = program(clear(seed), [Masked(value, np.zeros_like(value)) for value in inputs])
    return found


def everything(arithmetic: WaveArithmetic, inputs: list[Masked]) -> list[Words]:
    """Each operation, every role of a rounding and of a curve, some on the results of others."""
    x, y, z = inputs
    product = arithmetic.product(np.matmul, x, y)
    ends = [product]
    for _ in range(3):
        (cut,) = arithmetic.truncate_and_mask((product, 5))
        value, slope = arithmetic.wave(arithmetic.product(np.matmul, cut, z), 12)
        (again,) = arithmetic.mask(arithmetic.share(cut) + arithmetic.share(cut))
        (only,) = arithmetic.wave(arithmetic.share(again), 13, slopes=False)
        ends += [arithmetic.share(part) for part in (cut, value, slope, again, only)]
    ends += arithmetic.truncate((arithmetic.product(np.multiply, z, z), 12), (arithmetic.share(y), 3))
    return [*ends, arithmetic.product(lambda a, b: (a * b).sum(-1), x.view(lambda w: w[:1]), x.view(lambda w: w[1:]))]


def some_inputs(seed: int = 1) -> list[Words]:
    rng = np.random.default_rng(seed)
    return [as_words(rng.integers(-(2**11), 2**11, shape)) for shape in ((3, 5), (5, 4), (4, 3))]


def test_summands_add_up_to_the_clear_computation() -> None:
    expected = in_the_clear(everything, some_inputs())
    found = Table().run(everything, some_inputs())
    assert len(found) == len(expected) == 19
    for one, other in zip(found, expected, strict=True):
        assert (one == other).all()
    assert (signed(expected[0]) == signed(some_inputs()[0]) @ signed(some_inputs()[1])).all()


@given(st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=6), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_rounding_is_next_door_up_to_the_edge_of_the_range(values: list[int], bits: int) -> None:
    def program(arithmetic: ReplicatedArithmetic, inputs: list[Masked]) -> list[Words]:
        return [arithmetic.truncate((arithmetic.share(inputs[0]), bits))[0] for _ in range(3)]

    for found in Table(None).run(program, [as_words(values)]):
        assert all(int(one) - (value >> bits) in (0, 1) for one, value in zip(signed(found), values, strict=True))


def test_in_the_clear_a_number_beyond_the_range_is_refused() -> None:
    with pytest.raises(RunError, match="diverged"):
        clear().truncate((as_words([2**62]), 8))


def test_a_server_holds_two_summands_that_say_nothing() -> None:
    parts = split(as_words([5, -7]), CipherStream(fresh_seed(None)))
    assert (np.sum(parts, axis=0, dtype=np.uint64) == as_words([5, -7])).all()
    whole = [held(parts, at) for at in range(3)]
    assert (whole[0][0] == whole[2][1]).all()
    assert all((whole[at].sum(0, dtype=np.uint64) != as_words([5, -7])).any() for at in range(3))


def received(values: list[Words]) -> list[list[Words]]:
    table = Table(None)
    table.run(everything, values)
    return table.received


def chi_squared(words: Words, shift: int) -> float:
    counts = np.bincount(((words >> np.uint64(shift)) & np.uint64(15)).astype(np.int64), minlength=16)
    return float((np.square(counts - len(words) / 16) / (len(words) / 16)).sum())


@pytest.mark.parametrize("values", ["zeros", "ones", "random"])
def test_what_a_server_receives_is_uniform_whatever_the_numbers_are(values: str) -> None:
    """And each two words of it together, added and subtracted: three masks that were two would show."""
    shapes = ((30, 20), (20, 30), (30, 20))
    rng = np.random.default_rng(2)
    made = {"zeros": np.zeros, "ones": np.ones, "random": lambda shape: rng.integers(-2000, 2000, shape)}[values]
    for received_by_one in received([as_words(made(shape)) for shape in shapes]):
        words = np.concatenate(received_by_one)
        assert len(words) > 20_000
        assert len(np.unique(words)) == len(words)
        for shift in (0, 20, 40, 60):
            assert chi_squared(words, shift) < 15 + 6 * np.sqrt(30), shift
        for first, second in pairwise(received_by_one):
            if len(first) == len(second) >= 600:
                for joint in (first + second, first - second):
                    assert chi_squared(joint, 60) < 15 + 6 * np.sqrt(30)
                    assert len(np.unique(joint)) == len(joint)


def test_no_sum_of_what_a_server_holds_and_receives_is_a_number() -> None:
    """Two servers together open everything, which a test that finds nothing has to find. One does not."""
    secret = as_words(np.arange(1, 65) << 20)
    for seed in range(3):
        table = Table(None)
        drawn = CipherStream(fresh_seed(seed, "drawn"))
        parts = split(secret, drawn)
        ends: dict[int, list[Masked]] = {}

        def work(at: int, table: Table = table, parts: list[Words] = parts, ends: Any = ends) -> None:
            ends[at] = table.servers[at].truncate_and_mask((held(parts, at)[0], 4))

        threads = [threading.Thread(target=work, args=(at,)) for at in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for at in range(3):
            pair = ends[at][0]
            known = [pair.opened, pair.mask, *held(parts, at), *(w[: len(secret)] for w in table.received[at])]
            for first in known:
                for second in known:
                    for found in (first, first + second, first - second):
                        assert not np.isin(found, [secret, secret >> np.uint64(4)]).any()
        together = ends[0][0].opened + ends[0][0].mask + ends[1][0].mask
        assert (np.abs(signed(together) - signed(secret >> np.uint64(4))) <= 1).all()


def test_revealed_numbers_are_rounded_and_their_last_bits_are_drowned() -> None:
    def program(arithmetic: WaveArithmetic, inputs: list[Masked]) -> list[Words]:
        return [arithmetic.reveal(arithmetic.share(inputs[0]), 12)]

    values = as_words(np.arange(-60, 60).reshape(3, 40) * 1000)
    expected = in_the_clear(program, [values])[0]
    assert (np.abs(signed(expected) - signed(values) / 4096) < 1).all()
    table = Table()
    found = table.run(program, [values])[0]
    assert (found == expected * np.uint64(3)).all()  # all three are told here, and the test adds them up
    sent = signed(table.opened[0]) - signed(values)
    assert ((sent >= 0) & (sent < 4096)).all()
    assert len(set(sent.ravel().tolist())) > 100


def test_the_curve_is_near_tanh_and_turns_back_far_out() -> None:
    u = np.linspace(-6, 6, 4001)
    assert np.abs(waves.curve(u) - np.tanh(u)).max() < 0.03
    far = np.linspace(-200, 200, 4001)
    assert np.abs(waves.curve(far)).max() < 1.1
    assert np.abs(waves.slope(far)).max() < 1.1
    numeric = (waves.curve(u + 1e-6) - waves.curve(u - 1e-6)) / 2e-6
    assert np.abs(waves.slope(u) - numeric).max() < 1e-6


@pytest.mark.parametrize("bits", [31, 48])
def test_a_shared_curve_is_the_curve_of_a_rounded_number(bits: int) -> None:
    u = np.random.default_rng(3).uniform(-30, 30, 5000)
    value, slope = clear().wave(encode(u, bits, 64.0), bits)
    # Phases lie 2^-12 apart, and each entry of a table is rounded to 2^-12.
    for found, exact in ((value, waves.curve(u)), (slope, waves.slope(u))):
        error = decode(found.opened, waves.WAVE_BITS) - exact
        assert np.abs(error).max() < 1.5e-3
        assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(u))


def test_tables_are_whole_numbers_that_any_machine_makes_alike() -> None:
    """No entry lies so near to the middle between two numbers that another last bit of a sine would change it."""
    for table in waves.exact_tables():
        scaled = table * 2.0**waves.TABLE_BITS
        assert np.abs(scaled - np.floor(scaled) - 0.5).min() > 1e-9
