"""What a member of a discovery from sums will send, said before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from veracausa.crypto.moments import MomentPlan
from veracausa.crypto.moments.packing import INTEGER, QUERY_BYTES, REPLY_BYTES
from veracausa.crypto.randomness import NONCE
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.protocol import MATRICES
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.federation.training_messages import PUBLIC_KEY
from veracausa.wire.message import MESSAGE, Declared

_WORD = 8


@dataclass(frozen=True)
class SumsAhead:
    """What a member knows of the sums beforehand. Columns that the job does not name are guessed to be as many."""

    job: DiscoveryJob
    settings: SumsSettings
    me: str
    own: tuple[str, ...]
    """Its columns; none at the validator."""
    rows: int
    """At most, as if all of its own were common; 0 at the validator."""

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(member for member in self.plan.members if member != self.me)

    @cached_property
    def others(self) -> int | None:
        """How many columns the others have, where the job names them."""
        named = {party: len(columns) for party, columns in self.job.parties.items() if party != self.me}
        return sum(named.values()) if all(named.values()) else None

    @cached_property
    def plan(self) -> SumsPlan:
        """As it would be with all rows in common."""
        return self._planned(max(1, len(self.own)))

    @cached_property
    def least(self) -> SumsPlan:
        """With the fewest columns that the others can have: what this plan refuses, no other one can do."""
        return self._planned(1)

    def _planned(self, guess: int) -> SumsPlan:
        columns: dict[str, tuple[str, ...]] = {}
        for party, named in self.job.parties.items():
            own = self.own if party == self.me else named
            columns[party] = own or tuple(f"{party} {at}" for at in range(guess))
        return SumsPlan(self.settings, columns, self.rows, self.job.seed)

    @cached_property
    def functions(self) -> int:
        return self.plan.functions

    @cached_property
    def widths(self) -> Mapping[str, int]:
        """Features of each party, about."""
        return self.plan.likely_widths

    @cached_property
    def moments(self) -> MomentPlan:
        return self.plan.moments(self.widths)


def declared_moments(ahead: SumsAhead) -> Iterator[Declared]:
    """Kinds, receivers, shapes and bytes. Sizes follow from how many features there are, which is a guess as yet."""
    settings, peers = ahead.settings, ahead.peers
    count, releases = len(peers), ahead.plan.releases
    yield Declared("sums_beat", peers, "that it lives, while it computes", "run", 2 * count * MESSAGE)
    yield Declared("sums_hello", peers, "a fingerprint of the plan, how many functions it sums", "run", count * MESSAGE)
    shown = (VALIDATOR,) if settings.receiver == "validator" else peers
    if ahead.own:
        what = "how many functions each of its columns has"
        yield Declared("sums_layout", shown, what, "run", len(shown) * (MESSAGE + 4 * _WORD * len(ahead.own)))
    for kind in ("toss", "toss shown"):
        yield Declared(kind, peers, "a random number", "run", (NONCE + MESSAGE) * count * releases)
    key = PUBLIC_KEY if settings.encryption == "bfv" and ahead.own else 0
    yield Declared("key", peers, "a public key of this start", "run", (key + MESSAGE) * count * releases)
    yield Declared("agreed", peers, "a fingerprint of plan and keys", "run", MESSAGE * count * releases)
    for kind in ("moment_hello", "moment_turn"):
        yield Declared(kind, peers, "how far it is with the sums", "run", MESSAGE * count * releases)
    if not ahead.own:
        yield from _validator(ahead)
        return
    yield from _pairs(ahead)
    noise = "exact" if settings.epsilon is None else f"with noise, epsilon = {settings.epsilon:g}"
    receiver, width = ahead.plan.receiver, ahead.widths[ahead.me]
    if ahead.me != receiver:
        own, all_of_them = width * (width + 1) // 2, sum(ahead.widths.values())
        shares = own + width * (all_of_them - width)
        what = f"its share of all sums over rows, {noise}"
        yield Declared("moment_share", (receiver,), what, "run", (_WORD * shares + MESSAGE) * releases)
    elif settings.receiver == "all":
        whole = sum(ahead.widths.values())
        sums = _WORD * whole * (whole + 1) // 2 + MESSAGE
        yield Declared("sums_opened", peers, f"all sums over rows, {noise}", "run", sums * count * releases)


def _pairs(ahead: SumsAhead) -> Iterator[Declared]:
    """The messages of every pair: one of the two encrypts its functions, the other one answers."""
    plan, plain = ahead.moments, ahead.settings.encryption == "none"
    hidden = "in clear (NOT ENCRYPTED)" if plain else "encrypted under its own key"
    rows, width = plan.rows, plan.widths[ahead.me]
    asked = answered = 0
    for peer in (party for party in ahead.plan.parties if party != ahead.me):
        one, other = plan.packing(ahead.me, peer), plan.packing(peer, ahead.me)
        asked += rows * width * INTEGER if plain else one.ciphertexts(rows) * QUERY_BYTES
        answered += _WORD * width * plan.widths[peer] if plain else other.replies * REPLY_BYTES
    releases = ahead.plan.releases
    # Which of two encrypts follows from how many functions both have, which are guesses: both ways are said.
    peers = tuple(party for party in ahead.plan.parties if party != ahead.me)
    what = f"up to {rows:,} rows × about {width} functions, {hidden}; or nothing, if the peer sends its own"
    yield Declared("moment_query", peers, what, "run", asked * releases)
    what = "masked sums over all rows, where the peer has sent its functions"
    yield Declared("moment_answer", peers, what, "run", answered * releases)
    yield Declared("moment_taken", peers, "that a query was taken", "run", MESSAGE * len(peers) * releases)


def _validator(ahead: SumsAhead) -> Iterator[Declared]:
    parties = ahead.plan.parties
    d = ahead.others
    whole = ahead.settings.reveal == "all"
    told = "the whole graph" if whole else "the edges that touch the party's columns"
    size = None if d is None else len(parties) * (MESSAGE + (_WORD + 1) * (len(MATRICES) * d * d + d))
    yield Declared("sums_found", parties, told, "run", size)
