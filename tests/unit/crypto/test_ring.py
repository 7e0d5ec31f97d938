"""Ring arithmetic against Python's integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from veracausa.crypto import ring
from veracausa.crypto.ring import P

elements = st.one_of(st.sampled_from([0, 1, P // 2, P // 2 + 1, P - 1, (1 << 30) - 1, 1 << 30]), st.integers(0, P - 1))
several = arrays(np.int64, st.integers(1, 8), elements=elements)
pairs = st.integers(1, 8).flatmap(
    lambda n: st.tuples(arrays(np.int64, n, elements=elements), arrays(np.int64, n, elements=elements))
)
factors = st.one_of(st.sampled_from([0, 1, -1, 1 << 30, -(1 << 30)]), st.integers(-(1 << 30), 1 << 30))


def test_the_modulus_is_a_prime_with_transforms_of_length_8192() -> None:
    assert 1 << 58 < P < 1 << 59
    assert P % (2 * 8192) == 1
    assert _is_prime(P)


def _is_prime(n: int) -> bool:
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):  # no composite below 3·10^24 passes all of these
        x = pow(base, odd, n)
        if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
            return False
    return True


@given(pairs)
def test_sums_differences_and_products(both: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = both
    as_ints = list(zip(a.tolist(), b.tolist(), strict=True))
    assert ring.add(a, b).tolist() == [(x + y) % P for x, y in as_ints]
    assert ring.subtract(a, b).tolist() == [(x - y) % P for x, y in as_ints]
    assert ring.multiply(a, b).tolist() == [x * y % P for x, y in as_ints]


@given(pairs, factors)
def test_adding_a_multiple(both: tuple[np.ndarray, np.ndarray], by: int) -> None:
    a, b = both
    expected = [(x + by * y) % P for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert ring.add_scaled(a, b, by).tolist() == expected


@given(several, factors)
def test_scaling_by_a_small_integer(a: np.ndarray, by: int) -> None:
    assert ring.scale(a, by).tolist() == [x * by % P for x in a.tolist()]


@given(several)
def test_sums_of_any_length_and_signed_numbers(a: np.ndarray) -> None:
    many = np.tile(a, 500)
    assert int(ring.total(many, 0)) == sum(many.tolist()) % P
    signed = ring.centred(a).tolist()
    assert [x % P for x in signed] == a.tolist()
    assert all(2 * abs(x) < P for x in signed)


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(1, 4), st.data())
def test_matrix_products_are_exact(n: int, k: int, m: int, data: st.DataObject) -> None:
    small = data.draw(arrays(np.int64, (n, k), elements=st.integers(-(1 << 11), 1 << 11)))
    big = data.draw(arrays(np.int64, (k, m), elements=elements))
    expected = (small.astype(object) @ big.astype(object)) % P
    assert ring.matmul(small.astype(float), big).tolist() == expected.tolist()


def test_matrix_products_are_exact_at_their_bound() -> None:
    for terms in (4095, 9001):
        small = np.full((2, 1, terms), float((1 << 11) - 1))
        big = np.full((2, terms, 1), P - 1, dtype=np.int64)
        assert (ring.matmul(small, big, 5) == (5 - terms * ((1 << 11) - 1)) % P).all()
