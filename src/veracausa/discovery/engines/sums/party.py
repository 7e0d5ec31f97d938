"""One member of a discovery from sums: a party with columns, or the validator, which has none and opens the sums."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.agreement import AGREEMENT
from veracausa.crypto.moments import MomentParty, MomentPlan, Moments
from veracausa.crypto.moments.account import EXACT, MomentAccount, check_budget
from veracausa.crypto.moments.encoding import encoded_blocks, exact_product
from veracausa.crypto.moments.result import noise_of
from veracausa.crypto.randomness import make_draws
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.engines.sums import protocol
from veracausa.discovery.engines.sums.features import OwnFeatures
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.protocol import SUMS_BEAT, SUMS_HELLO, PartyLayout
from veracausa.discovery.engines.sums.searcher import SumsGraph, searched_graph
from veracausa.discovery.methods.moments.resampling import row_weights
from veracausa.discovery.methods.moments.search import Known
from veracausa.errors import WireError
from veracausa.events import Observer, ProgressCallback, event_of
from veracausa.runs.store import StateFile, Store
from veracausa.seeding import derive
from veracausa.wire.link import Link

Done = TypeVar("Done")

BEAT = 5.0
"""Seconds between two words of who is busy."""
EVERY = 0.5
"""Seconds between two words on how far a member is."""
KEPT = "sums-"
"""What the files begin with that keep a release."""


class SumsMember:
    """What parties and the validator do alike: agree, take part in every release, and keep what is done."""

    def __init__(
        self,
        plan: SumsPlan,
        name: str,
        known: Known,
        make_own: Callable[[], OwnFeatures] | None,
        seed: int | None = None,
        notify: Observer = lambda event: None,
        earlier: Mapping[str, float] | None = None,
        time_is_up: Callable[[], bool] = lambda: False,
        enter: Callable[[str, float], None] | None = None,
    ) -> None:
        """`make_own` makes the party's features; None: the validator. `seed` gives masks and noise of a simulation;
        without one they come from the system. `enter` writes a release and what it spends down, before anything of it
        leaves."""
        self.plan, self.name, self.known, self.make_own = plan, name, known, make_own
        self.own: OwnFeatures | None = None
        self.seed, self.notify, self.time_is_up = seed, notify, time_is_up
        self.enter = enter
        self.earlier = dict(earlier or {})
        """What this party's earlier releases of these rows have spent, by name."""
        self.peers = tuple(member for member in plan.members if member != name)
        self.widths: dict[str, int] = {}
        self.layouts: dict[str, PartyLayout] = {}
        self.opened: list[Moments] = []
        """The releases that are open to this member."""
        self.done = 0
        """So many releases are over."""
        self.account: MomentAccount | None = None
        """What all releases spend; None: the sums are exact."""
        self.clip: float | None = None
        self.graph: SumsGraph | None = None
        self.told: dict[str, Any] | None = None
        """What the validator told of the graph; nan where it told nothing."""

    @property
    def opens(self) -> bool:
        """Whether this member sees the sums."""
        return self.name == VALIDATOR or self.plan.settings.receiver == "all"

    def run(self, link: Link, store: Store | None = None) -> None:
        """Take part to the end."""
        self._declare(link)
        if self.make_own is not None:
            self.own = beating(link, self.peers, self.make_own)
            said = {"notes": list(self.own.notes), "warnings": list(self.own.warnings)}
            self.notify(event_of("notes", {"party": self.name, **said}))
        else:
            beating(link, self.peers, lambda: None)
        for peer in self.peers:
            await_beats(link, peer)
        self._meet(link)
        moments = self.plan.moments(self.widths)
        moments.check()
        self.account, self.clip = self.plan.spends(moments), moments.clip
        self._check_budget(store)
        if self.plan.settings.receiver == "all":
            link.declare(protocol.opened_kind(moments))
        if store is not None and store.start_step is not None:
            self.load_state(store.load(store.start_step))
        for number in range(self.done, self.plan.releases):
            self._release(link, store, moments, number)
            self.done = number + 1
            if store is not None:
                store.save(self.done, self.state())
        self._conclude(link)

    def _declare(self, link: Link) -> None:
        """Declare, before the first word, what a peer that is ahead may say while this member waits for another."""
        link.declare(SUMS_BEAT, SUMS_HELLO, *AGREEMENT)
        for peer in self.peers:
            if self.opens or self._shows(peer):
                link.declare(protocol.layout_kind(self.plan), peer=peer)
            if self.plan.settings.receiver == "validator" and VALIDATOR in (peer, self.name):
                told = peer if self.name == VALIDATOR else self.name
                link.declare(protocol.found_kind(self.plan, told), peer=peer)

    def _check_budget(self, store: Store | None) -> None:
        """Refuse where these rows were released before, unless the budget has room for all that is to come."""
        if self.own is None:
            return
        begun = [] if store is None else [StateFile(path).load() for path in store.folder.glob(f"{KEPT}*.safetensors")]
        here = {state["release"] for state in begun if state is not None}
        others = {name: rho for name, rho in self.earlier.items() if name not in here}
        check_budget(self.account, self.plan.settings.budget, self.plan.settings.delta, "", others)

    # ---- what is agreed ----------------------------------------------------------------------------------------------

    def _meet(self, link: Link) -> None:
        """The same plan with everybody, all widths, and the layouts for whoever opens the sums."""
        plan, width = self.plan, 0 if self.own is None else self.own.width
        fingerprint = plan.digest(known_as_lists(self.known))
        word = {"fingerprint": protocol.as_tensor(fingerprint)}
        link.broadcast(SUMS_HELLO, 0, word, width=width)
        self.widths = {self.name: width}
        for peer, message in link.gather(SUMS_HELLO, 0).items():
            if message.tensors["fingerprint"].numpy().tobytes() != fingerprint:
                raise WireError("sums_hello.fingerprint", f"{peer!r} has another plan than this party")
            self.widths[peer] = protocol.received_width(plan, peer, message)
        if self.own is not None:
            self.layouts[self.name] = PartyLayout(self.own.nodes, self.own.pairs)
            for peer in self.peers:
                if self._shows(peer):
                    parts = protocol.sent_layout(self.layouts[self.name])
                    link.send(peer, protocol.layout_kind(plan), 0, parts)
        if self.opens:
            for peer in self.peers:
                if peer != VALIDATOR:
                    message = link.receive(peer, protocol.layout_kind(plan), 0)
                    self.layouts[peer] = protocol.received_layout(plan, peer, message, self.widths[peer])

    def _shows(self, peer: str) -> bool:
        """Whether this member tells a peer the layout of its columns."""
        return self.make_own is not None and (peer == VALIDATOR or self.plan.settings.receiver == "all")

    # ---- the sums ----------------------------------------------------------------------------------------------------

    def _release(self, link: Link, store: Store | None, moments: MomentPlan, number: int) -> None:
        kept = None if store is None else StateFile(store.folder / f"{KEPT}{number}.safetensors")
        state = None if kept is None else kept.load()
        seed = None if self.seed is None else derive(self.seed, "moments", number)
        rho = EXACT if moments.account is None else moments.account.rho

        def save(state: Mapping[str, Any]) -> None:
            self._release_name = state["release"]
            if kept is not None:
                kept.save(state)
            if self.enter is not None and self.own is not None:
                self.enter(self._release_name, rho)

        draws = make_draws(seed, self.name)
        party = MomentParty(moments, self.name, lambda: self._blocks(number), draws, state, save)
        found = party.run(link, self._progress("sums", number, self.plan.releases))
        if self.plan.settings.receiver == "all":
            found = self._share_sums(link, moments, found, number, rho)
        if found is not None:
            self.opened.append(found)

    def _share_sums(self, link: Link, moments: MomentPlan, found: Moments | None, number: int, rho: float) -> Moments:
        """Every party has what the first one opened."""
        kind = protocol.opened_kind(moments)
        if found is not None:
            spent: dict[str, str | float] = {
                "rho": rho,
                "release": self._release_name,
                "rows_digest": moments.rows_digest,
            }
            link.broadcast(kind, number, {"sums": protocol.sent_sums(found.integers)}, **spent)
            return found
        integers = protocol.received_sums(moments, link.receive(self.plan.receiver, kind, number))
        self._check_own(moments, integers, number)
        return Moments(moments.rows, moments.slices, integers, moments.unit, noise_of(moments), moments.account)

    def _check_own(self, moments: MomentPlan, integers: NDArray[np.int64], number: int) -> None:
        """Refuse sums of others' making: without noise, a party's own part is what it summed up itself."""
        if moments.account is not None:
            return
        own, at = np.zeros((moments.widths[self.name],) * 2, dtype=np.int64), moments.slices[self.name]
        for rows in encoded_blocks(moments, self.name, lambda: self._blocks(number)):
            own += exact_product(rows, rows, moments.most)
        if not np.array_equal(integers[at, at], own):
            raise WireError("sums_opened.sums", f"are not those of this party's own columns ({self.plan.receiver!r})")

    def _blocks(self, number: int) -> Iterator[Array]:
        """This party's rows for one release: as they are, or times the roots of their weights in a resample."""
        if self.own is None:
            return
        roots = np.sqrt(row_weights(self.plan.rows, self.plan.seed, number))
        for at in range(0, self.plan.rows, self.plan.block_rows):
            part = slice(at, at + self.plan.block_rows)
            yield self.own.features[part] * roots[part, None]

    # ---- the graph ---------------------------------------------------------------------------------------------------

    def _conclude(self, link: Link) -> None:
        if self.plan.settings.receiver == "all":
            self.graph = self._searched()
            return
        if self.name != VALIDATOR:
            self._hear(link)
            return
        self.graph = beating(link, self.peers, self._searched)
        for peer in self.peers:
            parts = protocol.sent_found(self.plan, peer, self.graph.matrices(), self.graph.found.explained)
            link.send(peer, protocol.found_kind(self.plan, peer), 0, parts, model=self.graph.found.model)

    def _hear(self, link: Link) -> None:
        kind = protocol.found_kind(self.plan, self.name)
        await_beats(link, VALIDATOR)
        self.told = protocol.received_found(self.plan, self.name, link.receive(VALIDATOR, kind, 0))

    def _searched(self) -> SumsGraph:
        started = time.perf_counter()
        progress = self._progress("search" if not self.plan.settings.bootstrap else "resamples")
        progress(0.0)
        found = searched_graph(self.plan, self.known, self.layouts, self.opened, self.time_is_up, progress)
        progress(1.0)
        self.seconds = time.perf_counter() - started
        return found

    def _progress(self, what: str, done: int = 0, of: int = 1) -> ProgressCallback:
        """Tells whoever watches how far this member is, about twice a second."""
        spoke = -math.inf

        def progress(share: float) -> None:
            nonlocal spoke
            if share >= 1 or time.monotonic() - spoke >= EVERY:
                spoke = time.monotonic()
                self.notify({"event": "progress", "party": self.name, "what": what, "share": (done + share) / of})

        return progress

    # ---- what is kept ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "opened": [moments.state() for moments in self.opened]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        self.opened = [Moments.of(moments) for moments in state["opened"]]


def beating(link: Link, peers: Sequence[str], work: Callable[[], Done]) -> Done:
    """What the work gives. Meanwhile the peers, who wait, hear now and then that this member lives."""
    with ThreadPoolExecutor(1, "work") as thread:
        busy = thread.submit(work)
        while not busy.done():
            wait([busy], timeout=min(BEAT, link.timeout / 8))
            if not busy.done():
                for peer in peers:
                    link.send(peer, SUMS_BEAT, 0, done=0)
        found = busy.result()
    for peer in peers:
        link.send(peer, SUMS_BEAT, 0, done=1)
    return found


def await_beats(link: Link, peer: str) -> None:
    """Return when a peer is done with what it was busy with."""
    while not link.receive(peer, SUMS_BEAT, 0).meta["done"]:
        pass


def known_as_lists(known: Known) -> list[Any]:
    """What is known of the graph, to be compared or written down."""
    tiers = None if known.tiers is None else [None if math.isnan(tier) else tier for tier in known.tiers]
    return [np.argwhere(known.required).tolist(), np.argwhere(known.forbidden).tolist(), tiers]
