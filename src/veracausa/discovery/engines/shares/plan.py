"""What all parties of a discovery agree on before it starts: who holds what, and what is done when."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.backends import encryption_class
from veracausa.crypto.triples import Needs, Shape
from veracausa.discovery.engines.shares.triples import Pairing
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.check import check_privacy, noise_of
from veracausa.discovery.privacy.options import Output, Privacy
from veracausa.errors import InputError
from veracausa.seeding import derive

RowNumbers = NDArray[np.int64]
ValidatorMode = Literal["M1", "M2"]
Sharing = Literal["two", "all"]
Precomputing = Literal["inline", "process"]

VALIDATOR = "validator"
MOST_PARTIES = 16
HELD_OUT_ROWS = 256
"""RowNumbers of one pass over the held-out rows."""


@dataclass(frozen=True)
class SearchPlan:
    """One search with its refit, a last structure update, and the comparison of edges on held-out rows.

    These phases are numbered on from search to search: masks are drawn for each of them once.
    """

    number: int
    settings: Settings
    first: int
    """Its first epoch."""

    @property
    def refit(self) -> int:
        """The first epoch in one order, where there is one."""
        return self.first + self.settings.epochs

    @property
    def last(self) -> int:
        """The structure update after its last epoch."""
        return self.refit + self.settings.refit_epochs

    @property
    def comparison(self) -> int:
        return self.last + 1

    @property
    def epochs(self) -> range:
        return range(self.first, self.last)


@dataclass(frozen=True)
class ParallelSearches:
    """Searches that are trained side by side: in a round each that is not over has its next epoch.

    They need nothing of each other. What they exchange goes in one message, which costs little more than one search's.
    """

    searches: tuple[SearchPlan, ...]
    first: int
    """The first of its rounds, which are numbered on from group to group."""

    @property
    def last(self) -> int:
        """So many rounds are done when all its searches have had their last epoch."""
        return self.first + max(len(search.epochs) for search in self.searches)

    def running(self, done: int) -> tuple[SearchPlan, ...]:
        """Those that have an epoch left when so many rounds are done."""
        return tuple(search for search in self.searches if done - self.first < len(search.epochs))

    def ending(self, done: int) -> tuple[SearchPlan, ...]:
        """Those whose last epoch was in the last of so many rounds."""
        return tuple(search for search in self.searches if done - self.first == len(search.epochs))

    def left(self, done: int) -> tuple[SearchPlan, ...]:
        """Those of both kinds: what they hold is still needed."""
        return tuple(search for search in self.searches if done - self.first <= len(search.epochs))

    def epoch(self, search: SearchPlan, done: int) -> int:
        """The next epoch of a search, as a phase of the plan."""
        return search.first + done - self.first


@dataclass(frozen=True)
class Plan:
    """Public to all. Attributes are numbered party by party."""

    settings: Settings
    parties: tuple[str, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    rows: int
    train_rows: int
    """The first so many rows train, the others choose the threshold."""
    order_seed: int
    """Of the order of the rows, which all must agree on."""
    encryption: str = "none"
    validator: ValidatorMode = "M2"
    """M2: it learns the norm of every block. M1: it gets all weights, and with any one target's features all data."""
    local_steps: int = 1
    checkpoint_every: int = 10
    """Epochs."""
    shares: Sharing = "two"
    """Who holds a block: its source and its target, or, as published, all parties, which protects nothing more."""
    precompute: Precomputing = "inline"
    """Where triples are made: by the party itself between epochs, or in a process of its own while the steps run."""
    privacy: Privacy | None = None
    """Noise on clipped gradients, which gives a guarantee; None: there is none."""
    laplace: LaplaceHeuristic | None = None
    """The published noise on strengths, which gives none."""
    output: Output = "all"
    """What a party is sent of the graph: the edges that touch its attributes, or all."""

    @property
    def d(self) -> int:
        return sum(self.sizes)

    @property
    def numbers(self) -> int:
        """How many of a target attribute are opened to its party, of every row."""
        return self.settings.bottleneck or self.settings.width

    @property
    def epochs(self) -> int:
        """Of all searches together."""
        return self.settings.total_epochs

    @cached_property
    def searches(self) -> tuple[SearchPlan, ...]:
        """One after the other."""
        made: list[SearchPlan] = []
        for number, settings in enumerate(self.settings.each):
            made.append(SearchPlan(number, settings, made[-1].comparison + 1 if made else 0))
        return tuple(made)

    @cached_property
    def groups(self) -> tuple[ParallelSearches, ...]:
        """All searches of one likelihood side by side; with shares at all parties each on its own."""
        alike: list[list[SearchPlan]] = []
        for search in self.searches:
            last = alike[-1][-1] if alike and self.shares == "two" else None
            if last is not None and last.settings.likelihood == search.settings.likelihood:
                alike[-1].append(search)
            else:
                alike.append([search])
        made: list[ParallelSearches] = []
        for searches in alike:
            made.append(ParallelSearches(tuple(searches), made[-1].last + 1 if made else 0))
        return tuple(made)

    @property
    def most_together(self) -> int:
        """So many searches share a message at most."""
        return max(len(group.searches) for group in self.groups)

    def left(self, done: int) -> tuple[ParallelSearches, ...]:
        """The groups that are not over when so many rounds are done."""
        return tuple(group for group in self.groups if done <= group.last)

    def epochs_done(self, done: int) -> int:
        """How many epochs of all searches there are in the first so many rounds."""
        each = [(max(done - group.first, 0), len(search.epochs)) for group in self.groups for search in group.searches]
        return sum(min(rounds, epochs) for rounds, epochs in each)

    def own(self, party: str) -> slice:
        """The party's attributes among all."""
        at = self.parties.index(party)
        start = sum(self.sizes[:at])
        return slice(start, start + self.sizes[at])

    def count(self, party: str) -> int:
        """Of its attributes."""
        return self.sizes[self.parties.index(party)]

    def foreign(self, party: str) -> NDArray[np.int64]:
        """All others."""
        own = self.own(party)
        return np.delete(np.arange(self.d), np.arange(own.start, own.stop))

    def among_foreign(self, party: str, peer: str) -> slice:
        """Where the peer's attributes lie among those foreign to the party."""
        own, others = self.own(party), self.own(peer)
        before = own.stop - own.start if own.start < others.start else 0
        return slice(others.start - before, others.stop - before)

    @cached_property
    def between(self) -> NDArray[np.bool_]:
        """(d, d): whether two attributes lie with different parties."""
        party = np.repeat(np.arange(len(self.sizes)), self.sizes)
        different: NDArray[np.bool_] = party[:, None] != party
        return different

    def concerned(self, party: str) -> slice:
        """Attributes of whose edges the party is sent the factors: its own, or, where it has a share of all, all."""
        return self.own(party) if self.shares == "two" else slice(0, self.d)

    def peers(self, party: str) -> tuple[str, ...]:
        return tuple(name for name in self.parties if name != party)

    @cached_property
    def batches(self) -> list[RowNumbers]:
        """Fixed sets of training rows: what was encrypted once serves every epoch. What is left over is not used."""
        n = min(self.settings.batch, self.train_rows)
        rng = np.random.default_rng(derive(self.order_seed, "batches"))
        return list(rng.permutation(self.train_rows)[: self.train_rows // n * n].reshape(-1, n))

    @cached_property
    def held_out(self) -> list[RowNumbers]:
        rows = np.arange(self.train_rows, self.rows)
        return [rows[at : at + HELD_OUT_ROWS] for at in range(0, len(rows), HELD_OUT_ROWS)]

    @property
    def every_graph(self) -> bool:
        """Whether held-out rows are opened under every candidate graph, which tells a target single columns; else
        once, as a training row is."""
        return self.settings.threshold == "held_out_graphs"

    @cached_property
    def every(self) -> int:
        """Steps from one structure update to the next."""
        count = self.train_rows // min(self.settings.batch, self.train_rows)
        wanted = self.settings.structure_every
        return count if wanted == "epoch" else min(wanted, count)

    def order(self, epoch: int) -> Iterator[tuple[int, bool]]:
        """The batches of an epoch, each with whether the structure is looked at after it."""
        n = min(self.settings.batch, self.train_rows)
        count = self.train_rows // n
        rng = np.random.default_rng(derive(self.order_seed, "order", epoch))
        for number, batch in enumerate(rng.permutation(count).tolist(), start=1):
            yield batch, number % self.every == 0

    def needs(self, search: SearchPlan, epoch: int) -> Needs:
        """What an epoch uses up; the last one is followed by a last structure update."""
        batches = tuple(range(len(self.batches)))
        if epoch == search.last:
            once = () if self.every_graph else tuple(len(batches) + at for at in range(len(self.held_out)))
            return Needs(forward=once, squares=int(self.validator == "M2"))
        updates = len(batches) // self.every + (epoch == search.refit)
        return Needs(batches, batches, updates if self.validator == "M2" else 0)

    def keeps(self, group: ParallelSearches, done: int) -> bool:
        """Whether there is a checkpoint after so many rounds."""
        return (done - group.first) % self.checkpoint_every == 0 or bool(group.ending(done))

    def describe(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        free = ("order_seed", "checkpoint_every", "precompute", "settings")
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in free}
        if self.privacy is not None:  # each resume counts as many releases more as lie between two checkpoints
            own["checkpoint_every"] = self.checkpoint_every
        if not self.settings.strong:  # what is kept of searches side by side goes on only side by side
            own["searches_at_once"] = [len(group.searches) for group in self.groups]
        for noise in ("privacy", "laplace"):
            own[noise] = None if own[noise] is None else own[noise].model_dump()
        return own | self.settings.recorded()

    def with_order(self, order_seed: int) -> Plan:
        return replace(self, order_seed=order_seed)

    def check(self) -> None:
        """Refuse what shares can not do."""
        if len(self.parties) < 2:
            raise InputError("parties: a federation needs two at least; for one, fit without parties")
        if len(self.parties) > MOST_PARTIES:
            raise InputError(f"parties: {len(self.parties)} are more than sums of shares hold; at most {MOST_PARTIES}")
        if VALIDATOR in self.parties:
            raise InputError(
                f"parties: {VALIDATOR!r} is the name of the party that updates at the graph; choose another"
            )
        if self.validator not in ("M1", "M2"):
            raise InputError(f"validator = {self.validator!r}: M2 opens norms, M1 weights; there is no other mode")
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"names: {twice!r} is held twice; leave it with one party")
        if self.settings.sparsity == "l1":
            raise InputError(
                "sparsity = 'l1': signs of single weights are not known to holders of shares; use 'group_lasso'"
            )
        if self.local_steps < 1:
            raise InputError(f"local_steps = {self.local_steps}: at least one step is needed")
        if self.shares not in ("two", "all"):
            raise InputError(f"shares = {self.shares!r}: 'two' or 'all' parties hold a block; there is no other way")
        if self.precompute not in ("inline", "process"):
            raise InputError(f"precompute = {self.precompute!r}: triples are made 'inline' or in a 'process'")
        if self.train_rows < 2:
            raise InputError(f"{self.train_rows} training rows are too few")
        check_privacy(self)


def make_plan(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    train_rows: int | None,
    seed: int | None,
    **agreed: Any,
) -> Plan:
    """The plan that follows from the settings; `agreed` are fields of it that stand over them."""
    rows = {party: len(values) for party, values in columns.items()}
    if len(set(rows.values())) > 1:
        raise InputError(f"parties: they hold different numbers of rows ({rows}); align them first")
    sizes = tuple(values.shape[1] for values in columns.values())
    if sum(sizes) != len(names):
        raise InputError(f"names: {len(names)} for {sum(sizes)} columns; give one a column, party by party")
    if min(sizes, default=0) < 1:
        raise InputError(f"party {list(columns)[sizes.index(0)]!r} holds no column; leave it out")
    count = next(iter(rows.values()))
    if train_rows is None:
        train_rows = count - round(count * settings.held_out)
    how = {name: getattr(settings, name) for name in ("encryption", "validator", "local_steps", "shares", "precompute")}
    how |= noise_of(settings) | {"output": settings.reveal} | agreed
    encryption_class(how["encryption"])
    # Public: all parties see it. In a real run it comes from the system, once.
    order_seed = secrets.randbits(63) if seed is None else derive(seed, "order")
    plan = Plan(settings, tuple(columns), sizes, tuple(names), count, train_rows, order_seed, **how)
    plan.check()
    return plan


def pairing(plan: Plan, name: str) -> Pairing:
    """What a party must be able to multiply with each other one: it follows from who holds shares of which blocks."""
    sizes = tuple(len(rows) for rows in (*plan.batches, *plan.held_out))
    count = {party: plan.sizes[at] for at, party in enumerate(plan.parties)}
    h, own, peers = plan.numbers, count[name], plan.peers(name)
    if plan.shares == "all":
        blocks = plan.d**2 - sum(size**2 for size in plan.sizes)
        none, every = np.arange(0), np.arange(blocks)
        before = {peer: plan.parties.index(name) < plan.parties.index(peer) for peer in peers}
        return Pairing(
            {peer: Shape(sizes, count[peer], (plan.d - count[peer]) * h, own * h) for peer in peers},
            {peer: Shape(sizes, own, (plan.d - own) * h, count[peer] * h) for peer in peers},
            blocks,
            h,
            {peer: every if before[peer] else none for peer in peers},
            {peer: none if before[peer] else every for peer in peers},
        )
    between = own * (plan.d - own)
    into = np.arange(between).reshape(-1, own)
    out = between + np.arange(between).reshape(own, -1)
    at = {peer: plan.among_foreign(name, peer) for peer in peers}
    return Pairing(
        {peer: Shape(sizes, count[peer], own * h, own * h) for peer in peers},
        {peer: Shape(sizes, own, count[peer] * h, count[peer] * h) for peer in peers},
        2 * between,
        h,
        {peer: into[at[peer]].ravel() for peer in peers},
        {peer: out[:, at[peer]].ravel() for peer in peers},
    )
