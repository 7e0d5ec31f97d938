"""The noise of a release: its sampler is exact, no row moves a release by more than is accounted, and ε is right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from moment_runs import Run, plan_of, rows_of
from veracausa.arrays import Array
from veracausa.crypto import discrete_gaussian as sampler
from veracausa.crypto.discrete_gaussian import bernoulli_exp, discrete_gaussian, discrete_laplace
from veracausa.crypto.moments import MomentParty, MomentPlan, cut, moments_of
from veracausa.crypto.moments.account import EXACT, MomentAccount, check_budget, sensitivity
from veracausa.crypto.moments.encoding import encode_block
from veracausa.crypto.randomness import InsecureSeededDraws, SecureDraws
from veracausa.crypto.zcdp import concentrated_epsilon, zcdp_delta, zcdp_epsilon, zcdp_rho
from veracausa.discovery.privacy.accountant import gaussian_epsilon
from veracausa.errors import InputError
from veracausa.wire.ledger import Ledger, read_ledger, releases

LEAST = 1e-4
"""A seeded draw whose test is less likely than that is wrong."""


def source(number: int):
    return InsecureSeededDraws(number, "test").masks("noise")


def fits(drawn: np.ndarray, weights: Mapping[int, float]) -> float:
    """How likely integers like these are, if each has this weight."""
    total = sum(weights.values())
    expected = np.array([weights[n] / total * drawn.size for n in sorted(weights)])
    counts = np.array([(drawn == n).sum() for n in sorted(weights)])
    enough = expected > 5
    observed = np.append(counts[enough], drawn.size - counts[enough].sum())
    return float(chisquare(observed, np.append(expected[enough], drawn.size - expected[enough].sum())).pvalue)


@pytest.mark.parametrize("deviation", [0.3, 1.0, 2.7, 11.5])
def test_a_discrete_gaussian_has_its_chances(deviation: float) -> None:
    weights = {n: math.exp(-(n**2) / (2 * deviation**2)) for n in range(-120, 121)}
    assert fits(discrete_gaussian(source(1), deviation, 40_000), weights) > LEAST
    wrong = {n: math.exp(-(n**2) / (2 * (1.05 * deviation) ** 2)) for n in range(-120, 121)}
    if deviation > 1:
        assert fits(discrete_gaussian(source(1), deviation, 40_000), wrong) < LEAST


def test_a_discrete_laplace_has_its_chances() -> None:
    assert fits(discrete_laplace(source(2), 3, 80_000), {n: math.exp(-abs(n) / 3) for n in range(-60, 61)}) > LEAST


def test_chances_that_floating_point_can_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error of 1 nothing is left to floating point: all draws are decided by digits, and are the same draws."""
    usual = discrete_gaussian(source(3), 2.7, 300)
    monkeypatch.setattr(sampler, "_ERROR", 1.0)
    assert np.array_equal(discrete_gaussian(source(3), 2.7, 300), usual)


def test_a_chance_of_one_always_comes_true() -> None:
    assert bernoulli_exp(source(4), np.zeros(1000), lambda at: Fraction(0)).all()


def test_a_large_deviation() -> None:
    deviation = 3.7e11
    drawn = discrete_gaussian(source(5), deviation, 100_000)
    # Four standard errors of a variance and of a mean.
    assert abs(drawn.var() / deviation**2 - 1) < 4 * math.sqrt(2 / drawn.size)
    assert abs(drawn.mean()) < 4 * deviation / math.sqrt(drawn.size)
    assert len(np.unique(drawn % 8)) == 8
    with pytest.raises(ValueError, match="none that can be drawn"):
        discrete_gaussian(source(5), 2.0**51, 1)


@pytest.mark.parametrize("rho", [0.001, 0.03, 0.4, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_the_conversion_is_the_best_of_all_orders(rho: float, delta: float) -> None:
    """Against a plain grid over α, and between what the Gaussian mechanism itself has and the simple bound."""
    epsilon = zcdp_epsilon(rho, delta)
    alphas = 1 + np.geomspace(1e-4, 1e6, 400_001)
    logs = (alphas - 1) * (alphas * rho - epsilon) - np.log(alphas - 1) + alphas * np.log1p(-1 / alphas)
    assert math.log(zcdp_delta(rho, epsilon)) == pytest.approx(logs.min(), abs=1e-6)
    assert zcdp_delta(rho, epsilon) <= delta
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= epsilon <= concentrated_epsilon(rho, delta)
    assert zcdp_rho(epsilon, delta) == pytest.approx(rho, rel=1e-6)
    assert zcdp_epsilon(zcdp_rho(1.0, delta), delta) == pytest.approx(1.0, rel=1e-6)


def released(row: Array, fixed: int) -> Array:
    """The entries that a row adds to, without those of a fixed party's own block."""
    outer = np.outer(row, row)
    outer[:fixed, :fixed] = 0
    return outer[np.triu_indices(len(row))]


def moved(p: list[Array], q: list[Array], fixed: Array | None) -> float:
    beside = [] if fixed is None else [fixed]
    size = 0 if fixed is None else len(fixed)
    return float(
        np.linalg.norm(released(np.concatenate([*beside, *p]), size) - released(np.concatenate([*beside, *q]), size))
    )


@pytest.mark.parametrize("beside_fixed", [False, True])
@pytest.mark.parametrize("parties", [1, 2, 3])
def test_no_two_rows_are_further_apart_than_the_sensitivity(parties: int, beside_fixed: bool) -> None:
    rng = np.random.default_rng(parties)
    clip, most = 1.7, 0.0
    bound = sensitivity(clip, parties, beside_fixed)

    def part(size: int) -> Array:
        drawn = rng.normal(size=size) * (rng.random(size) < rng.choice([0.3, 1.0]))
        length = clip if rng.random() < 0.8 else clip * rng.random()
        return drawn * length / max(np.linalg.norm(drawn), 1e-9)

    for _ in range(2000):
        sizes = rng.integers(1, 4, parties)
        fixed = part(2) if beside_fixed else None
        most = max(most, moved([part(n) for n in sizes], [part(n) for n in sizes], fixed))
    assert most <= bound * (1 + 1e-12)
    # The worst pair of the derivation reaches it: angles whose cosine is 0, or −1/(m + 1) beside a fixed part.
    cosine = -1 / (parties + 1) if beside_fixed else 0.0
    half = math.acos(cosine) / 2
    turned = [math.pi / 4 - half, math.pi / 4 + half]
    p, q = ([clip * np.array([math.cos(angle), math.sin(angle)])] * parties for angle in turned)
    worst = moved(p, q, np.array([clip]) if beside_fixed else None)
    assert worst == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("parties", [1, 2, 3, 6])
def test_noise_is_enough_when_others_work_with_the_receiver(parties: int) -> None:
    """Some parties tell the receiver their parts and their noise: what is left hides the parts of the others.

    Of j parties whose parts change, beside parts of norm² (m + 1 − j)·B² that are known, the entries move by at most
    j(j + 1)(1 − c²) + 2j(m + 1 − j)(1 − c) in the square, for some cosine c.
    """
    c = np.linspace(-1, 1, 20_001)
    for j in range(1, parties + 1):
        moves = j * (j + 1) * (1 - c**2) + 2 * j * (parties + 1 - j) * (1 - c)
        assert moves.max() <= sensitivity(1.0, parties, beside_fixed=True) ** 2 * (1 + 1e-9)


@pytest.mark.parametrize("receiver_noise", [False, True])
def test_integer_rows_keep_to_the_sensitivity(receiver_noise: bool) -> None:
    """Rows as they are summed, clipped and cut to integers: long ones, and ones that floating point could lengthen."""
    plan = plan_of((2, 2), 64, clip=1.3, epsilon=1.0, value_bits=5, receiver_noise=receiver_noise)
    rng = np.random.default_rng(0)
    found = encode_block(plan, "ann", rng.normal(size=(64, 2)).clip(-3, 3) * rng.choice([0.1, 1, 5], (64, 1)), 64)
    assert (np.square(found).sum(1) <= (1.3 * 32) ** 2).all()
    assert (np.square(found).sum(1) > (1.3 * 32 - 2) ** 2).any()
    assert plan.account is not None
    expected = sensitivity(1.3 * 32, 2 if receiver_noise else 1, not receiver_noise)
    assert plan.account.deviation == pytest.approx(expected / math.sqrt(2 * zcdp_rho(1.0, 1e-5)))


def test_noise_is_added_where_the_result_says() -> None:
    """Receiver's own block exact, one party's noise on its sums and its products with the receiver, two on others."""
    plan = plan_of((6, 30, 30), 50, epsilon=1.0, clip=2.0)
    rows = rows_of(plan)
    opened = Run(plan, rows, seed=3).start()
    exact = moments_of({party: cut(rows[party], plan.block_rows) for party in plan.parties}, plan)
    assert opened is not None
    assert plan.account is not None
    noise = opened.gram - exact.gram
    sigma = plan.account.deviation * plan.unit
    ann, bob, cem = (opened.slices[party] for party in plan.parties)
    assert not noise[ann, ann].any()
    for rows_at, columns_at, parties in ((ann, bob, 1), (bob, bob, 1), (bob, cem, 2)):
        block = noise[rows_at, columns_at]
        values = block[np.triu_indices(len(block))] if rows_at == columns_at else block.reshape(-1)
        assert abs(values.var() / (parties * sigma**2) - 1) < 4 * math.sqrt(2 / values.size)
        assert np.allclose(opened.noise[rows_at, columns_at], math.sqrt(parties) * sigma)
    assert np.array_equal(noise, noise.T)


def test_the_twin_has_the_same_noise_in_a_simulation() -> None:
    pytest.importorskip("seal")
    found = []
    for encryption in ("none", "bfv"):
        plan = plan_of((2, 3), 60, encryption, epsilon=1.0, clip=2.0)
        opened = Run(plan, rows_of(plan), seed=5).start()
        assert opened is not None
        found.append(opened.integers)
    assert np.array_equal(*found)


def test_a_receiver_that_adds_noise() -> None:
    plan = plan_of((3, 3), 50, epsilon=1.0, clip=2.0, receiver_noise=True)
    opened = Run(plan, rows_of(plan)).start()
    assert opened is not None
    assert (opened.noise > 0).all()
    assert opened.noise[0, 3] == pytest.approx(math.sqrt(2) * opened.noise[0, 0])


def account(epsilon: float) -> MomentAccount:
    return MomentAccount.planned(epsilon, 1e-5, 1.0, 2, False)


def test_releases_add_up_to_the_budget() -> None:
    spent = account(1.0).rho
    check_budget(account(1.0), None, 1e-5, "a", {})
    check_budget(account(1.0), None, 1e-5, "a", {"a": spent})  # the same one again
    check_budget(account(1.0), 1.5, 1e-5, "b", {"a": spent})  # √2 and a little
    with pytest.raises(InputError, match=r"1\.3 was agreed"):
        check_budget(account(1.0), 1.3, 1e-5, "b", {"a": spent})
    with pytest.raises(InputError, match="no budget"):
        check_budget(account(1.0), None, 1e-5, "b", {"a": spent})
    with pytest.raises(InputError, match="no budget"):
        check_budget(None, 5.0, 1e-5, "b", {"a": spent})
    with pytest.raises(InputError, match="had no noise"):
        check_budget(account(1.0), 50.0, 1e-5, "b", {"a": EXACT})


def test_the_ledger_has_what_a_release_spent(tmp_path) -> None:
    plan = plan_of((2, 3), 60, epsilon=1.0, clip=2.0, rows_digest="rows of today")
    ledgers = {party: Ledger(tmp_path / party) for party in plan.parties}
    run = Run(plan, rows_of(plan))
    run.start(ledgers=ledgers)
    assert plan.account is not None
    spent = releases(read_ledger(tmp_path / "bob"), "rows of today")
    assert spent == {run.states["bob"]["release"]: plan.account.rho}
    assert releases(read_ledger(tmp_path / "bob"), "others") == {}
    assert releases(read_ledger(tmp_path / "ann"), "rows of today") == {}  # the receiver releases nothing
    kinds = {line["kind"] for party in plan.parties for line in read_ledger(tmp_path / party)}
    assert kinds >= {"moment_query", "moment_answer", "moment_share"}


def test_another_release_of_the_same_rows_is_refused() -> None:
    plan: MomentPlan = plan_of((2, 3), 60, epsilon=1.0, clip=2.0)
    with pytest.raises(InputError, match="earlier release"):
        MomentParty(plan, "bob", cut(rows_of(plan)["bob"], 256), SecureDraws(), earlier={"before": 0.03})
