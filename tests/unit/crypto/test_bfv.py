"""BFV gives the plaintext twin's bits, for any shape; secret keys stay where they are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Encryption
from veracausa.crypto.backends.none import NoEncryption
from veracausa.crypto.randomness import SecureDraws
from veracausa.crypto.ring import P, Ring
from veracausa.errors import InputError, RunError
from veracausa.testing.synthetic import OWNER, PEER, GivenMasks, met, tossed_pair

pytest.importorskip("seal")

from veracausa.crypto.backends.bfv.ciphertexts import DEGREE, MOST_TERMS
from veracausa.crypto.backends.bfv.keys import BfvSecretKey
from veracausa.crypto.backends.bfv.packing import Packing

DRAWS = SecureDraws()
Parties = tuple[Encryption, Encryption]


@pytest.fixture
def parties() -> Parties:
    return tossed_pair("bfv")


def twins() -> Parties:
    return met(NoEncryption(), NoEncryption())


def numbers(extreme: bool, *shape: int) -> Ring:
    """Uniform ones, or only the ends of the field."""
    drawn = DRAWS.uniform(*shape)
    return np.where(drawn % 2 == 0, P - 1, 0) if extreme else drawn


def agree(
    parties: Parties, sizes: Sequence[int], columns: int, width: int, asked: list[int], extreme: bool = False
) -> None:
    rng = np.random.default_rng(0)
    batches = [rng.integers(-2047, 2048, (n, columns)).astype(float) for n in sizes]
    rows = [sizes[batch] for batch in asked]
    weights, gradients = numbers(extreme, len(asked), columns, width), numbers(extreme, sum(rows), width)
    found = []
    for owner, peer in (parties, twins()):
        opened = peer.open_rows(OWNER, owner.encrypt_rows(PEER, batches, width), sizes, columns, width)
        forward, kept = opened.forward(asked, weights, DRAWS)
        backward, kept_back = opened.backward(asked, gradients, DRAWS)
        found.append(
            (
                ring.add(owner.decrypt_forward(forward, rows, columns, width), kept),
                ring.add(owner.decrypt_backward(backward, rows, columns, width), kept_back),
            )
        )
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(
    ("sizes", "columns", "width", "asked"),
    [
        pytest.param([16] * 12 + [30], 2, 50, list(range(13)), id="an epoch and another size"),
        pytest.param([3, 5, 3], 2, 40, [2, 0, 2, 1, 2, 0], id="repeated and out of order"),
        pytest.param([400], 1, 50, [0], id="one batch over many lanes"),
        pytest.param([1], 1, 1, [0], id="one number"),
        pytest.param([2, 1], 2, DEGREE // 2 + 1, [1, 0], id="one lane a ciphertext"),
        pytest.param([2], 1, DEGREE, [0, 0], id="all slots"),
        pytest.param([4], 10, 1000, [0], id="columns times width beyond the slots"),
    ],
)
def test_the_twin_bit_for_bit(parties: Parties, sizes: list[int], columns: int, width: int, asked: list[int]) -> None:
    agree(parties, sizes, columns, width, asked)


def test_the_ends_of_the_field(parties: Parties) -> None:
    agree(parties, [20, 20], 2, 60, [0, 1], extreme=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_twin_for_drawn_shapes(parties: Parties, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.choice(rng.integers(1, 60, 2), rng.integers(1, 8)).tolist()
    asked = rng.integers(0, len(sizes), rng.integers(1, 12)).tolist()
    agree(parties, sizes, int(rng.integers(1, 9)), int(rng.integers(1, 400)), asked, extreme=seed % 3 == 0)


@pytest.mark.parametrize("zero", ["weights", "gradients", "columns"])
def test_zeros_are_no_special_case(parties: Parties, zero: str) -> None:
    """A zero factor would make a transparent ciphertext, which SEAL refuses."""
    owner, peer = parties
    x = np.zeros((4, 2)) if zero == "columns" else np.ones((4, 2))
    rows = peer.open_rows(OWNER, owner.encrypt_rows(PEER, [x], 3), [4], 2, 3)
    one = np.ones((1, 2, 3), dtype=np.int64)
    reply, kept = rows.forward([0], one * (zero != "weights"), DRAWS)
    opened = owner.decrypt_forward(reply, [4], 2, 3)
    assert np.array_equal(ring.add(opened, kept), np.full((4, 3), 2 * (zero == "gradients")))
    reply, kept = rows.backward([0], np.full((4, 3), int(zero != "gradients")), DRAWS)
    summed = owner.decrypt_backward(reply, [4], 2, 3)
    assert np.array_equal(ring.add(summed, kept), np.full((1, 2, 3), 4 * (zero == "weights")))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1,), (DEGREE + 5,), (0,)])
def test_products_element_by_element(parties: Parties, shape: tuple[int, ...]) -> None:
    values, factors = (DRAWS.uniform(*shape) for _ in range(2))
    if values.size:
        values.flat[0], factors.flat[0] = P - 1, P - 1
        factors.flat[-1] = 0
    found = []
    for owner, peer in (parties, twins()):
        reply, kept = peer.products(OWNER, 0, owner.encrypt(PEER, 0, values), factors, DRAWS)
        found.append(ring.add(owner.decrypt_products(reply, shape), kept))
    assert np.array_equal(*found)


def test_products_with_nothing_but_zeros(parties: Parties) -> None:
    owner, peer = parties
    encrypted = owner.encrypt(PEER, 0, DRAWS.uniform(7))
    reply, kept = peer.products(OWNER, 0, encrypted, np.zeros(7, dtype=np.int64), DRAWS)
    assert not ring.add(owner.decrypt_products(reply, (7,)), kept).any()


def test_the_same_question_is_never_answered_by_the_same_bytes(parties: Parties) -> None:
    owner, peer = parties
    rows = peer.open_rows(OWNER, owner.encrypt_rows(PEER, [np.ones((3, 1))], 2), [3], 1, 2)
    weights = DRAWS.uniform(1, 1, 2)
    (once, kept), (again, kept_again) = (rows.forward([0], weights, GivenMasks()) for _ in range(2))
    same = (once == again)[64 + 4 :].mean()
    assert same < 0.05  # of eight bytes the highest has four bits
    assert not (kept == kept_again).any()


def test_nothing_is_encrypted_twice_for_one_purpose(parties: Parties) -> None:
    """Two messages with one second half would show their difference."""
    owner, _ = parties
    rows = [np.ones((3, 1))]
    owner.encrypt_rows(PEER, rows, 2)
    with pytest.raises(RunError, match="would show their difference"):
        owner.encrypt_rows(PEER, rows, 2)
    owner.encrypt_rows("another", rows, 2)
    owner.encrypt(PEER, 3, DRAWS.uniform(1))
    with pytest.raises(RunError, match="would show their difference"):
        owner.encrypt(PEER, 3, DRAWS.uniform(1))


def test_lanes_of_a_batch_have_masks_of_their_own(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner sees every lane: were only their sum masked, it would read the parts. Here all parts are 0."""
    owner, peer = parties
    (turn,) = Packing((400,), 2, 50).turns([0])
    rows = peer.open_rows(OWNER, owner.encrypt_rows(PEER, [np.zeros((400, 2))], 50), [400], 2, 50)
    seen: list[Ring] = []
    decrypt = BfvSecretKey.decrypt
    monkeypatch.setattr(BfvSecretKey, "decrypt", lambda *given: seen.append(decrypt(*given)) or seen[-1])
    for _ in range(2):
        reply, kept = rows.backward([0], DRAWS.uniform(400, 50), DRAWS)
        assert np.array_equal(ring.negative(kept), owner.decrypt_backward(reply, [400], 2, 50))
    once, again = np.split(np.array(seen), 2)
    assert turn.lanes.shape[1] > 100
    for slots in (once, again):  # also those that belong to no lane
        places = np.sort(slots.reshape(-1) / P)
        assert np.abs(places - np.arange(places.size) / places.size).max() < 3 / np.sqrt(places.size)
    assert not (once == again).any()


def test_secret_keys_have_no_serializer() -> None:
    made, _ = tossed_pair("bfv")
    for secret in (made, made._secret):
        with pytest.raises(TypeError, match="no serializer"):
            pickle.dumps(secret)
        with pytest.raises(TypeError, match="no serializer"):
            copy.deepcopy(secret)
        assert "0x" in repr(secret)
        assert len(repr(secret)) < 120
    assert not hasattr(made._secret, "__dict__")


@pytest.mark.parametrize(
    ("sizes", "columns", "width"),
    [((1,), 1, DEGREE + 1), ((1,), 1, 0), ((1,), MOST_TERMS + 1, 1), ((1,), 0, 1), ((), 1, 1), ((2, 0), 1, 1)],
)
def test_shapes_that_do_not_fit_are_refused(sizes: tuple[int, ...], columns: int, width: int) -> None:
    with pytest.raises(InputError):
        Packing(sizes, columns, width)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Packing, list[int]]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 7, 16, 300, 2000]), min_size=1, max_size=12))
    width = draw(st.sampled_from([1, 3, 50, 200, 3000, DEGREE]))
    asked = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=12))
    return Packing(tuple(sizes), draw(st.integers(1, 30)), width), asked


@given(questions())
@settings(max_examples=40, deadline=None)
def test_every_asked_row_is_met_once(question: tuple[Packing, list[int]]) -> None:
    packing, asked = question
    met = np.concatenate([turn.positions[turn.positions >= 0] for turn in packing.turns(asked)])
    assert np.array_equal(np.sort(met), np.arange(sum(packing.sizes[batch] for batch in asked)))
    assert sorted(np.concatenate([turn.asked for turn in packing.turns(asked)])) == list(range(len(asked)))
    for turn in packing.turns(asked):
        assert np.array_equal(
            turn.requests.reshape(-1)[turn.lanes], np.repeat(turn.asked[:, None], turn.lanes.shape[1], 1)
        )
    for block in packing.blocks:
        assert block.depth <= MOST_TERMS
        rows = [(int(b), int(r)) for s in range(block.strands) for b, r in _pairs(block.lane_batch[s], block.rows[s])]
        assert sorted(rows) == [(b, r) for b in range(len(block.batches)) for r in range(block.size)]


def _pairs(batches: np.ndarray, steps: np.ndarray) -> list[tuple[int, int]]:
    return [(b, r) for row in steps for b, r in zip(batches, row, strict=True) if r >= 0]
