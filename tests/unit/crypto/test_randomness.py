"""A coin toss is the same for all, chosen by none, another at every start. ChaCha20 is the published one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import Field

from veracausa.crypto import agreement
from veracausa.crypto.randomness import NONCE, Keystream, Toss, TossedNonce, expanded, subkey
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import WireError
from veracausa.wire.message import Message
from veracausa.wire.threads import ThreadLink


def all_of(parties: str, life: int = 0) -> dict[str, TossedNonce]:
    return {party: TossedNonce(party, life) for party in parties}


def joined(own: TossedNonce, every: dict[str, TossedNonce]) -> Toss:
    others = [one for one in every.values() if one is not own]
    return own.joined({one.party: one.commitment() for one in others}, {one.party: one.nonce for one in others})


def test_all_parties_get_the_same_and_each_alone_changes_it() -> None:
    every = all_of("abc")
    seeds = {joined(one, every).seed for one in every.values()}
    assert len(seeds) == 1
    for party in "abc":
        other = {**every, party: TossedNonce(party, 0)}
        assert joined(other["a"], other).seed not in seeds


@pytest.mark.parametrize("lie", ["another nonce", "a copied commitment", "another start"])
def test_what_was_not_committed_to_is_refused(lie: str) -> None:
    own, other = TossedNonce("a", 1), TossedNonce("b", 1)
    commitment, nonce = other.commitment(), other.nonce
    if lie == "another nonce":
        nonce = bytes(NONCE)
    elif lie == "a copied commitment":  # of this party's own, and then its own nonce
        commitment, nonce = own.commitment(), own.nonce
    else:
        commitment = TossedNonce("b", 0).commitment()
    with pytest.raises(WireError, check=Field("toss shown.nonce")):
        own.joined({"b": commitment}, {"b": nonce})


def test_purposes_have_numbers_of_their_own_and_they_are_uniform() -> None:
    toss = Toss(bytes(32))
    prime = 1152921504606830593
    drawn = [toss.uniform(prime, 4096, *purpose) for purpose in [("a", 1), ("a", 11), ("a1", 1), ("a",), ("a", 1, 1)]]
    assert len(np.unique(drawn)) == 5 * 4096
    places = np.sort(np.concatenate(drawn) / prime)
    assert np.abs(places - np.arange(places.size) / places.size).max() < 3 / np.sqrt(places.size)
    assert np.array_equal(toss.uniform(prime, 4096, "a", 1), drawn[0])
    assert np.array_equal(toss.uniform(prime, 9, "a", 1), drawn[0][:9])


def test_the_numbers_stay_what_they_are() -> None:
    """Both ends compute them: another version of this function could not talk to this one."""
    assert expanded(b"seed", 1000, 4).tolist() == [549, 285, 847, 832]
    drawn = Toss(b"\1" * 32).uniform(1152921504606830593, 2, "second half", "clinic", "key", 0)
    assert drawn.tolist() == [
        1132428906061029343,
        733572528771864065,
    ]


@pytest.mark.parametrize("below", [3, 5, 1 << 20])
def test_numbers_that_are_too_large_are_left_out(below: int) -> None:
    drawn = expanded(b"x", below, 3000)
    assert drawn.size == 3000
    assert drawn.max() == below - 1 if below < 10 else drawn.max() < below
    if below < 10:
        assert np.abs(np.bincount(drawn.astype(int)) / 3000 - 1 / below).max() < 0.05


def fit() -> DiscoveryResult:
    values = np.random.default_rng(0).normal(size=(20, 3))
    settings = Settings(epochs=1, refit_epochs=0, batch=8, width=2, held_out=0.2, searches=())
    columns = {"a": values[:, :1], "b": values[:, 1:2], "c": values[:, 2:]}
    return run_federation(columns, ["x", "y", "z"], settings, seed=3)


def test_nobody_shows_its_nonce_before_it_has_every_commitment(monkeypatch: pytest.MonkeyPatch) -> None:
    crossed: list[tuple[str, str, str]] = []
    deliver, receive = ThreadLink._deliver, ThreadLink.receive

    def sent(self: ThreadLink, message: Message, plan: Any) -> None:
        crossed.append(("sent", message.sender, message.kind))
        deliver(self, message, plan)

    def received(self: ThreadLink, peer: str, kind: Any, step: int) -> Message:
        message = receive(self, peer, kind, step)
        crossed.append(("received", message.receiver, message.kind))
        return message

    monkeypatch.setattr(ThreadLink, "_deliver", sent)
    monkeypatch.setattr(ThreadLink, "receive", received)
    fit()
    for party in "abc":
        own = [(what, kind) for what, whose, kind in crossed if whose == party and kind.startswith("toss")]
        assert own == (
            [("sent", "toss")] * 2 + [("received", "toss")] * 2 + [("sent", "toss shown")] * 2
            + [("received", "toss shown")] * 2
        )  # fmt: skip
        kinds = [kind for what, whose, kind in crossed if whose == party and what == "sent"]
        assert kinds.index("toss shown") < kinds.index("key")


def test_a_party_that_chooses_after_it_has_seen_the_others_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chooser(TossedNonce):
        def commitment(self) -> bytes:
            made = super().commitment()
            if self.party == "b":
                self.nonce = bytes(NONCE)
            return made

    monkeypatch.setattr(agreement, "TossedNonce", Chooser)
    with pytest.raises(WireError, check=Field("toss shown.nonce")):
        fit()


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
