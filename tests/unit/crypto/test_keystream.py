"""The words that noise is made of: ChaCha20 as it is published, and keys that tell nothing of each other."""

from __future__ import annotations

import numpy as np

from veracausa.crypto.randomness import Keystream, subkey


def test_the_published_keystream() -> None:
    """RFC 8439, appendix A.1, vectors 1 and 2: key, nonce and counter 0, then counter 1."""
    words = Keystream(bytes(32)).words(32).tobytes().hex()
    assert words.startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert words[128:].startswith("9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed")


def test_a_word_is_drawn_once() -> None:
    whole, parts = Keystream(b"k" * 32), Keystream(b"k" * 32)
    pieces = [parts.words(count) for count in (1, 5, 100, 0, 22)]
    assert np.array_equal(np.concatenate(pieces), whole.words(128))


def test_purposes_have_keys_of_their_own() -> None:
    row = memoryview(b"ab")
    keys = {
        subkey(b"k" * 32, *purpose) for purpose in [("a", "b"), ("ab",), ("a", "b", ""), ("a", 1), (row, 1), (row,)]
    }
    assert len(keys) == 5  # words and bytes that read the same are the same
    assert all(len(key) == 32 for key in keys)
    assert subkey(b"l" * 32, "ab") not in keys
