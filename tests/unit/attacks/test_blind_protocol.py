"""Limits of blind training that its page states, shown on the protocol's own parts: against them nothing is claimed."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.crypto import ring
from veracausa.crypto.randomness import SecureDraws
from veracausa.errors import RunError
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair
from veracausa.training.blind.answers import (
    AnswerShape,
    HeldHead,
    OwnedHead,
    dither,
    encoded_weights,
    opened_scores,
)
from veracausa.training.blind.book import AnswerBook

ROWS, WIDTH, SCORES, STEP = 6, 4, 2, 0.5
KEY, NAME = b"k" * 32, b"f" * 32
NAMES = [f"row {number}".encode() for number in range(ROWS)]


def answered(features: np.ndarray, weights: np.ndarray, book: AnswerBook, name: bytes) -> np.ndarray:
    """One session with one passive party, whose part is opened alone."""
    owner, peer = tossed_pair("none")
    shape = AnswerShape(WIDTH, SCORES, ROWS)
    owned = OwnedHead(owner, PEER, encoded_weights(weights, 15.0), shape)
    held = HeldHead(peer, OWNER, owned.encrypted, shape, SecureDraws())
    book.enter(NAMES, name, PEER)
    reply, share = held.answer(features, dither(KEY, name, NAMES, SCORES, STEP))
    return opened_scores([owned.open(reply), share], ROWS)


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH))


def test_the_book_holds_a_party_that_names_its_heads_truly_to_one(features: np.ndarray) -> None:
    book = AnswerBook(None, KEY)
    first = answered(features, np.eye(WIDTH)[:, :SCORES], book, NAME)
    again = answered(features, np.eye(WIDTH)[:, :SCORES], book, NAME)
    assert np.array_equal(first, again)  # asked twice, nothing is averaged away
    assert np.abs(first - features[:, :SCORES]).max() > STEP / 20
    with pytest.raises(RunError, match="another head"):
        answered(features, np.eye(WIDTH)[:, SCORES:], book, b"g" * 32)


def test_a_head_that_changes_under_its_name_is_not_noticed(features: np.ndarray) -> None:
    """Every session encrypts the head anew, and a passive party knows it by name alone: it must be trusted.

    The blur of a row goes by that name, too, so it falls out of the difference of two such answers.
    """
    book = AnswerBook(None, KEY)
    nothing = answered(features, np.zeros((WIDTH, SCORES)), book, NAME)
    read = [
        answered(features, np.eye(WIDTH)[:, start : start + SCORES], book, NAME) - nothing
        for start in range(0, WIDTH, SCORES)
    ]
    assert np.allclose(np.concatenate(read, axis=1), features, atol=1e-3)


def test_a_stretched_head_makes_the_blur_as_small_as_it_likes(features: np.ndarray) -> None:
    stretched = 1000.0 * np.eye(WIDTH)[:, :SCORES]
    found = answered(features, stretched, AnswerBook(None, KEY), NAME) / 1000.0
    assert np.abs(found - features[:, :SCORES]).max() <= STEP / 1000 + 1e-4
    assert ring.P > 2**40 * 2  # a number has room for far more than the blur hides
