"""What a malicious active party can do with heads, on the protocol's own dither, book and names of heads."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.crypto import ring
from veracausa.errors import RunError
from veracausa.training.blind.answers import SCORE_BITS, dither
from veracausa.training.blind.book import AnswerBook
from veracausa.training.blind.kept_head import head_name

ROWS, WIDTH, SCORES, STEP = 6, 4, 2, 0.5
KEY = b"k" * 32
NAMES = [f"row {number}".encode() for number in range(ROWS)]


def named(weights: np.ndarray) -> bytes:
    """The name of a head whose bytes are these."""
    return head_name(weights.view(np.uint8), np.zeros(4, dtype=np.uint8), b"toss")


def answered(features: np.ndarray, weights: np.ndarray, book: AnswerBook, name: bytes | None = None) -> np.ndarray:
    """What is opened of one passive party, which knows the head by its bytes, or by a name that was given."""
    name = named(weights) if name is None else name
    book.enter(NAMES, name, "clinic")
    blur = ring.centred(dither(KEY, name, NAMES, SCORES, STEP)).T / 2.0**SCORE_BITS
    return np.asarray(features @ weights + blur)


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH))


def test_a_head_is_known_by_its_bytes_so_a_second_one_is_refused(features: np.ndarray) -> None:
    book, first = AnswerBook(None, KEY), np.eye(WIDTH)[:, :SCORES].copy()
    once, again = (answered(features, first, book) for _ in range(2))
    assert np.array_equal(once, again)  # asked twice, nothing is averaged away
    assert np.abs(once - features[:, :SCORES]).max() > STEP / 20
    with pytest.raises(RunError, match="another head"):
        answered(features, np.eye(WIDTH)[:, SCORES:].copy(), book)


def test_a_name_that_the_active_party_chose_would_open_everything(features: np.ndarray) -> None:
    """Why heads are known by their bytes: under one name all heads pass the book, and the blur falls out."""
    book, name = AnswerBook(None, KEY), b"f" * 32
    nothing = answered(features, np.zeros((WIDTH, SCORES)), book, name)
    heads = [np.eye(WIDTH)[:, start : start + SCORES].copy() for start in range(0, WIDTH, SCORES)]
    read = [answered(features, head, book, name) - nothing for head in heads]
    assert np.allclose(np.concatenate(read, axis=1), features)


def test_a_stretched_head_makes_the_blur_as_small_as_it_likes(features: np.ndarray) -> None:
    """The limit that stays: one head may be chosen, and no blur bounds what its numbers carry."""
    stretched = 1000.0 * np.eye(WIDTH)[:, :SCORES]
    found = answered(features, np.ascontiguousarray(stretched), AnswerBook(None, KEY)) / 1000.0
    assert np.abs(found - features[:, :SCORES]).max() <= STEP / 1000
