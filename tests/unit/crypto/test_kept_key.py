"""A key that was kept opens what the first one opens, encrypts nothing, and is checked against its public key."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

pytest.importorskip("seal")

from veracausa.crypto.backends import kept_encryption, make_encryption
from veracausa.crypto.backends.bfv.keys import BfvSecretKey
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.errors import InputError, RunError
from veracausa.testing.synthetic import OWNER, PEER, met

TOSS = Toss(os.urandom(32))


@pytest.fixture(scope="module")
def pair():
    return met(make_encryption("bfv", TOSS, OWNER), make_encryption("bfv", TOSS, PEER))


def kept(owner):
    return kept_encryption("bfv", owner.secret_bytes(), Toss(TOSS.seed), OWNER, owner.public_key())


def test_it_opens_the_same_numbers(pair):
    owner, peer = pair
    encrypted = owner.encrypt_rows(PEER, [np.ones((3, 4))], 50)
    reply, _ = peer.open_rows(OWNER, encrypted, [3], 4, 50).forward([0], SecureDraws().uniform(1, 4, 50), SecureDraws())
    again = kept(owner)
    again.expect_rows([3], 4, 50)
    assert np.array_equal(again.decrypt_forward(reply, [3], 4, 50), owner.decrypt_forward(reply, [3], 4, 50))


def test_it_encrypts_nothing(pair):
    """It cannot know which second halves were used, and two ciphertexts with one show their difference."""
    again = kept(pair[0])
    with pytest.raises(RunError, match="encrypts nothing"):
        again.encrypt_rows(PEER, [np.ones((2, 3))], 7)
    with pytest.raises(RunError, match="encrypts nothing"):
        again.encrypt(PEER, 1, np.ones(3, dtype=np.int64))
    with pytest.raises(RunError, match="encrypts nothing"):
        again._secret.encrypt_coefficients(np.ones(8192, dtype=np.uint64), "sums")


def test_bytes_of_another_key_are_refused(pair):
    owner, _ = pair
    secret = bytearray(owner.secret_bytes())
    other = make_encryption("bfv", TOSS, OWNER).secret_bytes()
    secret[5] = (secret[5] + 1) % 3
    for wrong in (bytes(secret), other):
        with pytest.raises(RunError, match="does not belong to its public key"):
            kept_encryption("bfv", wrong, TOSS, OWNER, owner.public_key())
    for wrong in (b"", other[:-1], b"\x03" * 8192, bytes(8192)):
        with pytest.raises(RunError, match="is none of this encryption"):
            kept_encryption("bfv", wrong, TOSS, OWNER, owner.public_key())
    with pytest.raises(RunError, match="does not belong"):
        kept_encryption("bfv", owner.secret_bytes(), Toss(os.urandom(32)), OWNER, owner.public_key())


def test_it_still_has_no_serializer(pair):
    for key in (BfvSecretKey(TOSS, OWNER), kept(pair[0])._secret):
        with pytest.raises(TypeError, match="no serializer"):
            pickle.dumps(key)
        assert key.secret_bytes().hex()[:32] not in repr(key)


def test_no_other_encryption_keeps_a_key():
    with pytest.raises(InputError, match="no key that can be kept"):
        kept_encryption("paillier", b"", TOSS, OWNER, np.zeros(0, dtype=np.uint8))
