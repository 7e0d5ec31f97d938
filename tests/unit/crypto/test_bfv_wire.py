"""What a peer sends is used only if it is exactly what was agreed; what is wrong is named, and nothing of the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from veracausa.crypto.randomness import SecureDraws
from veracausa.errors import WireError

pytest.importorskip("seal")


from fuzz_ciphertexts import fuzz, signed
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import ALL, BYTES, DEGREE, HEAD, PRIMES, SENT, TAG, packed_size
from veracausa.crypto.backends.bfv.keys import SEED
from veracausa.testing.synthetic import OWNER, PEER, tossed_pair

DRAWS = SecureDraws()
SIZES, COLUMNS, WIDTH = [3], 1, 4


class Exchange:
    """One owner, one peer, one message of each kind."""

    def __init__(self) -> None:
        self.owner, self.peer = tossed_pair("bfv")
        self.rows = self.owner.encrypt_rows(PEER, [np.ones((3, COLUMNS))], WIDTH)
        opened = self.open_rows(self.rows)
        self.forward, _ = opened.forward([0], DRAWS.uniform(1, COLUMNS, WIDTH), DRAWS)
        self.backward, _ = opened.backward([0], DRAWS.uniform(3, WIDTH), DRAWS)

    def open_rows(self, rows: Bytes, key: Bytes | None = None):
        if key is not None:
            self.peer.meet(OWNER, key)
        return self.peer.open_rows(OWNER, rows, SIZES, COLUMNS, WIDTH)

    def open_forward(self, reply: Bytes) -> None:
        self.owner.decrypt_forward(reply, SIZES, COLUMNS, WIDTH)


@pytest.fixture(scope="module")
def exchange() -> Exchange:
    return Exchange()


def coefficient(data: Bytes, start: int, prime: int, value: int) -> Bytes:
    """With the first residue of a prime replaced, and a digest that fits."""
    out = data.copy()
    at = start + DEGREE * sum(BYTES[:prime])
    out[at : at + BYTES[prime]] = list(value.to_bytes(BYTES[prime], "little"))
    return signed(out)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d[:-1], "bytes, but"),
        (lambda d: np.append(d, np.uint8(0)), "bytes, but"),
        (lambda d: d[:0], "bytes"),
        (lambda d: d.astype(np.int64), "bytes"),
        (lambda d: d.reshape(-1, 1), "bytes"),
        (lambda d: np.concatenate([np.zeros(TAG, np.uint8), d[TAG:]]), "other parameters"),
        (lambda d: np.concatenate([d[:TAG], np.zeros(TAG, np.uint8), d[2 * TAG :]]), "another key"),
        (lambda d: np.concatenate([d[: 2 * TAG], np.zeros(TAG, np.uint8), d[3 * TAG :]]), "another purpose"),
        (lambda d: np.concatenate([d[:-1], d[-1:] ^ 1]), "damaged"),
    ],
)
@pytest.mark.parametrize("kind", ["forward", "rows"])
def test_what_is_not_of_the_agreed_form(
    exchange: Exchange, kind: str, change: Callable[[Bytes], Bytes], says: str
) -> None:
    read = {"forward": exchange.open_forward, "rows": exchange.open_rows}[kind]
    with pytest.raises(WireError, match=says) as refused:
        read(change(getattr(exchange, kind)))
    assert refused.value.field == kind


@pytest.mark.parametrize("prime", range(SENT))
def test_coefficients_beyond_their_modulus(exchange: Exchange, prime: int) -> None:
    start = HEAD + 4 + SEED
    exchange.open_forward(coefficient(exchange.forward, start, prime, PRIMES[prime] - 1))
    with pytest.raises(WireError, match="not below its modulus"):
        exchange.open_forward(coefficient(exchange.forward, start, prime, PRIMES[prime]))


@pytest.mark.parametrize("prime", range(SENT))
def test_transparent_replies(exchange: Exchange, prime: int) -> None:
    reply = exchange.forward.copy()
    second = HEAD + 4 + SEED + DEGREE * sum(BYTES[:prime])
    reply[second : second + DEGREE * BYTES[prime]] = 0
    with pytest.raises(WireError, match="transparent"):
        exchange.open_forward(signed(reply))


def test_transparent_rows(exchange: Exchange) -> None:
    rows = exchange.rows.copy()
    rows[HEAD:] = 0
    with pytest.raises(WireError, match="transparent"):
        exchange.open_rows(signed(rows))


def test_replies_to_others(exchange: Exchange) -> None:
    other = Exchange()
    with pytest.raises(WireError, match="another key"):
        exchange.open_forward(other.forward)
    with pytest.raises(WireError, match="another key"):
        exchange.open_rows(other.rows)
    with pytest.raises(WireError, match="never encrypted"):
        tossed_pair("bfv")[0].decrypt_forward(exchange.forward, SIZES, COLUMNS, WIDTH)


def test_a_reply_serves_one_purpose(exchange: Exchange) -> None:
    assert exchange.forward.size == exchange.backward.size
    with pytest.raises(WireError, match="another purpose"):
        exchange.open_forward(exchange.backward)


def test_only_what_was_asked_is_taken(exchange: Exchange) -> None:
    reply = exchange.forward.copy()
    reply[HEAD : HEAD + 4] = 255
    with pytest.raises(WireError, match="other batches"):
        exchange.open_forward(signed(reply))
    with pytest.raises(WireError, match="too few"):
        exchange.owner.decrypt_forward(exchange.forward[:70], [3] * 40, COLUMNS, WIDTH)


@pytest.mark.parametrize("constant", [0, 7])
def test_degenerate_keys(exchange: Exchange, constant: int) -> None:
    """Its numbers are 0 or a constant. The halves that hide are not in it, so that it could not even do harm."""
    key = exchange.owner.public_key().copy()
    for zero in range(4):
        start = HEAD + zero * packed_size(ALL)
        for prime in range(ALL):
            half = start + DEGREE * sum(BYTES[:prime])
            key[half : half + DEGREE * BYTES[prime]] = np.tile(
                np.frombuffer(constant.to_bytes(BYTES[prime], "little"), dtype=np.uint8), DEGREE
            )
    with pytest.raises(WireError, match=r"^message refused: key: (a transparent|degenerate)"):
        exchange.open_rows(exchange.rows, signed(key))


def test_a_key_that_repeats_itself(exchange: Exchange) -> None:
    """Four times the same numbers are no four encryptions of 0."""
    key = exchange.owner.public_key()
    once = key[HEAD : HEAD + packed_size(ALL)]
    with pytest.raises(WireError, match="degenerate"):
        exchange.open_rows(exchange.rows, signed(np.concatenate([key[:HEAD], *[once] * 4])))


def test_damaged_keys(exchange: Exchange) -> None:
    key = exchange.owner.public_key().copy()
    key[-1] ^= 1
    with pytest.raises(WireError, match="key: damaged"):
        exchange.open_rows(exchange.rows, key)


def test_mutated_messages_for_two_seconds() -> None:
    assert fuzz(10**9, seed=0, seconds=2.0)["messages"] > 30


@pytest.mark.slow
def test_mutated_messages_at_length() -> None:
    found = fuzz(20_000, seed=1)
    assert found["messages"] == 20_000
    assert any("taken, in range" in what for what in found)
