"""The owner of the key attacks a reply: it reads the factor from builds that mask carelessly, and nothing from ours.

The factor is the target's U. It is uniform and used once, so it tells nothing by itself; but the target also opens
E = S − U, and who knows U then knows S, the target's share of the weights, and with its own share all weights.
"""

from __future__ import annotations

import numpy as np
import pytest

seal = pytest.importorskip("seal")

from bfv_holder import CuriousHolder, centred, negacyclic, transformed_back  # noqa: E402
from veracausa.crypto import ring  # noqa: E402
from veracausa.crypto.backends import make_encryption  # noqa: E402
from veracausa.crypto.backends.bfv.ciphertexts import (  # noqa: E402
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
from veracausa.crypto.backends.bfv.envelope import HEAD  # noqa: E402
from veracausa.crypto.backends.bfv.keys import PublicKey, flooded  # noqa: E402
from veracausa.crypto.backends.bfv.noise import fresh_noise, ternary  # noqa: E402
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, FLOODED, PRIMES, SENT  # noqa: E402
from veracausa.crypto.draws import SecureDraws  # noqa: E402
from veracausa.crypto.ring import P, Ring  # noqa: E402

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


def masked_plainly(own: seal.Ciphertext, u: Ring, mask: Ring) -> seal.Ciphertext:
    """The broken build: X·U under the holder's key, and the mask added to the message only."""
    reply = scheme().evaluator.multiply_plain(own, factor(encode(u)))
    scheme().evaluator.transform_from_ntt_inplace(reply)
    scheme().evaluator.add_plain_inplace(reply, encode(mask))
    return reply


def test_plain_masks_give_the_weights_away(holder: CuriousHolder) -> None:
    x, u, s = DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE)
    own = holder.encrypt(x)
    found = slots(divided(own, masked_plainly(own, u, DRAWS.uniform(DEGREE)), FLOODED - 1))
    assert np.array_equal(found, u)
    opened = ring.subtract(s, u)
    assert np.array_equal(ring.add(opened, found), s)


def test_an_encrypted_mask_does_not(holder: CuriousHolder) -> None:
    """The same attack on the same product, even before any prime is dropped."""
    x, u = DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE)
    own = holder.encrypt(x)
    hidden = PublicKey(holder.public_key()).hidden(0, factor(plaintext(ternary())), [(own, factor(encode(u)))])
    found = divided(own, hidden, FLOODED - 1)
    assert not (slots(found) == u).any()
    # A quotient without u and noise would stay below P/2; this one is as large as its prime lets it be.
    assert np.mean(np.abs(found) > P // 2) > 0.3


@pytest.mark.parametrize("at", range(SENT))
def test_what_is_sent_does_not(at: int) -> None:
    """One row, one column: a single ciphertext enters the product, the easiest case for the attack."""
    owner, peer = make_encryption("bfv"), make_encryption("bfv")
    encrypted = owner.encrypt_rows([np.array([[3.0]])], DEGREE)
    u, mask = DRAWS.uniform(1, 1, DEGREE), DRAWS.uniform(1, DEGREE)
    reply = peer.open_rows(owner.public_key(), encrypted, [1], 1, DEGREE).forward([0], u, mask)
    own = load(unpack("rows", encrypted[HEAD:].tobytes(), ALL), transformed=True)
    sent = load(unpack("forward", reply[-packed_size(SENT) :].tobytes(), SENT), transformed=False)
    found = divided(own, sent, at)
    assert not (slots(found) == u[0, 0]).any()
    wanted = centred(np.array(_coefficients(u[0, 0]), dtype=object), P)
    assert abs(np.corrcoef(found.astype(float), wanted.astype(float))[0, 1]) < BY_CHANCE


def _coefficients(u: Ring) -> list[int]:
    written = encode(u).to_bytes()[-8 * DEGREE :]
    return np.frombuffer(written, dtype=np.uint64).tolist()


class TestNoise:
    """Encrypted masks hide the polynomials. The holder can still read the noise, and there is U times its own noise."""

    def product(self, holder: CuriousHolder, u: Ring) -> tuple[seal.Ciphertext, seal.Ciphertext]:
        own = holder.encrypt(DRAWS.uniform(DEGREE))
        key = PublicKey(holder.public_key())
        return own, key.hidden(0, factor(plaintext(ternary())), [(own, factor(encode(u)))])

    def guess(self, holder: CuriousHolder, own: seal.Ciphertext, reply: seal.Ciphertext) -> np.ndarray:
        """The attack: the noise of the reply over the holder's own noise, in real numbers."""
        return negacyclic(holder.noise(reply), holder.noise(own), divide=True)

    def test_without_a_flood_it_shows_the_factor(self, holder: CuriousHolder) -> None:
        """The broken build: a fresh encryption of the mask, and that is all. 40 of 58 bits of U are read off."""
        u = DRAWS.uniform(DEGREE)
        own, reply = self.product(holder, u)
        evaluator = scheme().evaluator
        evaluator.transform_from_ntt_inplace(reply)
        evaluator.add_inplace(reply, load(fresh_noise()[0], transformed=False))
        evaluator.add_plain_inplace(reply, encode(DRAWS.uniform(DEGREE)))
        wanted = centred(np.array(_coefficients(u), dtype=object), P).astype(float)
        missed = np.abs(self.guess(holder, own, reply) - wanted)
        assert np.median(missed) < 2.0**18

    @pytest.mark.parametrize("flood", [False, True])
    def test_the_flood_is_what_hides_it(self, holder: CuriousHolder, flood: bool) -> None:
        """After one prime is dropped, where the flood goes in: without it the noise is mostly U·e still."""
        u = DRAWS.uniform(DEGREE)
        own, reply = self.product(holder, u)
        evaluator = scheme().evaluator
        noise, flooding = fresh_noise()
        evaluator.transform_from_ntt_inplace(reply)
        evaluator.add_inplace(reply, load(noise, transformed=False))
        evaluator.mod_switch_to_next_inplace(reply)
        evaluator.add_plain_inplace(reply, encode(DRAWS.uniform(DEGREE)))
        if flood:
            evaluator.add_inplace(reply, load(flooding, transformed=False))
        wanted = centred(np.array(_coefficients(u), dtype=object), P).astype(float)
        expected = negacyclic(wanted, holder.noise(own))
        found = np.corrcoef(holder.noise(reply), expected)[0, 1]
        assert abs(found) < BY_CHANCE if flood else found > 0.8

    def test_what_is_sent_shows_nothing(self, holder: CuriousHolder) -> None:
        u = DRAWS.uniform(DEGREE)
        own, reply = self.product(holder, u)
        sent = flooded(reply, DRAWS.uniform(DEGREE))
        wanted = centred(np.array(_coefficients(u), dtype=object), P).astype(float)
        assert abs(np.corrcoef(self.guess(holder, own, sent), wanted)[0, 1]) < BY_CHANCE
        expected = negacyclic(wanted, holder.noise(own))
        assert abs(np.corrcoef(holder.noise(sent), expected)[0, 1]) < BY_CHANCE
