"""What an owner can read of an answer: uniform numbers in every coefficient. A build that masks results alone fails."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("seal")

from bfv_holder import CuriousHolder
from moment_runs import Run, plan_of, rows_of
from veracausa.crypto import ring
from veracausa.crypto.backends.bfv.ciphertexts import (
    ALL,
    DEGREE,
    SENT,
    SUMMED,
    coefficients,
    factor,
    load,
    packed_size,
    plaintext,
    residues_of,
    scheme,
    typical_noise,
    unpack,
    wrong_bits,
)
from veracausa.crypto.backends.bfv.keys import (
    SEED,
    BfvPublicKey,
    chunks,
    first_half,
    second_half,
    ternary,
)
from veracausa.crypto.moments.bfv_pairs import BfvAnswerer, BfvKeys, BfvOwner, partial_sums
from veracausa.crypto.moments.packing import PairPacking
from veracausa.crypto.moments.plan import LARGEST_SUM
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.crypto.ring import P, Ring
from veracausa.errors import RunError

LEAST = 1e-6
ROWS = 256


class Answered:
    """One pair up to the answer."""

    def __init__(self, columns: int = 5, factors: int = 6) -> None:
        toss = Toss(os.urandom(32))
        self.owner, self.answerer = BfvKeys(toss, "owner"), BfvKeys(toss, "answerer")
        self.answerer.meet("owner", self.owner.public_key())
        self.packing = PairPacking.best(columns, factors, ROWS, ROWS)
        rng = np.random.default_rng(0)
        self.rows, self.own = (rng.integers(-9, 10, (ROWS, width)).astype(float) for width in (columns, factors))
        owning = self.owner.owner("answerer", self.packing)
        answering = self.answerer.answerer("owner", self.packing, SecureDraws())
        assert isinstance(owning, BfvOwner)
        assert isinstance(answering, BfvAnswerer)
        self.owning, self.answering = owning, answering
        for task in self.answering.tasks(0, self.owning.query(0, self.rows), self.own):
            self.answering.add(partial_sums(task))

    def partial_products(self) -> Ring:
        """What each coefficient of the first reply would hold without a mask."""
        (left,), right = self.packing.polynomials(self.rows), self.packing.factor(self.own[:, 0])
        assert right is not None
        long = np.zeros(2 * DEGREE, dtype=np.int64)
        for at in np.flatnonzero(right):
            long[at : at + DEGREE] += ring.centred(right.astype(np.int64))[at] * ring.centred(left.astype(np.int64))
        return ring.reduce(long[:DEGREE] - long[DEGREE:])


@pytest.fixture(scope="module")
def pair() -> Answered:
    return Answered()


def test_a_build_that_masks_results_alone_shows_products_of_single_rows(pair: Answered) -> None:
    """The mask lies on the coefficients that are wanted. All others can be read, the first of them of two rows only."""
    total = pair.answering._totals[0]
    mask = np.zeros(DEGREE, dtype=np.uint64)
    at = slice(pair.packing.group_rows - 1, None, pair.packing.group_rows)
    mask[at] = SecureDraws().uniform(len(mask[at])).astype(np.uint64)
    evaluator = scheme().evaluator
    reply = evaluator.transform_from_ntt(load(total[0], total[1], transformed=True))
    evaluator.add_plain_inplace(reply, plaintext(mask))
    read = coefficients(pair.owner._secret._decryptor.decrypt(reply))
    expected = pair.partial_products()
    others = np.ones(DEGREE, dtype=bool)
    others[at] = False
    assert np.array_equal(read[others], expected[others])
    assert ring.centred(read[:1])[0] == pair.rows[-1, 0] * pair.own[0, 0]
    assert not (read[at] == expected[at]).any()


def test_every_coefficient_of_an_answer_is_uniform(pair: Answered) -> None:
    """At the owner and at the answerer; together they are the products, those of single rows too."""
    (answer,) = pair.answering.replies()
    shares = pair.answerer._peers["owner"].coefficient_replies(pair.answering._totals)[1]
    payload = memoryview(answer.data)[64:]
    seed = bytes(payload[:SEED])
    read = [
        pair.owner._secret.decrypt_coefficients("test", first_half(seed, at), second)
        for at, second in enumerate(chunks(payload[SEED:], packed_size(SENT)))
    ]
    expected = pair.partial_products()
    for seen in (*read, *shares):
        assert not (seen == expected).any()
        counts = np.histogram(seen, bins=64, range=(0, P))[0]
        assert chisquare(counts).pvalue > LEAST
    numbers = np.concatenate([*read, *shares])
    assert len(np.unique(numbers)) == numbers.size
    parts, shares = pair.answerer._peers["owner"].coefficient_replies(pair.answering._totals[:1])
    opened = pair.owner._secret.decrypt_coefficients("test", first_half(parts[0], 0), memoryview(parts[1]))
    assert np.array_equal(ring.add(opened, shares[0]), expected)


def test_shares_of_a_run_are_uniform() -> None:
    """All that crosses to the receiver of a pair of others, over some runs."""
    plan = plan_of((1, 12, 12), 50, "bfv")
    seen = []
    for number in range(3):
        run = Run(plan, rows_of(plan, number))
        run.start()
        seen += [run.states[party]["shares"][peer]["share"].numpy() for party, peer in (("bob", "cem"), ("cem", "bob"))]
    for side in (seen[::2], seen[1::2]):
        counts = np.histogram(np.stack(side), bins=16, range=(0, P))[0]
        assert chisquare(counts).pvalue > LEAST


def test_noise_of_the_largest_sums() -> None:
    """With factors as large as the field lets them be, one dropped prime leaves noise of rounding alone."""
    holder = CuriousHolder()
    rows, stretches = DEGREE // 4, 16
    most = int(np.sqrt(LARGEST_SUM // (rows * stretches)))
    rng = np.random.default_rng(0)
    key = BfvPublicKey(holder.toss, "holder", holder.public_key())
    evaluator = scheme().evaluator
    halves = residues_of(key._zeros[0])[:, :SUMMED]
    total = evaluator.multiply_plain(load(halves[0], halves[1], transformed=True), factor(plaintext(ternary()), SUMMED))
    for at in range(stretches):
        values = np.mod(rng.integers(-most, most + 1, DEGREE), P).astype(np.uint64)
        times = np.zeros(DEGREE, dtype=np.uint64)
        times[:rows] = np.mod(rng.choice([-most, most], rows), P)
        first = unpack("own", holder.key.encrypt_coefficients(values, "own", at), SUMMED)
        ciphertext = load(first, second_half(holder.toss, "holder", "own", at, primes=SUMMED), transformed=True)
        evaluator.add_inplace(total, evaluator.multiply_plain(ciphertext, factor(plaintext(times), SUMMED)))
    evaluator.transform_from_ntt_inplace(total)
    evaluator.mod_switch_to_next_inplace(total)
    assert total.coeff_modulus_size() == SENT
    noise = holder.noise(total).std()
    assert noise < 2 * typical_noise(0)
    assert wrong_bits(2 * typical_noise(0)) > 42


def test_nothing_is_encrypted_twice_for_one_purpose(pair: Answered) -> None:
    with pytest.raises(RunError, match="two ciphertexts"):
        pair.owning.query(0, pair.rows)


def test_a_query_is_never_the_same() -> None:
    queries = [Answered().owning.query(1, np.ones((ROWS, 5))).tobytes() for _ in range(2)]
    assert queries[0] != queries[1]
    assert ALL > SUMMED > SENT
