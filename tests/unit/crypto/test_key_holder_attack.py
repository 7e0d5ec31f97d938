"""The owner of the key attacks a reply: it reads the factor from builds that mask carelessly, and nothing from ours.

The factor is the target's U. It is uniform and used once, so it tells nothing by itself; but the target also opens
E = S − U, and who knows U then knows S, the target's share of the weights, and with its own share all weights.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

seal = pytest.importorskip("seal")

from bfv_holder import CuriousHolder, centred, negacyclic, transformed_back  # noqa: E402
from veracausa.crypto import ring  # noqa: E402
from veracausa.crypto.backends.bfv import keys  # noqa: E402
from veracausa.crypto.backends.bfv.ciphertexts import (  # noqa: E402  # noqa: E402
    ALL,
    DEGREE,
    PRIMES,
    SENT,
    Residues,
    decode,
    encode,
    factor,
    load,
    packed_size,
    plaintext,
    residues_of,
    scheme,
    unpack,
)
from veracausa.crypto.backends.bfv.keys import BfvPublicKey, answered, first_half, fresh_noise, ternary  # noqa: E402
from veracausa.crypto.randomness import SecureDraws, Toss  # noqa: E402
from veracausa.crypto.ring import P, Ring  # noqa: E402
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair  # noqa: E402

DRAWS = SecureDraws()


@pytest.fixture(scope="module")
def holder() -> CuriousHolder:
    return CuriousHolder()


BY_CHANCE = 6 / np.sqrt(DEGREE)
"""A correlation of independent numbers is that large about once in 10^9."""


def divided(own: seal.Ciphertext, reply: seal.Ciphertext, at: int) -> np.ndarray:
    """The attack: the second half of a product is own·U, so U is their quotient, slot by slot of the transform."""
    if not reply.is_ntt_form():
        reply = scheme().evaluator.transform_to_ntt(reply)
    prime = PRIMES[at]
    halves = zip(residues_of(own)[1, at].tolist(), residues_of(reply)[1, at].tolist(), strict=True)
    quotient = np.zeros((2, reply.coeff_modulus_size(), DEGREE), dtype=np.uint64)
    quotient[:, at] = [top * pow(bottom, -1, prime) % prime for bottom, top in halves]
    return centred(transformed_back(quotient, reply)[0, at].astype(object), prime)


def slots(polynomial: np.ndarray) -> Ring:
    return decode(plaintext((polynomial % P).astype(np.uint64)))


def coefficients(u: Ring) -> np.ndarray:
    written = encode(u).to_bytes()[-8 * DEGREE :]
    return np.frombuffer(written, dtype=np.uint64).astype(object)


def masked_plainly(own: seal.Ciphertext, u: Ring, mask: Ring) -> seal.Ciphertext:
    """The broken build: X·U under the holder's key, and the mask added to the message only."""
    reply = scheme().evaluator.multiply_plain(own, factor(encode(u)))
    scheme().evaluator.transform_from_ntt_inplace(reply)
    scheme().evaluator.add_plain_inplace(reply, encode(mask))
    return reply


def hidden(holder: CuriousHolder, own: seal.Ciphertext, u: Ring) -> seal.Ciphertext:
    key = BfvPublicKey(holder.toss, "holder", holder.public_key())
    return key.hidden(0, factor(plaintext(ternary())), [(own, factor(encode(u)))])


def test_plain_masks_give_the_weights_away(holder: CuriousHolder) -> None:
    x, u, s = DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE)
    own = holder.encrypt(x)
    found = slots(divided(own, masked_plainly(own, u, DRAWS.uniform(DEGREE)), 0))
    assert np.array_equal(found, u)
    opened = ring.subtract(s, u)
    assert np.array_equal(ring.add(opened, found), s)


def test_an_encrypted_mask_does_not(holder: CuriousHolder) -> None:
    """The same attack on the same product, even before any prime is dropped."""
    x, u = DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE)
    own = holder.encrypt(x)
    found = divided(own, hidden(holder, own, u), 0)
    assert not (slots(found) == u).any()
    # A quotient without u and noise would stay below P/2; this one is as large as its prime lets it be.
    assert np.mean(np.abs(found) > P // 2) > 0.3


@pytest.mark.parametrize("at", range(SENT))
def test_what_is_sent_does_not(at: int) -> None:
    """One row, one column: a single ciphertext enters the product, the easiest case for the attack."""
    owner, peer = tossed_pair("bfv")
    encrypted = owner.encrypt_rows(PEER, [np.array([[3.0]])], DEGREE)
    u = DRAWS.uniform(1, 1, DEGREE)
    rows = peer.open_rows(OWNER, encrypted, [1], 1, DEGREE)
    reply, _ = rows.forward([0], u, DRAWS)
    ((((own,),),),) = rows._blocks
    second = unpack("forward", reply[-packed_size(SENT) :].tobytes(), SENT)
    found = divided(own, load(second, second, transformed=False), at)
    assert not (slots(found) == u[0, 0]).any()
    wanted = centred(coefficients(u[0, 0]), P)
    assert abs(np.corrcoef(found.astype(float), wanted.astype(float))[0, 1]) < BY_CHANCE


class TestNoise:
    """Encrypted masks hide the polynomials. The holder can still read the noise, and there is U times its own noise."""

    def product(self, holder: CuriousHolder, u: Ring) -> tuple[seal.Ciphertext, seal.Ciphertext]:
        own = holder.encrypt(DRAWS.uniform(DEGREE))
        return own, hidden(holder, own, u)

    def guess(self, holder: CuriousHolder, own: seal.Ciphertext, reply: seal.Ciphertext) -> np.ndarray:
        """The attack: the noise of the reply over the holder's own noise, in real numbers."""
        return negacyclic(holder.noise(reply), holder.noise(own), divide=True)

    def test_a_mask_on_the_message_alone_shows_the_factor(self, holder: CuriousHolder) -> None:
        """The broken build: a fresh encryption of the mask, and that is all. 40 of 58 bits of U are read off."""
        u = DRAWS.uniform(DEGREE)
        own, reply = self.product(holder, u)
        evaluator, noise = scheme().evaluator, fresh_noise()
        evaluator.transform_from_ntt_inplace(reply)
        evaluator.add_inplace(reply, load(np.zeros_like(noise), noise, transformed=False))
        evaluator.add_plain_inplace(reply, encode(DRAWS.uniform(DEGREE)))
        wanted = centred(coefficients(u), P).astype(float)
        missed = np.abs(self.guess(holder, own, reply) - wanted)
        assert np.median(missed) < 2.0**18

    def test_what_is_sent_shows_nothing(self, holder: CuriousHolder) -> None:
        u = DRAWS.uniform(DEGREE)
        own, reply = self.product(holder, u)
        first = first_half(os.urandom(32), 0)
        sent = load(first, answered(reply, first)[0], transformed=False)
        wanted = centred(coefficients(u), P).astype(float)
        assert abs(np.corrcoef(self.guess(holder, own, sent), wanted)[0, 1]) < BY_CHANCE
        expected = negacyclic(wanted, holder.noise(own))
        assert abs(np.corrcoef(holder.noise(sent), expected)[0, 1]) < BY_CHANCE


class TestChosenSecondHalves:
    """An owner that does not follow: zeros of its key that hide nothing, and a row whose second half is a constant.

    When two primes are dropped, a constant of their product + 1 becomes 1, so that the reply *is* the factor.
    """

    def read(self) -> tuple[Ring, Ring]:
        """What the owner takes the factors for, and what they are; the peer refuses nothing."""
        owner, peer = tossed_pair("bfv")
        rows = peer.open_rows(OWNER, owner.encrypt_rows(PEER, [np.array([[3.0]])], DEGREE), [1], 1, DEGREE)
        u = DRAWS.uniform(1, 1, DEGREE)
        reply, kept = rows.forward([0], u, DRAWS)
        opened = owner.decrypt_forward(reply, [1], 1, DEGREE)
        assert np.array_equal(ring.add(opened, kept), ring.scale(u[0], 3))  # all looks as it should
        second = unpack("forward", reply[-packed_size(SENT) :].tobytes(), SENT)
        return slots(centred(second[0].astype(object), PRIMES[0])), u[0, 0]

    @staticmethod
    def chosen(toss: Toss, owner: str, *purpose: str | int) -> Residues:
        """The broken build, which takes second halves as their owner chose them."""
        moduli = np.array(PRIMES, dtype=object)[:, None]
        if purpose[0] == "rows":
            constant = math.prod(PRIMES[SENT:]) + 1
            return np.broadcast_to(constant % moduli, (ALL, DEGREE)).astype(np.uint64)
        linear = np.zeros((ALL, DEGREE), dtype=np.uint64)
        linear[:, 0], linear[:, 1] = 2 + int(purpose[-1]), 3
        return residues_of(scheme().evaluator.transform_to_ntt(load(linear, linear, transformed=False)))[0]

    def test_the_broken_build_is_read_like_a_book(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keys, "second_half", self.chosen)
        found, u = self.read()
        assert np.array_equal(found, u)

    def test_of_ours_not_one_mask_is_read(self) -> None:
        found, u = self.read()
        assert not (found == u).any()

    def test_what_the_owner_encrypts_with_halves_of_its_own_is_multiplied_with_the_tossed_ones(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The live attack: only the owner's own build is broken. It sends first halves that fit what it chose."""
        toss = Toss(os.urandom(32))
        with monkeypatch.context() as broken:
            broken.setattr(keys, "second_half", self.chosen)
            owner = keys.BfvSecretKey(toss, OWNER)
            row = owner.encrypt(np.full(DEGREE, 3), "rows", PEER, 1, DEGREE, 0)
        key = BfvPublicKey(toss, OWNER, owner.public_bytes)
        own = key.ciphertext(unpack("rows", row, ALL), "rows", PEER, 1, DEGREE, 0)
        u = DRAWS.uniform(DEGREE)
        (_, second), _ = key.replies(iter([[(own, factor(encode(u)))]]))
        residues = unpack("forward", second, SENT)
        for at in range(SENT):
            found = centred(residues[at].astype(object), PRIMES[at])
            assert not (slots(found) == u).any()
            assert abs(np.corrcoef(found.astype(float), centred(coefficients(u), P).astype(float))[0, 1]) < BY_CHANCE


class TestChosenFirstHalves:
    """An owner whose first halves are no encryptions: half the modulus in one moves a reply by half a message where
    the factor is odd. A flood that leaves room for noise also leaves room for that; ours leaves none."""

    def product(self, holder: CuriousHolder, u: Ring) -> seal.Ciphertext:
        first, second = residues_of(holder.encrypt(DRAWS.uniform(DEGREE)))
        half = math.prod(PRIMES) // 2
        moved = [(limb.astype(object) + half) % prime for limb, prime in zip(first, PRIMES, strict=True)]
        return hidden(holder, load(np.array(moved).astype(np.uint64), second, transformed=True), u)

    def odd(self, holder: CuriousHolder, reply: seal.Ciphertext) -> np.ndarray:
        """The attack: where the reply lies nearer to the middle between two messages than to a message."""
        return np.abs(holder.noise(reply)) > math.prod(PRIMES[:SENT]) / P / 4

    def test_a_flood_of_a_quarter_gives_a_bit_of_every_coefficient_away(self, holder: CuriousHolder) -> None:
        u = DRAWS.uniform(DEGREE)
        reply, evaluator, noise = self.product(holder, u), scheme().evaluator, fresh_noise()
        evaluator.transform_from_ntt_inplace(reply)
        evaluator.add_inplace(reply, load(np.zeros_like(noise), noise, transformed=False))
        for _ in range(ALL - SENT):
            evaluator.mod_switch_to_next_inplace(reply)
        evaluator.add_plain_inplace(reply, encode(DRAWS.uniform(DEGREE)))
        rng = np.random.default_rng(0)
        wide = int(math.prod(PRIMES[:SENT]) / P) // 8
        drawn = np.array([int(w * wide) for w in rng.uniform(-1, 1, DEGREE)], dtype=object)
        flood = np.array([drawn % prime for prime in PRIMES[:SENT]]).astype(np.uint64)
        evaluator.add_inplace(reply, load(flood, np.zeros_like(flood), transformed=False))
        assert np.array_equal(self.odd(holder, reply), centred(coefficients(u), P) % 2 == 1)

    def test_ours_gives_none(self, holder: CuriousHolder) -> None:
        u = DRAWS.uniform(DEGREE)
        first = first_half(os.urandom(32), 0)
        second, _ = answered(self.product(holder, u), first)
        guessed = self.odd(holder, load(first, second, transformed=False)) == (centred(coefficients(u), P) % 2 == 1)
        assert abs(guessed.mean() - 0.5) < BY_CHANCE / 2
