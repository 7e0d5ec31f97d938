"""Paillier gives the plaintext twin's bits, hides what it returns, and refuses what is no ciphertext of the key."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Field, Names

from veracausa.crypto import ring
from veracausa.crypto.backends.none import NoEncryption
from veracausa.crypto.randomness import SecureDraws
from veracausa.crypto.ring import P
from veracausa.errors import InputError, WireError
from veracausa.testing.synthetic import OWNER, PEER, GivenMasks, met, tossed_pair

gmpy2 = pytest.importorskip("gmpy2")

from veracausa.crypto.backends.paillier import Paillier, keys  # noqa: E402
from veracausa.crypto.backends.paillier.encryption import (  # noqa: E402  # noqa: E402
    KEY_BITS,
    LARGEST_VALUE,
    STATISTICAL_BITS,
    Blocks,
    combinations,
    shifted,
    slots_for,
)
from veracausa.crypto.backends.paillier.keys import PaillierPublicKey  # noqa: E402

BITS = 768
DRAWS = SecureDraws()


@pytest.fixture(scope="module")
def owner() -> Paillier:
    return Paillier.with_insecure_key(BITS)


@pytest.fixture(scope="module")
def peer(owner: Paillier) -> Paillier:
    return met(owner, Paillier.with_insecure_key(BITS))[1]


def batches_of(sizes: tuple[int, ...], columns: int) -> list[np.ndarray]:
    """With the largest values among them: a slot that is too small by a bit would spill."""
    rng = np.random.default_rng(0)
    drawn = [rng.integers(1 - LARGEST_VALUE, LARGEST_VALUE, (n, columns)).astype(float) for n in sizes]
    drawn[0][0] = LARGEST_VALUE - 1
    drawn[-1][-1] = 1 - LARGEST_VALUE
    return drawn


def agree(owner: Paillier, peer: Paillier, sizes: tuple[int, ...], columns: int, width: int, asked: list[int]) -> None:
    batches = batches_of(sizes, columns)
    rows = [len(batches[b]) for b in asked]
    weights = DRAWS.uniform(len(asked), columns, width)
    weights[0, 0] = P - 1
    gradients = DRAWS.uniform(sum(rows), width)
    forward_mask, backward_mask = DRAWS.uniform(sum(rows), width), DRAWS.uniform(len(asked), columns, width)
    found = []
    for source, target in ((owner, peer), (NoEncryption(), NoEncryption())):
        opened = target.open_rows(OWNER, source.encrypt_rows(PEER, batches, width), sizes, columns, width)
        forward, kept = opened.forward(asked, weights, GivenMasks(forward_mask))
        backward, kept_back = opened.backward(asked, gradients, GivenMasks(backward_mask))
        assert np.array_equal(kept, forward_mask)
        assert np.array_equal(kept_back, backward_mask)
        found.append(
            (
                source.decrypt_forward(forward, rows, columns, width),
                source.decrypt_backward(backward, rows, columns, width),
            )
        )
    for ours, twins in zip(*found, strict=True):
        assert ours.dtype == np.int64
        np.testing.assert_array_equal(ours, twins)


@pytest.mark.parametrize(
    ("sizes", "columns", "width", "asked"),
    [((3,), 1, 1, [0]), ((7, 7), 2, 3, [1, 0, 1]), ((1, 11, 4), 7, 4, [2, 0]), ((6,), 3, 5, [0])],
    ids=str,
)
def test_forward_and_backward_are_the_twins(owner, peer, sizes, columns, width, asked):
    agree(owner, peer, sizes, columns, width, asked)


@pytest.mark.slow
def test_a_key_of_full_size_gives_the_twins_bits():
    owner, peer = tossed_pair("paillier")
    assert isinstance(owner, Paillier)
    assert isinstance(peer, Paillier)
    assert owner.protects
    assert owner.bits == KEY_BITS == 3072
    agree(owner, peer, (50, 16), 5, 7, [1, 0])
    check_products(owner, peer, (3, 7))


@pytest.mark.parametrize("shape", [(1,), (2, 3, 4)], ids=str)
def test_products_are_the_twins(owner, peer, shape):
    check_products(owner, peer, shape)


def check_products(owner: Paillier, peer: Paillier, shape: tuple[int, ...]) -> None:
    a, b, mask = (DRAWS.uniform(*shape) for _ in range(3))
    a.flat[0] = b.flat[0] = mask.flat[0] = P - 1
    found = []
    for source, target in ((owner, peer), (NoEncryption(), NoEncryption())):
        reply, kept = target.products(OWNER, 0, source.encrypt(PEER, 0, a), b, GivenMasks(mask))
        assert np.array_equal(kept, mask)
        found.append(source.decrypt_products(reply, shape))
    np.testing.assert_array_equal(*found)


def test_columns_of_zeros_come_back_as_their_masks(owner, peer):
    rows = peer.open_rows(OWNER, owner.encrypt_rows(PEER, [np.zeros((4, 2))], 3), [4], 2, 3)
    mask = DRAWS.uniform(4, 3)
    first, second = (rows.forward([0], np.zeros((1, 2, 3), dtype=np.int64), GivenMasks(mask))[0] for _ in range(2))
    np.testing.assert_array_equal(owner.decrypt_forward(first, [4], 2, 3), ring.negative(mask))
    assert first.flags.writeable  # a tensor is made of it
    assert (first[keys.TAG :] != second[keys.TAG :]).any()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2000), st.integers(0, 2**32 - 1))
def test_a_slot_has_room_for_the_largest_sum_and_hides_it(terms, seed):
    slots = slots_for(terms, LARGEST_VALUE, KEY_BITS)
    bound = terms * LARGEST_VALUE * (P - 1)
    mask = int(np.random.default_rng(seed).integers(0, P))
    highest = bound + P - 1 + P * (slots.offset + 2**slots.spread - 1)
    assert highest < 2**slots.bits
    assert slots.bits * slots.count < KEY_BITS
    assert slots.offset * P >= bound  # nothing falls below 0
    # How far the multiple of P can be moved by what is hidden, over how many there are.
    assert (bound // P + 2) / 2**slots.spread <= 2.0**-STATISTICAL_BITS
    for v in (-bound, 0, bound):
        hidden = slots.hide([mask, mask]) + slots.pack([v, -v])
        assert slots.open(hidden, 2) == [(v + mask) % P, (mask - v) % P]


def test_what_hides_a_result_is_drawn_anew():
    slots = slots_for(5, LARGEST_VALUE, KEY_BITS)
    multiples = [slots.hide([0]) // P - slots.offset for _ in range(400)]
    assert len(set(multiples)) == 400
    ones = np.array([[m >> bit & 1 for bit in range(slots.spread)] for m in multiples]).mean(0)
    assert np.abs(ones - 0.5).max() < 0.15  # six standard deviations


def test_slots_at_full_size():
    assert [slots_for(terms, LARGEST_VALUE, KEY_BITS).count for terms in (5, 16, 1000)] == [22, 22, 21]
    block = Blocks(slots_for(16, LARGEST_VALUE, KEY_BITS), 5, 50)
    assert (block.columns, block.ciphertexts) == (4, 13)
    with pytest.raises(InputError, match="holds no masked sum of 5 products"):
        slots_for(5, LARGEST_VALUE, 128)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_combinations_are_products_of_powers(terms, width, seed):
    rng = np.random.default_rng(seed)
    modulus = 1000003 * 999983
    bases = [gmpy2.mpz(int(b)) for b in rng.integers(1, modulus, terms)]
    scalars = rng.integers(0, P, (terms, width))
    for j, found in enumerate(combinations(bases, scalars, modulus)):
        wanted = 1
        for base, s in zip(bases, scalars[:, j].tolist(), strict=True):
            wanted = wanted * pow(int(base), s, modulus) % modulus
        assert found == wanted
    assert (
        shifted(bases, 3, modulus) == np.prod([pow(int(b), 8**i) for i, b in enumerate(bases)], dtype=object) % modulus
    )


def test_decryption_undoes_encryption_and_adding_draws_anew(owner):
    secret = owner._secret
    for plain in (0, 1, int(secret.public.modulus) - 1):
        first, second = secret.encrypt(plain), secret.encrypt(plain)
        assert first != second
        assert secret.decrypt(first) == plain
        again = secret.public.add(first, 0)
        assert again != first
        assert secret.decrypt(again) == plain


def test_the_owners_randomisers_are_residues_of_order_prime_to_the_modulus(owner):
    """Encryptions of 0 are M-th powers: their (p−1)(q−1)-th power is 1, and half are squares modulo each prime."""
    secret = owner._secret
    p, q, square = secret._p, secret._q, secret.public.square
    drawn = [secret.encrypt(0) for _ in range(200)]
    assert all(gmpy2.powmod(c, (p - 1) * (q - 1), square) == 1 for c in drawn)
    for prime in (p, q):
        assert 60 < sum(gmpy2.legendre(c, prime) == 1 for c in drawn) < 140


def test_a_reply_that_is_not_randomised_anew_lets_its_opener_test_guesses_and_ours_does_not(owner, peer, monkeypatch):
    """Modulo M a ciphertext is its randomiser's part alone, and powers of the columns' show whose they are."""
    encrypted = owner.encrypt_rows(PEER, [np.full((2, 3), 5.0)], 1)
    rows = peer.open_rows(OWNER, encrypted, [2], 3, 1)
    secret = DRAWS.uniform(1, 3, 1)
    modulus = int(owner._secret.public.modulus)
    sent = owner._secret.public.read_ciphertexts("rows", encrypted, 3 + 2)[:3]

    def recognised() -> bool:
        reply, _ = rows.forward([0], secret, DRAWS)
        seen = int(owner._secret.public.read_ciphertexts("forward", reply, 1)[0])
        guess = 1
        for c, u in zip(sent, secret.ravel().tolist(), strict=True):
            guess = guess * pow(int(c), u, modulus) % modulus
        return seen % modulus == guess

    assert not recognised()
    monkeypatch.setattr(PaillierPublicKey, "add", lambda key, c, plain: c * (1 + plain * key.modulus) % key.square)
    assert recognised()


def test_short_keys_and_large_values_are_refused(owner):
    with pytest.raises(InputError, check=Names("2048", "3072")):
        Paillier(bits=2048)
    assert not owner.protects
    with pytest.raises(InputError, match="larger than 2048 units") as refused:
        owner.encrypt_rows(PEER, [np.full((2, 2), 54321.0)], 1)
    assert "54321" not in str(refused.value)


def test_secret_keys_are_not_written(owner):
    for write in (pickle.dumps, copy.deepcopy):
        for secret in (owner, owner._secret):
            with pytest.raises(TypeError, match="no serializer"):
                write(secret)
    assert str(int(owner._secret._p)) not in repr(owner._secret)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m[:-1],
        lambda m: np.append(m, m[-1]),
        lambda m: m.astype(np.int64),
        lambda m: np.append(m[:-1], m[-1] ^ 1),  # even
        lambda m: np.append(m[0] & 127, m[1:]),  # a bit less
        lambda m: as_bytes(3 * (2**BITS // 3 - 2**700)),
        lambda m: as_bytes(int(gmpy2.next_prime(2 ** (BITS - 1)))),
        lambda m: as_bytes(int(gmpy2.next_prime(2 ** (BITS // 2) - 2**380)) ** 2),
    ],
)
def test_what_is_no_modulus_is_refused(owner, spoil):
    with pytest.raises(WireError, check=Field("key")):
        PaillierPublicKey.read(spoil(owner.public_key()), BITS)


def test_a_modulus_that_is_not_well_formed_is_taken_and_its_owner_reads_what_was_to_be_hidden():
    """Why no member of a federation may choose this encryption. Of M = p·q where p divides q − 1, M-th powers are p-th
    powers modulo q: a fresh randomiser leaves a ciphertext in its class, and the class of c^u tells u modulo p."""
    p = int(gmpy2.next_prime(1 << 20))
    k = 1 << (BITS - 41)
    while not gmpy2.is_prime(q := k * p + 1):
        k += 2
    key = PaillierPublicKey.read(as_bytes(p * q), BITS)  # nothing is refused
    u = DRAWS.uniform(1).tolist()[0]
    base = next(c for c in range(2, 99) if gmpy2.powmod(c, (q - 1) // p, q) != 1)
    reply = key.add(int(gmpy2.powmod(base, u, key.square)), DRAWS.uniform(1).tolist()[0])  # as a peer would answer
    seen, one = gmpy2.powmod(reply, (q - 1) // p, q), gmpy2.powmod(base, (q - 1) // p, q)
    steps = {int(gmpy2.powmod(one, small, q)): small for small in range(1 << 11)}
    back = gmpy2.invert(gmpy2.powmod(one, 1 << 11, q), q)
    found = next(
        large << 11 | steps[met]
        for large in range(1 << 10)
        if (met := int(seen * gmpy2.powmod(back, large, q) % q)) in steps
    )
    assert found == u % p


def as_bytes(value: int) -> np.ndarray:
    return np.frombuffer(value.to_bytes(BITS // 8, "big"), dtype=np.uint8)


def test_what_is_no_ciphertext_is_refused(owner, peer):
    sizes, columns, width = [3], 2, 2
    encrypted = owner.encrypt_rows(PEER, [np.ones((3, 2))], width)
    rows = peer.open_rows(OWNER, encrypted, sizes, columns, width)
    forward, _ = rows.forward([0], DRAWS.uniform(1, 2, 2), DRAWS)
    backward, _ = rows.backward([0], DRAWS.uniform(3, 2), DRAWS)
    values = owner.encrypt(PEER, 0, DRAWS.uniform(2))
    products, _ = peer.products(OWNER, 0, values, DRAWS.uniform(2), DRAWS)
    length = BITS // 4
    p = int(owner._secret._p)

    def with_first(data, number):
        return np.concatenate(
            [data[: keys.TAG], np.frombuffer(number.to_bytes(length, "big"), np.uint8), data[keys.TAG + length :]]
        )

    opened = {
        "rows": (encrypted, lambda data: peer.open_rows(OWNER, data, sizes, columns, width)),
        "forward": (forward, lambda data: owner.decrypt_forward(data, sizes, columns, width)),
        "backward": (backward, lambda data: owner.decrypt_backward(data, sizes, columns, width)),
        "values": (values, lambda data: peer.products(OWNER, 0, data, DRAWS.uniform(2), DRAWS)),
        "products": (products, lambda data: owner.decrypt_products(data, (2,))),
    }
    for purpose, (good, read) in opened.items():
        read(good)
        other = next(message for name, (message, _) in opened.items() if name != purpose)
        spoilt = [
            good[:-1],
            good[:0],
            np.append(good, good[-1]),
            np.concatenate([other[: keys.TAG], good[keys.TAG :]]),
            np.append(good[0] ^ 1, good[1:]),
            with_first(good, 0),
            with_first(good, p),
            with_first(good, int(owner._secret.public.square)),
            with_first(good, 2 ** (2 * BITS) - 1),
        ]
        for data in spoilt:
            with pytest.raises(WireError, match=f"message refused: {purpose}"):
                read(data)
        if purpose in ("forward", "backward", "products"):  # a unit, but of no masked result
            with pytest.raises(WireError, match="larger than any masked result"):
                read(with_first(good, int(owner._secret.encrypt(-1))))
            with pytest.raises(WireError, match="another key"):
                {
                    "forward": lambda: peer.decrypt_forward(forward, sizes, columns, width),
                    "backward": lambda: peer.decrypt_backward(backward, sizes, columns, width),
                    "products": lambda: peer.decrypt_products(products, (2,)),
                }[purpose]()


def test_mutated_messages_are_refused_or_read_and_nothing_else(owner, peer):
    rng = np.random.default_rng(1)
    encrypted = owner.encrypt(PEER, 0, DRAWS.uniform(3))
    reply, _ = peer.products(OWNER, 0, encrypted, DRAWS.uniform(3), DRAWS)
    refused = 0
    for _ in range(300):
        mutated = reply.copy()
        mutated[rng.integers(0, len(reply), 3)] = rng.integers(0, 256, 3)
        mutated = mutated[: int(rng.integers(len(reply) - 2, len(reply) + 1))]
        try:
            read = owner.decrypt_products(mutated, (3,))
            assert ((read >= 0) & (read < P)).all()
        except WireError:
            refused += 1
    assert refused > 250
