"""Triples of one ordered pair: both halves together are the product, and each is handed out once."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import Field

from veracausa.crypto.randomness import SecureDraws
from veracausa.crypto.ring import P
from veracausa.crypto.triples import Needs, OneTimePool, Shape, ask, open_asked
from veracausa.errors import RunError, WireError
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair


def test_both_halves_are_shares_of_the_products() -> None:
    rng = np.random.default_rng(0)
    shape = Shape((4, 4, 3), 2, 5, 3)
    batches = [rng.integers(-2047, 2048, (n, 2)).astype(float) for n in shape.sizes]
    source, target = tossed_pair("none")
    rows = target.open_rows(OWNER, source.encrypt_rows(PEER, batches, 5), shape.sizes, 2, 5)
    needs = Needs(forward=(1, 0, 2, 1), backward=(0, 1))
    mine, parts = ask(shape, rows, rows, needs, SecureDraws())
    theirs = open_asked(shape, source, needs, parts)
    for at, batch in enumerate(needs.forward):
        product = batches[batch].astype(int).astype(object) @ mine.weight_masks[at].astype(object)
        assert ((mine.features[at] + theirs.features[at]) % P).tolist() == (product % P).tolist()
    for at, batch in enumerate(needs.backward):
        product = batches[batch].T.astype(int).astype(object) @ mine.gradient_masks[at].astype(object)
        assert ((mine.increments[at] + theirs.increments[at]) % P).tolist() == (product % P).tolist()
    with pytest.raises(WireError, check=Field("triples.backward")):
        open_asked(shape, source, needs, {"forward": parts["forward"]})
    with pytest.raises(WireError):
        open_asked(shape, source, needs, parts | {"backward": parts["backward"][8:]})


def test_a_triple_is_handed_out_once() -> None:
    triples = OneTimePool("forward", (0, 1, 1), "abc")
    assert triples.take(1) == "b"
    assert triples.take(1) == "c"
    for batch in (1, 7):
        with pytest.raises(RunError, match=f"no forward triple is left for batch {batch}"):
            triples.take(batch)
