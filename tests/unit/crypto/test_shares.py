"""Shares, masks and fixed-point numbers."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import Field
from scipy.stats import chi2

from veracausa.crypto import fixed_point, ring
from veracausa.crypto.backends import make_encryption
from veracausa.crypto.fixed_point import WEIGHT_BITS, encode_columns, encode_gradient
from veracausa.crypto.randomness import InsecureSeededDraws, RandomSource, SecureDraws, Toss
from veracausa.crypto.ring import P
from veracausa.crypto.shares import FORWARD_BITS, NORM_BITS, SharedWeights
from veracausa.errors import InputError, RunError, WireError
from veracausa.testing.synthetic import OWNER, PEER, GivenMasks, tossed_pair


def _chi_square(values: np.ndarray, bins: int = 64) -> float:
    counts = np.bincount((values.ravel().astype(object) * bins // P).astype(int), minlength=bins)
    return float((np.square(counts - counts.mean()) / counts.mean()).sum())


@pytest.mark.parametrize("draws", [SecureDraws(), InsecureSeededDraws(0, "a")])
def test_masks_are_uniform_and_never_the_same(draws: RandomSource) -> None:
    masks = draws.masks("here", 1)
    drawn = masks.uniform(200, 100)
    assert drawn.min() >= 0
    assert drawn.max() < P
    assert _chi_square(drawn) < chi2.ppf(1 - 1e-6, 63)
    others = [masks, draws.masks("here", 2), draws.masks("there", 1)]
    assert len(np.unique(np.concatenate([drawn, *(other.uniform(200, 100) for other in others)]))) == 80_000


def test_a_seed_repeats_a_purpose_and_system_entropy_does_not() -> None:
    seeded, secure = InsecureSeededDraws(0, "a"), SecureDraws()
    first, own = seeded.masks("x", 3).uniform(5), secure.masks("x", 3).uniform(5)
    assert (seeded.masks("x", 3).uniform(5) == first).all()
    assert (secure.masks("x", 3).uniform(5) != own).all()
    assert (InsecureSeededDraws(0, "b").masks("x", 3).uniform(5) != first).all()


def _shared(weights: np.ndarray, rng: np.random.Generator, slots: int = 16) -> tuple[SharedWeights, SharedWeights]:
    mine = rng.integers(0, P, weights.shape)
    return SharedWeights(mine, slots), SharedWeights(ring.subtract(weights, mine), slots)


def _opened(a: SharedWeights, b: SharedWeights) -> np.ndarray:
    return fixed_point.decode(ring.add(a.forward, b.forward), WEIGHT_BITS + FORWARD_BITS)


def _error_of_folding(slots: int) -> float:
    """How far shared weights are from the floats after many factors, relative to these."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-(1 << 17), 1 << 17, (3, 4, 5))
    holders = _shared(weights, rng, slots)
    plain = weights / 2.0**WEIGHT_BITS
    assert np.abs(_opened(*holders) - plain).max() < 1e-12
    for at in range(200):
        for _ in range(2):
            increment = rng.integers(-(1 << 12), 1 << 12, weights.shape)
            mask = rng.integers(0, P, weights.shape)
            holders[0].grow(mask)
            holders[1].grow(ring.subtract(increment, mask))
            plain = plain + increment / 2.0**WEIGHT_BITS
        factors = rng.uniform(0.9, 1.0, (3, 4))
        factors[0, 0] = float(at % 50 != 0)  # ends now and then
        for holder in holders:
            holder.shrink(factors)
        plain = plain * factors[..., None]
    opened = _opened(*holders)
    both = fixed_point.decode(ring.add(holders[0].norm, holders[1].norm), WEIGHT_BITS + NORM_BITS)
    assert np.sqrt(np.square(both - opened).mean() / np.square(opened).mean()) < 0.1  # coefficients of four bits
    return float(np.sqrt(np.square(opened - plain).mean() / np.square(plain).mean()))


def test_shared_weights_follow_the_floats_through_growth_and_shrinking() -> None:
    # Increments are pure noise, the worst case: none is like its neighbour, with which it shares a coefficient.
    few, many = _error_of_folding(8), _error_of_folding(16)
    assert many < few / 1.5
    assert many < 0.06


def test_a_factor_of_zero_ends_a_block_exactly_and_for_good_where_it_is_not_allowed() -> None:
    rng = np.random.default_rng(1)
    holders = _shared(rng.integers(-100, 100, (2, 2, 3)), rng)
    kept = np.array([[True, False], [True, True]])
    for holder in holders:
        holder.restrict(kept)
        holder.grow(np.full((2, 2, 3), 1 << 19, dtype=np.int64))
    opened = _opened(*holders)
    assert (opened[0, 1] == 0).all()
    assert (opened[kept] != 0).all()


def test_few_slots_hold_everything_exactly_while_nothing_shrinks() -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(-(1 << 17), 1 << 17, (2, 2, 3))
    holders = _shared(weights, rng)
    total = weights.copy()
    for _ in range(40):
        increment = rng.integers(-(1 << 12), 1 << 12, weights.shape)
        total = total + increment
        for holder, part in zip(holders, (increment % P, np.zeros_like(increment)), strict=True):
            holder.grow(part)
            holder.shrink(np.ones((2, 2)))
    assert (_opened(*holders) * 2.0**WEIGHT_BITS == total).all()


def test_blocks_that_are_taken_apart_change_as_they_do_together() -> None:
    rng = np.random.default_rng(4)
    whole, _ = _shared(rng.integers(-100, 100, (6, 3)), rng)
    parts = SharedWeights.of(whole.state())
    for _ in range(20):
        increment, factors = rng.integers(0, P, (6, 3)), rng.uniform(0.5, 1, 6)
        factors[rng.integers(6)] = 0.0
        for holder in (whole, parts):
            holder.grow(increment)
        whole.shrink(factors)
        for at in (np.array([4, 0, 2]), np.array([1, 3, 5])):
            some = parts.taken(at)
            some.shrink(factors[at])
            parts.put(at, some)
    assert (whole.forward == parts.forward).all()
    assert (whole.norm == parts.norm).all()
    assert all((a == b).all() for a, b in zip(whole.state()["arrays"], parts.state()["arrays"], strict=True))


def test_shares_are_kept_in_a_checkpoint() -> None:
    rng = np.random.default_rng(3)
    one, _ = _shared(rng.integers(-100, 100, (2, 2, 3)), rng)
    one.shrink(np.full((2, 2), 0.5))
    one.grow(rng.integers(0, P, (2, 2, 3)))
    again = SharedWeights.of(one.state())
    for holder in (one, again):
        holder.shrink(np.full((2, 2), 0.7))
    assert (one.forward == again.forward).all()
    assert (one.norm == again.norm).all()


@pytest.mark.parametrize("bad", [16.0, -16.5, 1e300, np.inf, np.nan])
def test_a_value_beyond_the_fixed_point_range_is_refused_by_its_column(bad: float) -> None:
    values = np.zeros((4, 3))
    values[2, 1] = bad
    fix = "clip" if np.isfinite(bad) else "fill"
    with pytest.raises(InputError, match=rf"column 'pressure' .*; {fix}") as refused:
        encode_columns(values, ("age", "pressure", "sugar"))
    assert f"{bad:.4g}" not in str(refused.value).replace("16 deviations", ""), "nothing of the data is in a message"


def test_columns_and_gradients_as_integers() -> None:
    values = np.array([[15.99, -15.99, 0.5]])
    assert encode_columns(values, "abc").tolist() == [[2047, -2047, 64]]
    rng = np.random.default_rng(0)
    steps = np.full(200_000, 0.3 / 2**fixed_point.GRADIENT_BITS)
    encoded = encode_gradient(steps, rng.random(steps.shape))
    assert set(np.unique(encoded)) == {0.0, 1.0}
    assert abs(encoded.mean() - 0.3) < 5 * np.sqrt(0.21 / len(steps))
    for bad in (1e9, np.nan):
        with pytest.raises(RunError, match="diverged"):
            encode_gradient(np.array([bad]), rng.random(1))


def test_an_opened_value_near_the_end_of_the_ring_is_refused() -> None:
    with pytest.raises(RunError, match="diverged"):
        fixed_point.decode(np.array([P // 3]), 20)


@pytest.mark.parametrize("sizes", [(5, 4), (4, 4)])
def test_what_is_computed_on_encrypted_numbers_is_exact_and_masked(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(4)
    owner, other = tossed_pair("none")
    batches = [rng.integers(-2047, 2048, (n, 3)).astype(float) for n in sizes]
    rows = other.open_rows(OWNER, owner.encrypt_rows(PEER, batches, 7), sizes, 3, 7)
    asked = [1, 0, 1]
    rows_of = [sizes[batch] for batch in asked]
    exactly = [batches[batch].astype(int).astype(object) for batch in asked]
    ends = np.cumsum(rows_of)[:-1]
    weights, mask = rng.integers(0, P, (3, 3, 7)), rng.integers(0, P, (sum(rows_of), 7))
    exact = np.concatenate([x @ w for x, w in zip(exactly, weights.astype(object), strict=True)]) - mask
    reply, kept = rows.forward(asked, weights, GivenMasks(mask))
    got = owner.decrypt_forward(reply, rows_of, 3, 7)
    assert np.array_equal(kept, mask)
    assert got.tolist() == (exact % P).tolist()
    gradients, mask = rng.integers(0, P, (sum(rows_of), 7)), rng.integers(0, P, (3, 3, 7))
    parts = np.split(gradients.astype(object), ends)
    exact = np.stack([x.T @ g for x, g in zip(exactly, parts, strict=True)]) - mask
    reply, kept = rows.backward(asked, gradients, GivenMasks(mask))
    got = owner.decrypt_backward(reply, rows_of, 3, 7)
    assert np.array_equal(kept, mask)
    assert got.tolist() == (exact % P).tolist()
    a, b, mask = rng.integers(0, P, (3, 2, 3, 4))
    exact = (a.astype(object) * b.astype(object) - mask) % P
    reply, kept = other.products(OWNER, 0, owner.encrypt(PEER, 0, a), b, GivenMasks(mask))
    got = owner.decrypt_products(reply, a.shape)
    assert np.array_equal(kept, mask)
    assert got.tolist() == exact.tolist()


def test_numbers_of_another_form_are_refused() -> None:
    plain, _ = tossed_pair("none")
    for bad in (np.array([P]), np.array([-1]), np.zeros(2, dtype=np.int64)):
        with pytest.raises(WireError):
            plain.decrypt_products(bad.view(np.uint8), (1,))
    with pytest.raises(WireError, check=Field("columns.rows")):
        plain.open_rows(PEER, np.array([2048]).view(np.uint8), [1], 1, 1)


def test_an_unknown_encryption_is_refused() -> None:
    with pytest.raises(InputError, match="no such encryption"):
        make_encryption("nonne", Toss(bytes(32)), "a")
