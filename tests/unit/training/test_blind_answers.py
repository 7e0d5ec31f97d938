"""Scores from an encrypted head: exact integers, equal with both encryptions, repeated bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.crypto import ring
from veracausa.crypto.randomness import InsecureSeededDraws
from veracausa.errors import InputError, RunError
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair
from veracausa.training.blind import answers
from veracausa.training.blind.answers import AnswerShape, HeldHead, OwnedHead, encrypted_head
from veracausa.training.blind.book import AnswerBook, lasting_key, row_names

RNG = np.random.default_rng(0)


def encryptions():
    return ["none", pytest.param("bfv", marks=pytest.mark.xdist_group("bfv"))]


def scored(encryption: str, weights, features, shape: AnswerShape, added=None):
    """What the active party opens of one passive party's rows."""
    if encryption == "bfv":
        pytest.importorskip("seal")
    owner, peer = tossed_pair(encryption)
    whole = answers.encoded_weights(weights, 16.0)
    encrypted = encrypted_head(owner, PEER, whole, shape)
    assert encrypted.size == shape.head_bytes(encryption)
    held = HeldHead(peer, OWNER, encrypted, shape, InsecureSeededDraws(1, PEER).masks("answer"))
    owned = OwnedHead(owner, shape)
    zeros = np.zeros((shape.scores, shape.rows), dtype=np.int64)
    reply, share = held.answer(features, zeros if added is None else added)
    assert reply.size == shape.reply_bytes(encryption)
    return owned.open(reply), share


@pytest.mark.parametrize("encryption", encryptions())
@pytest.mark.parametrize(("features", "scores", "rows"), [(5, 1, 8), (7, 3, 40), (3, 9, 300)])
def test_opened_scores_are_the_products(encryption, features, scores, rows):
    weights = RNG.normal(size=(features, scores)) * 3
    phi = np.clip(RNG.normal(size=(rows - 2, features)), -16, 16)
    shares = scored(encryption, weights, phi, AnswerShape(features, scores, rows))
    opened = answers.opened_scores(shares, rows - 2)
    whole = np.rint(weights * 2**16).astype(np.int64), np.rint(phi * 2**16).astype(np.int64)
    assert np.array_equal(opened * 2**32, whole[1] @ whole[0])
    # Fixed point costs far less than the dither: half a unit of each factor, times the other one.
    assert np.abs(opened - phi @ weights).max() < 1e-3


@pytest.mark.parametrize("encryption", encryptions())
def test_neither_share_alone_tells_the_scores(encryption):
    weights, phi = np.ones((4, 1)), np.ones((32, 4))
    opened, share = scored(encryption, weights, phi, AnswerShape(4, 1, 32))
    # 32 equal scores: what either side holds of them is all different.
    assert len(np.unique(opened)) == len(np.unique(share)) == 32


def test_limbs_are_small_and_give_the_weights_back():
    edge = 2.0**-16
    weights = np.array([[answers.LARGEST_WEIGHT - edge, -answers.LARGEST_WEIGHT + edge, 0.0, 1 / 3, -edge]]).T
    whole = answers.encoded_weights(weights, 0.001)
    limbs = answers.limbs_of(whole)
    assert np.abs(limbs).max() < 1 << 11  # what the plaintext twin and BFV take
    back = ring.centred(answers.combined(ring.reduce(limbs.astype(np.int64)), 1))
    assert np.array_equal(back.ravel(), whole.ravel())


@pytest.mark.parametrize(("weight", "largest"), [(answers.LARGEST_WEIGHT, 0.001), (8000.0, 1e5)])
def test_weights_that_could_wrap_are_refused(weight, largest):
    with pytest.raises(RunError, match=r"blind\.ridge"):
        answers.encoded_weights(np.array([[weight]]), largest)


def test_the_dither_is_uniform_over_a_step_and_permanent():
    rows = [str(row).encode() for row in range(4000)]
    drawn = ring.centred(answers.dither(b"k" * 32, b"head", rows, 2, 0.01)) / 2.0**answers.SCORE_BITS
    assert np.array_equal(drawn, ring.centred(answers.dither(b"k" * 32, b"head", rows, 2, 0.01)) / 2.0**32)
    assert np.abs(drawn).max() <= 0.005
    assert abs(drawn.std() - 0.01 / 12**0.5) < 1e-4
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.06
    for other in (
        answers.dither(b"K" * 32, b"head", rows, 2, 0.01),
        answers.dither(b"k" * 32, b"another", rows, 2, 0.01),
    ):
        assert abs(np.corrcoef(drawn.ravel(), ring.centred(other).ravel())[0, 1]) < 0.05
    with pytest.raises(InputError, match=r"blind\.step"):
        answers.dither(b"k" * 32, b"head", rows[:1], 1, 2.0**30)


def test_masks_cancel_out_over_all_parties_and_only_then():
    seeds = {pair: bytes([number]) * 32 for number, pair in enumerate([("a", "b"), ("a", "c"), ("b", "c")])}

    def of(me: str, number: int):
        own = {one if one != me else two: (1 if one == me else -1, seed)
               for (one, two), seed in seeds.items() if me in (one, two)}  # fmt: skip
        return answers.cancelling_mask(own, number, 2, 5)

    masks = [of(me, 7) for me in "abc"]
    assert not ring.total(np.stack(masks), 0).any()
    assert ring.total(np.stack(masks[:2]), 0).all()
    assert not np.array_equal(of("a", 7), of("a", 8))
    assert not answers.cancelling_mask({}, 1, 2, 5).any()


def test_the_fingerprint_names_one_head():
    heads = {"a": np.array([[1, 2]]), "b": np.array([[3, 4]])}
    named = answers.fingerprint_of(heads, b"nonce")
    assert named == answers.fingerprint_of(dict(reversed(heads.items())), b"nonce")
    for other in ({**heads, "b": np.array([[3, 5]])}, {**heads, "b": np.array([[3], [4]])}, {"a": heads["a"]}):
        assert named != answers.fingerprint_of(other, b"nonce")
    assert named != answers.fingerprint_of(heads, b"other")


def test_a_request_fills_one_ciphertext_a_feature():
    assert [answers.request_rows(scores) for scores in (1, 2, 9, 99)] == [2730, 1365, 303, 64]
    shape = AnswerShape(20, 9, answers.request_rows(9))
    pytest.importorskip("seal")
    from veracausa.crypto.backends.bfv.packing import Packing

    assert Packing((shape.limb_rows,), 20, shape.rows).ciphertexts == 20


def test_the_book_refuses_a_second_head_also_after_a_restart(tmp_path):
    book = AnswerBook(tmp_path / "book" / "answered", b"k" * 32)
    book.enter([b"1", b"2"], b"first", "lab")
    size = (tmp_path / "book" / "answered").stat().st_size
    again = AnswerBook(tmp_path / "book" / "answered", b"k" * 32)
    again.enter([b"1", b"2"], b"first", "lab")
    assert (tmp_path / "book" / "answered").stat().st_size == size
    with pytest.raises(RunError, match=r"'lab'.* 1 of these 2 rows.*second_head"):
        again.enter([b"2", b"3"], b"second", "lab")
    again.enter([b"3"], b"second", "lab")
    assert b"1" not in (tmp_path / "book" / "answered").read_bytes()[:16]
    AnswerBook(tmp_path / "book" / "answered", b"k" * 32, second_head=True).enter([b"2"], b"second", "lab")
    with pytest.raises(RunError, match="another head"):  # once answered twice, neither head is the only one
        AnswerBook(tmp_path / "book" / "answered", b"k" * 32).enter([b"2"], b"first", "lab")


def test_a_record_torn_by_a_kill_is_written_over(tmp_path):
    path = tmp_path / "answered"
    AnswerBook(path, b"k" * 32).enter([b"1"], b"first", "lab")
    path.write_bytes(path.read_bytes() + b"torn")
    AnswerBook(path, b"k" * 32).enter([b"2"], b"first", "lab")
    assert len(AnswerBook(path, b"k" * 32)) == 2


def test_a_lasting_key_is_drawn_once(tmp_path):
    key = lasting_key(tmp_path / "book")
    assert len(key) == 32
    assert lasting_key(tmp_path / "book") == key
    (tmp_path / "book" / "key").write_bytes(b"short")
    with pytest.raises(InputError, match="5 bytes"):
        lasting_key(tmp_path / "book")


def test_a_changed_row_has_the_same_name_and_another_dither():
    named, drawn = row_names(["7", "8"], [b"x", b"y"])
    changed, redrawn = row_names(["7", "8"], [b"z", b"y"])
    assert named == changed
    assert drawn[0] != redrawn[0]
    assert drawn[1] == redrawn[1]
    assert row_names(None, [b"x", b"x"])[0][0] == row_names(None, [b"x"])[0][0]
