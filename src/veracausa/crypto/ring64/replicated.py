"""Computing on shares of three servers without a dealer: each holds two of the three summands of every number.

A number is x = x₀ + x₁ + x₂ modulo 2⁶⁴, and server i holds x₍ᵢ₊₁₎ and x₍ᵢ₊₂₎, all but xᵢ. Of a product it can work out
x₍ᵢ₊₁₎y₍ᵢ₊₁₎ + x₍ᵢ₊₁₎y₍ᵢ₊₂₎ + x₍ᵢ₊₂₎y₍ᵢ₊₁₎ by itself, and these three add up to xy (Araki, Furukawa, Lindell, Nof and
Ohara, CCS 2016). Key h is known to all servers but h. A sum of three that is to be sent is first masked by numbers
that two keys give and that add up to zero.

**Rounding.** One server, h, draws a mask r and so knows its upper bits and its highest one. The two others, a and b,
are told x + r and nothing of r. Server h deals a and b shares of what they need (`fixed64.truncate_share`), masked by
the keys that it has with each. The result is as exact as with a dealer: only the rounding itself is chance. The role
goes round. Whatever one server receives is uniform and independent of all numbers; docs/strong-mode.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.randomness import Keystream, subkey
from veracausa.crypto.ring64 import fixed64 as rounding
from veracausa.crypto.ring64 import waves
from veracausa.crypto.ring64.arithmetic import Bilinear, Masked, PlaintextArithmetic, Source, WaveArithmetic
from veracausa.crypto.ring64.fixed64 import Words

SERVERS = 3
Swap = Callable[[Mapping[int, Words], Mapping[int, int]], dict[int, Words]]
"""Send words to servers and receive so many from others, in one exchange that all three count."""


class CipherStream:
    """Words of ChaCha20. Every word is drawn once; there is no way back."""

    def __init__(self, key: bytes) -> None:
        self._keystream = Keystream(key)

    def take(self, shape: tuple[int, ...]) -> Words:
        return self._keystream.words(2 * math.prod(shape)).view("<u8").astype(np.uint64, copy=False).reshape(shape)


class CommonKey:
    """What two servers draw alike, and the third one does not know."""

    def __init__(self, key: bytes) -> None:
        self.zeros, self.dealt = (CipherStream(subkey(key, purpose)) for purpose in ("zeros", "dealt"))


def split(values: Words, stream: Source) -> list[Words]:
    """A number's three summands, each two of which are uniform."""
    first, second = stream.take(values.shape), stream.take(values.shape)
    return [first, second, values - first - second]


def held(summands: Sequence[Words], server: int) -> Words:
    """The two summands that a server holds, (2, …)."""
    return np.stack([summands[(server + 1) % SERVERS], summands[(server + 2) % SERVERS]])


class ReplicatedArithmetic(WaveArithmetic):
    """One of three servers. A share is one summand of three, a number ready for products two of them (`Masked`): first
    that of the next server's number, then that of the one after it.

    `with_next` and `with_previous` are the keys that it has with the two others, `roundings` what it alone draws masks
    of roundings from. `hand_over` opens rows to their targets. `rounders` names, for each target's row, a server that
    does not see what is opened there and draws the bits that drown its last ones.
    """

    def __init__(
        self,
        me: int,
        with_next: CommonKey,
        with_previous: CommonKey,
        roundings: Source,
        swap: Swap,
        hand_over: Callable[[Words], Words],
        rounders: NDArray[np.int64],
    ) -> None:
        self.me, self._next, self._previous = me, with_next, with_previous
        self._roundings, self._swap, self._hand_over, self._rounders = roundings, swap, hand_over, rounders
        self._turn = 0

    def mask(self, *shares: Words) -> list[Masked]:
        own = self._hidden(_flat(shares))
        after, before = (self.me + 1) % SERVERS, (self.me + 2) % SERVERS
        received = self._swap({before: own}, {after: len(own)})[after]
        return _pairs(own, received, shares)

    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
        return [self.share(pair) for pair in self.truncate_and_mask(*numbers)]

    def truncate_and_mask(self, *numbers: tuple[Words, int]) -> list[Masked]:
        helper, self._turn = self._turn, (self._turn + 1) % SERVERS
        shares = [share for share, _ in numbers]
        bits = np.repeat([bits for _, bits in numbers], [share.size for share in shares]).astype(np.uint64)
        role = (self._help, self._open, self._open_with_dealt)[(self.me - helper) % SERVERS]
        return _pairs(*role(self._hidden(_flat(shares)), bits), shares)

    def _help(self, own: Words, bits: Words) -> tuple[Words, Words]:
        """Draw the mask and deal what undoes it; the results' summands that this server holds are drawn."""
        after, before = (self.me + 1) % SERVERS, (self.me + 2) % SERVERS
        mask = self._roundings.take(own.shape)
        above, top = (mask & rounding.BELOW_TOP) >> bits, mask >> rounding.TOP
        minus_above, some_top, of_before = self._next.dealt.take((3, len(own)))
        of_after = self._previous.dealt.take(own.shape)
        masked = own + mask + rounding.OFFSET
        dealt = np.concatenate([masked, minus_above - above, top - some_top])
        self._swap({after: masked, before: dealt}, {})
        self._swap({}, {})
        return of_after, of_before

    def _open(self, own: Words, bits: Words) -> tuple[Words, Words]:
        helper, other, count = (self.me + 2) % SERVERS, (self.me + 1) % SERVERS, len(own)
        received = self._swap({other: own}, {helper: count, other: count})
        minus_above, top, of_other = self._previous.dealt.take((3, count))
        opened = own + received[other] + received[helper]
        share = rounding.opened_part(opened, bits) + rounding.times_top(opened, top, bits) - minus_above - of_other
        return of_other, share + self._swap({other: share}, {other: count})[other]

    def _open_with_dealt(self, own: Words, bits: Words) -> tuple[Words, Words]:
        helper, other, count = (self.me + 1) % SERVERS, (self.me + 2) % SERVERS, len(own)
        received = self._swap({other: own}, {helper: 3 * count, other: count})
        masked, minus_above, top = received[helper].reshape(3, count)
        of_other = self._next.dealt.take((count,))
        opened = own + received[other] + masked
        share = minus_above + rounding.times_top(opened, top, bits) - of_other
        return share + self._swap({other: share}, {other: count})[other], of_other

    def wave(self, number: Words, bits: int, slopes: bool = True) -> list[Masked]:
        """As `truncate_and_mask`, but x + r is looked up in tables, and shares of r's entries are dealt."""
        helper, self._turn = self._turn, (self._turn + 1) % SERVERS
        tables = (waves.VALUES, waves.SLOPES)[: 1 + slopes]
        role = (self._help_wave, self._open_wave, self._open_wave_with_dealt)[(self.me - helper) % SERVERS]
        return _pairs(*role(self._hidden(number.ravel()), bits, tables), [number] * len(tables))

    def _help_wave(self, own: Words, bits: int, tables: Sequence[Words]) -> tuple[Words, Words]:
        after, before = (self.me + 1) % SERVERS, (self.me + 2) % SERVERS
        count, results = len(own), len(tables) * len(own)
        mask = self._roundings.take(own.shape)
        entries = waves.DEALT[:, waves.phases(mask, bits)]
        others = self._next.dealt.take((waves.TERMS, count))
        of_before, of_after = self._next.dealt.take((results,)), self._previous.dealt.take((results,))
        masked = own + mask
        self._swap({after: masked, before: np.concatenate([masked, (entries - others).ravel()])}, {})
        self._swap({}, {})
        return of_after, of_before

    def _open_wave(self, own: Words, bits: int, tables: Sequence[Words]) -> tuple[Words, Words]:
        helper, other, count = (self.me + 2) % SERVERS, (self.me + 1) % SERVERS, len(own)
        received = self._swap({other: own}, {helper: count, other: count})
        dealt = self._previous.dealt.take((waves.TERMS, count))
        of_other = self._previous.dealt.take((len(tables) * count,))
        at = waves.phases(own + received[other] + received[helper], bits)
        share = np.concatenate([waves.combined(table, at, dealt) for table in tables]) - of_other
        return of_other, share + self._swap({other: share}, {other: len(share)})[other]

    def _open_wave_with_dealt(self, own: Words, bits: int, tables: Sequence[Words]) -> tuple[Words, Words]:
        helper, other, count = (self.me + 1) % SERVERS, (self.me + 2) % SERVERS, len(own)
        received = self._swap({other: own}, {helper: (1 + waves.TERMS) * count, other: count})
        masked, dealt = received[helper][:count], received[helper][count:].reshape(waves.TERMS, count)
        of_other = self._next.dealt.take((len(tables) * count,))
        at = waves.phases(own + received[other] + masked, bits)
        share = np.concatenate([waves.combined(table, at, dealt) for table in tables]) - of_other
        return share + self._swap({other: share}, {other: len(share)})[other], of_other

    def reveal(self, share: Words, bits: int) -> Words:
        hidden = self._hidden(share.ravel()).reshape(share.shape)
        mine = self._rounders == self.me
        hidden[mine] += rounding.low_bits(self._roundings.take(hidden[mine].shape), bits)
        return rounding.floored(self._hand_over(hidden), bits)

    def hidden(self, share: Words) -> Words:
        """A share that may be sent to whom the sum is opened: it says nothing but in the sum."""
        return self._hidden(share.ravel()).reshape(share.shape)

    def share(self, number: Masked) -> Words:
        return number.opened

    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        return of(a.opened, b.opened + b.mask) + of(a.mask, b.opened)

    def _hidden(self, own: Words) -> Words:
        """The share, and a number that together with the others' two is zero."""
        return own + self._previous.zeros.take(own.shape) - self._next.zeros.take(own.shape)


def _flat(shares: Sequence[Words]) -> Words:
    return np.concatenate([share.ravel() for share in shares])


def _pairs(first: Words, second: Words, like: Sequence[Words]) -> list[Masked]:
    ends = np.cumsum([share.size for share in like])[:-1]
    both = zip(np.split(first, ends), np.split(second, ends), like, strict=True)
    return [Masked(one.reshape(share.shape), two.reshape(share.shape)) for one, two, share in both]


class ReplicatedInTheClear(PlaintextArithmetic, WaveArithmetic):
    """NOT PROTECTED. Rounds by the masks that the three servers would draw in turn."""

    def __init__(self, rounding_streams: Sequence[Source], rounders: NDArray[np.int64]) -> None:
        super().__init__(rounding_streams)
        self._rounders, self._turn = rounders, 0

    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
        stream, self._turn = self._streams[self._turn], (self._turn + 1) % SERVERS
        return [self._rounded(number, stream.take(number.shape), bits) for number, bits in numbers]

    def reveal(self, share: Words, bits: int) -> Words:
        masks = np.zeros_like(share)
        for server, stream in enumerate(self._streams):
            mine = self._rounders == server
            masks[mine] = stream.take(share[mine].shape)
        return self._rounded(share, masks, bits)

    def wave(self, number: Words, bits: int, slopes: bool = True) -> list[Masked]:
        stream, self._turn = self._streams[self._turn], (self._turn + 1) % SERVERS
        mask = stream.take(number.shape)
        at, dealt = waves.phases(number + mask, bits), waves.DEALT[:, waves.phases(mask, bits)]
        return self.mask(*(waves.combined(table, at, dealt) for table in (waves.VALUES, waves.SLOPES)[: 1 + slopes]))
