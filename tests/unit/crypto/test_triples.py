"""Triples of one ordered pair: both halves together are the product, and each is handed out once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from refusals import Field

from veracausa.crypto.backends.base import Encryption
from veracausa.crypto.backends.none import NoEncryptionBySeeds
from veracausa.crypto.randomness import SecureDraws
from veracausa.crypto.ring import P
from veracausa.crypto.triples import Needs, OneTimePool, Shape, ask, open_asked, spans
from veracausa.errors import RunError, WireError
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair


def by_seeds(name: str) -> tuple[Encryption, Encryption]:
    return NoEncryptionBySeeds(), NoEncryptionBySeeds()


@pytest.mark.parametrize("pair", [tossed_pair, by_seeds], ids=["numbers", "seeds"])
def test_both_halves_are_shares_of_the_products(pair: Callable[[str], tuple[Encryption, Encryption]]) -> None:
    rng = np.random.default_rng(0)
    shape = Shape((4, 4, 3), 2, 5, 3)
    batches = [rng.integers(-2047, 2048, (n, 2)).astype(float) for n in shape.sizes]
    source, target = pair("none")
    rows = target.open_rows(OWNER, source.encrypt_rows(PEER, batches, 5), shape.sizes, 2, 5)
    needs = Needs(forward=(1, 0, 2, 1), backward=(0, 1))
    mine, parts = ask(shape, rows, rows, needs, SecureDraws())
    theirs = open_asked(shape, source, needs, parts)
    for at, (batch, its) in enumerate(zip(needs.forward, spans(shape.rows(needs.forward)), strict=True)):
        product = batches[batch].astype(int).astype(object) @ mine.weight_masks[at].astype(object)
        assert ((mine.features[its] + theirs.features[its]) % P).tolist() == (product % P).tolist()
    for at, (batch, its) in enumerate(zip(needs.backward, spans(shape.rows(needs.backward)), strict=True)):
        product = batches[batch].T.astype(int).astype(object) @ mine.gradient_masks[its].astype(object)
        assert ((mine.increments[at] + theirs.increments[at]) % P).tolist() == (product % P).tolist()
    with pytest.raises(WireError, check=Field("triples.backward")):
        open_asked(shape, source, needs, {"forward": parts["forward"]})
    with pytest.raises(WireError):
        open_asked(shape, source, needs, parts | {"backward": parts["backward"][8:]})


def test_a_seed_says_all_of_a_half_and_another_size_is_no_seed() -> None:
    source, target = by_seeds("none")
    batches = [np.ones((6, 2)), np.ones((6, 2))]
    shape = Shape((6, 6), 2, 4, 4)
    rows = target.open_rows(OWNER, source.encrypt_rows(PEER, batches, 4), shape.sizes, 2, 4)
    needs = Needs(forward=(0, 1), backward=(0, 1))
    _, parts = ask(shape, rows, rows, needs, SecureDraws())
    assert {name: len(part) for name, part in parts.items()} == {"forward": 32, "backward": 32}
    halves = [open_asked(shape, source, needs, parts), open_asked(shape, source, needs, parts)]
    assert (halves[0].features == halves[1].features).all()
    _, others = ask(shape, rows, rows, needs, SecureDraws())
    drawn = [open_asked(shape, source, needs, given) for given in (parts, others)]
    every = np.concatenate([half.ravel() for made in drawn for half in (made.features, made.increments)])
    assert len(np.unique(every)) == len(every)
    for name in parts:
        for wrong in (parts[name][:-1], np.append(parts[name], np.uint8(0))):
            with pytest.raises(WireError, match="bytes for a seed of 32"):
                open_asked(shape, source, needs, parts | {name: wrong})
    values = SecureDraws().uniform(3, 2)
    reply, kept = target.products(OWNER, 0, source.encrypt(PEER, 0, values), values, SecureDraws())
    opened = (source.decrypt_products(reply, (3, 2)).astype(object) + kept) % P
    assert len(reply) == 32
    assert opened.tolist() == (values.astype(object) ** 2 % P).tolist()


def test_a_triple_is_handed_out_once() -> None:
    triples = OneTimePool("forward", (0, 1, 1), "abc")
    assert triples.take(1) == "b"
    assert triples.take(1) == "c"
    for batch in (1, 7):
        with pytest.raises(RunError, match=f"no forward triple is left for batch {batch}"):
            triples.take(batch)
