"""One pair's sums under BFV: rows by coefficients, products with small factors, and replies that hide all but the sums.

`backends.bfv.keys` says why a reply tells its opener the masked numbers only. Here the mask lies on coefficients: on
all of them, because those between the results hold sums over fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import seal

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import (
    DEGREE,
    PRIMES,
    SENT,
    SUMMED,
    Residues,
    factor,
    load,
    packed_size,
    plaintext,
    residues_of,
    scheme,
    unpack,
    unwrap,
    wrap,
)
from veracausa.crypto.backends.bfv.keys import (
    SEED,
    BfvPublicKey,
    BfvSecretKey,
    chunks,
    first_half,
    second_half,
)
from veracausa.crypto.moments.packing import PACKET, PairPacking
from veracausa.crypto.moments.pairs import MomentKeys, PairAnswerer, PairOwner
from veracausa.crypto.randomness import Masks, Toss
from veracausa.crypto.ring import Ring, Small

QUERY, ANSWER = "moment_query.rows", "moment_answer.sums"
_MODULI = np.array(PRIMES[:SUMMED], dtype=np.uint64)[:, None]


class BfvKeys(MomentKeys):
    """One party's BFV key. It is made for one start, and never written down."""

    def __init__(self, toss: Toss, party: str) -> None:
        self.party, self.toss = party, toss
        self._secret = BfvSecretKey(toss, party)
        self._peers: dict[str, BfvPublicKey] = {}

    def public_key(self) -> Bytes:
        return self._secret.public_bytes

    def meet(self, peer: str, key: Bytes) -> None:
        self._peers[peer] = BfvPublicKey(self.toss, peer, key)

    def owner(self, peer: str, packing: PairPacking) -> PairOwner:
        return BfvOwner(self._secret, peer, packing)

    def answerer(self, peer: str, packing: PairPacking, masks: Masks) -> PairAnswerer:
        """Masks come from replies themselves, and so from the system."""
        return BfvAnswerer(self._peers[peer], self.party, packing)


def _query_shape(answerer: str, packing: PairPacking, number: int, rows: int) -> str:
    return f"{answerer} {packing} {number} {rows}"


def _answer_shape(answerer: str, packing: PairPacking, number: int) -> str:
    return f"{answerer} {packing} {number}"


def _chunks(packing: PairPacking) -> list[int]:
    """Replies of each message of an answer."""
    return [min(PACKET, packing.replies - at) for at in range(0, packing.replies, PACKET)]


class BfvOwner(PairOwner):
    """Encrypts rows, and opens masked sums."""

    def __init__(self, secret: BfvSecretKey, peer: str, packing: PairPacking) -> None:
        self.secret, self.peer, self.packing = secret, peer, packing

    @property
    def answers(self) -> int:
        return len(_chunks(self.packing))

    def query(self, number: int, rows: Small) -> Bytes:
        parts = [
            self.secret.encrypt_coefficients(polynomial, "moment", self.peer, number, at)
            for at, polynomial in enumerate(self.packing.polynomials(rows))
        ]
        return wrap(QUERY, _query_shape(self.peer, self.packing, number, len(rows)), self.secret.public, parts)

    def opened(self, answers: Iterator[Bytes]) -> Ring:
        found: list[Ring] = []
        for number, (count, answer) in enumerate(zip(_chunks(self.packing), answers, strict=True)):
            size = SEED + count * packed_size(SENT)
            payload = unwrap(ANSWER, _answer_shape(self.peer, self.packing, number), self.secret.public, answer, size)
            seed = bytes(payload[:SEED])
            for at, second in enumerate(chunks(payload[SEED:], packed_size(SENT))):
                opened = self.secret.decrypt_coefficients(ANSWER, first_half(seed, at), second)
                found.append(self.packing.results(opened, len(found) % self.packing.groups))
        return _matrix(found, self.packing)


def _matrix(results: list[Ring], packing: PairPacking) -> Ring:
    """(columns, factors), from the results of each reply: factor by factor, and of each, group by group."""
    return np.concatenate(results).reshape(packing.factors, packing.columns).T.copy()


@dataclass(frozen=True)
class ProductTask:
    """Some rows that a peer encrypted, and the same rows of some of one's own columns. Nothing of it is shared."""

    toss: bytes
    owner: str
    answerer: str
    number: int
    encrypted: bytes
    """First halves, one after the other."""
    rows: Small
    packing: PairPacking
    first: int
    """Of one's own columns."""


def partial_sums(task: ProductTask) -> tuple[int, Residues]:
    """The first reply that is meant, and (replies, 2, primes, DEGREE): each one's sum over these rows, transformed."""
    packing, evaluator = task.packing, scheme().evaluator
    columns = task.rows.shape[1]
    sums: list[seal.Ciphertext | None] = [None] * (columns * packing.groups)
    ciphertexts = _ciphertexts(task)
    for start in range(0, len(task.rows), packing.group_rows):
        together = list(islice(ciphertexts, packing.groups))
        for column in range(columns):
            polynomial = packing.factor(task.rows[start : start + packing.group_rows, column])
            if polynomial is None:  # SEAL refuses to multiply by 0, and there is nothing to add
                continue
            times = factor(plaintext(polynomial), SUMMED)
            for group, ciphertext in enumerate(together):
                product, at = evaluator.multiply_plain(ciphertext, times), column * packing.groups + group
                if sums[at] is None:
                    sums[at] = product
                else:
                    evaluator.add_inplace(sums[at], product)
    out = np.zeros((len(sums), 2, SUMMED, DEGREE), dtype=np.uint64)
    for at, total in enumerate(sums):
        if total is not None:
            out[at] = residues_of(total)
    return task.first * packing.groups, out


def _ciphertexts(task: ProductTask) -> Iterator[seal.Ciphertext]:
    toss, size = Toss(task.toss), packed_size(SUMMED)
    for at, part in enumerate(chunks(memoryview(task.encrypted), size)):
        second = second_half(toss, task.owner, "moment", task.answerer, task.number, at, primes=SUMMED)
        yield load(unpack(QUERY, part, SUMMED), second, transformed=True)


class BfvAnswerer(PairAnswerer):
    """Multiplies, sums up, and hides how the sums came about."""

    function = staticmethod(partial_sums)

    def __init__(self, key: BfvPublicKey, me: str, packing: PairPacking) -> None:
        self.key, self.me, self.packing = key, me, packing
        self._totals = np.zeros((packing.replies, 2, SUMMED, DEGREE), dtype=np.uint64)

    def tasks(self, number: int, query: Bytes, rows: Small) -> Iterator[ProductTask]:
        packing = self.packing
        size = packing.ciphertexts(len(rows)) * packed_size(SUMMED)
        shape = _query_shape(self.me, packing, number, len(rows))
        encrypted = bytes(unwrap(QUERY, shape, self.key.fingerprint, query, size))
        for first in range(0, packing.factors, packing.panel):
            own = np.ascontiguousarray(rows[:, first : first + packing.panel])
            seed, owner = self.key.toss.seed, self.key.owner
            yield ProductTask(seed, owner, self.me, number, encrypted, own, packing, first)

    def add(self, result: tuple[int, Residues]) -> None:
        first, sums = result
        for total, part in zip(self._totals[first : first + len(sums)], sums, strict=True):
            total += part
            np.subtract(total, _MODULI, out=total, where=total >= _MODULI)

    def replies(self) -> Iterator[Bytes]:
        found: list[Ring] = []
        for number, count in enumerate(_chunks(self.packing)):
            start = len(found)
            parts, shares = self.key.coefficient_replies(self._totals[start : start + count])
            for share in shares:
                found.append(self.packing.results(share, len(found) % self.packing.groups).copy())
            shape = _answer_shape(self.me, self.packing, number)
            yield wrap(ANSWER, shape, self.key.fingerprint, parts)
        self.share = _matrix(found, self.packing)
