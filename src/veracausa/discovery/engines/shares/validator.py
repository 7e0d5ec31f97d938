"""The party that looks at the graph as a whole: it opens strengths, and says by how much each block shrinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import ring
from veracausa.crypto.fixed_point import WEIGHT_BITS, decode
from veracausa.crypto.randomness import make_draws
from veracausa.crypto.shares import NORM_BITS
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.plan import VALIDATOR, ParallelSearches, Plan, SearchPlan
from veracausa.discovery.engines.shares.protocol import LOSSES, tensor
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd import structure as rules
from veracausa.discovery.methods.vfedcd.as_published.laplace import NoisyPenalty
from veracausa.discovery.methods.vfedcd.structure import Structure
from veracausa.discovery.privacy import options as output
from veracausa.discovery.result import Fit, likelier
from veracausa.errors import RunError, WireError
from veracausa.events import Observer, event_of
from veracausa.runs.store import Store
from veracausa.wire.link import Link

BITS = WEIGHT_BITS + NORM_BITS


class JudgedSearch:
    """What the validator knows of one search."""

    def __init__(self, plan: Plan, search: SearchPlan, structure: Structure) -> None:
        self.search, self.structure = search, structure
        self.strengths = np.zeros((plan.d, plan.d))
        self.history: list[dict[str, float]] = []
        self.loss, self.threshold, self.held_out_loss, self.apart = 0.0, 0.0, float("nan"), float("nan")

    def record(self, plan: Plan) -> dict[str, float]:
        """Write down an epoch that is over."""
        structure, before = self.structure, sum(len(one.epochs) for one in plan.searches[: self.search.number])
        record = {
            "epoch": before + len(self.history) + 1.0,
            "weight": float(structure.weight[0]) if structure.searching else 0.0,
            "loss": self.loss / len(plan.batches),
            "acyclicity": float(structure.value[0]),
        }
        self.loss = 0.0
        if plan.privacy is not None:
            del record["loss"]  # nobody sent one
        elif not np.isfinite(record["loss"]):
            raise RunError(
                f"the fit diverged in epoch {len(self.history) + 1}; lower its rate ({plan.settings.learning_rate})"
            )
        self.history.append(record)
        return record

    def fit(self) -> Fit:
        """What it found."""
        recent = [record.get("loss", 0.0) for record in self.history[-self.search.settings.compared :]]
        return Fit(
            self.strengths[None],
            self.structure.allowed,
            thresholds=np.array([self.threshold]),
            held_out_loss=np.array([self.held_out_loss]),
            score=np.array([np.mean(recent)]),
            search=np.array([self.search.number]),
            apart=np.array([self.apart]),
            history=self.history,
        )

    def state(self) -> dict[str, Any]:
        structure = self.structure
        arrays = {"strengths": self.strengths, "allowed": structure.allowed, "weight": structure.weight,
                  "value": structure.value}  # fmt: skip
        return {
            "arrays": {name: tensor(array) for name, array in arrays.items()},
            "penalty": {name: tensor(array) for name, array in structure.penalty.state().items()},
            "searching": structure.searching,
            "history": self.history,
            "loss": self.loss,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        structure, arrays = self.structure, {name: array.numpy() for name, array in state["arrays"].items()}
        self.strengths, structure.allowed = arrays["strengths"], arrays["allowed"]
        structure.weight, structure.value = arrays["weight"], arrays["value"]
        structure.penalty.load_state({name: array.numpy() for name, array in state["penalty"].items()})
        structure.searching, self.loss = state["searching"], state["loss"]
        self.history = [dict(record) for record in state["history"]]


class Validator:
    """Holds no data. In mode M2 it sees the (d, d) strengths and sums of losses, nothing else."""

    def __init__(
        self,
        plan: Plan,
        allowed: Mask,
        required: Mask,
        notify: Observer = lambda event: None,
        restart_index: int = 0,
        seed: int | None = None,
        start_graph: Mask | None = None,
    ) -> None:
        self.plan, self.required, self.notify, self.restart_index = plan, required, notify, restart_index
        self.allowed, self.start_graph = allowed, start_graph
        self.noise = make_draws(seed, VALIDATOR).masks("noise", restart_index)
        self.norms_kind = {party: protocol.norms(plan, party) for party in plan.parties}
        self.factors_kind = {party: protocol.factors(plan, party) for party in plan.parties}
        self.candidates_kind = {party: protocol.candidates(plan, party) for party in plan.parties}
        self.result_kind = {party: output.result_kind(plan.output, plan.d, plan.count(party)) for party in plan.parties}
        self.own = {party: plan.own(party) for party in plan.parties}
        self.others = {party: plan.foreign(party) for party in plan.parties}
        self.epoch = 0
        """So many rounds of the plan are done."""
        self.exchange = 0
        self.searches: tuple[JudgedSearch, ...] = ()
        """Those side by side that are not over."""
        self.fits: dict[int, Fit] = {}
        """What those that are over found, by their number."""

    def _begin(self, group: ParallelSearches) -> None:
        self.searches = tuple(JudgedSearch(self.plan, search, self._structure(search)) for search in group.searches)
        self.exchange = protocol.first_exchange(group.searches[0].number)

    def _structure(self, search: SearchPlan) -> Structure:
        plan, structure = self.plan, Structure(search.settings, self.allowed[None], self.required)
        structure.start = self.start_graph
        if plan.laplace is not None and plan.laplace.rule == "published":
            structure.penalty = NoisyPenalty(structure.penalty, plan.laplace, len(plan.parties), self.noise)
        return structure

    @property
    def found(self) -> Fit | None:
        """The likeliest of the searches that are over, with the history of all."""
        kept = None
        for number in sorted(self.fits):
            kept = likelier(kept, self.fits[number], self.plan.settings.each)
        return None if kept is None else replace(kept, history=self.history)

    @property
    def history(self) -> list[dict[str, float]]:
        """Every epoch, search by search."""
        each = {number: fit.history for number, fit in self.fits.items()}
        each |= {one.search.number: one.history for one in self.searches}
        return [record for number in sorted(each) for record in each[number]]

    @property
    def step(self) -> int:
        """The parties' number of the exchange: it follows from the plan."""
        return protocol.counter(self.restart_index, self.exchange)

    def run(self, link: Link, store: Store | None = None) -> None:
        plan = self.plan
        for party in plan.parties:
            kinds = self.norms_kind[party], self.factors_kind[party], self.candidates_kind[party]
            link.declare(*kinds, self.result_kind[party], LOSSES, peer=party)
        if store is not None and store.start_step is not None:
            self.load_state(store.load(store.start_step))
        for group in plan.left(self.epoch):
            if self.epoch <= group.first:
                self._begin(group)
                self.epoch = group.first
            for done in range(self.epoch, group.last + 1):
                ending = group.ending(done)
                for one in self.searches:
                    if one.search in ending:
                        self._choose(link, one)
                        self.fits[one.search.number] = one.fit()
                self.searches = tuple(one for one in self.searches if one.search not in ending)
                if self.searches:
                    self._epochs(link, [group.epoch(one.search, done) for one in self.searches])
                    self.epoch = done + 1
                    if store is not None and plan.keeps(group, self.epoch):
                        store.save(self.epoch, self.state())
        self._tell(link)

    def _epochs(self, link: Link, epochs: Sequence[int]) -> None:
        """One epoch of each search that is not over."""
        plan = self.plan
        self._settle(link, [one for one, at in zip(self.searches, epochs, strict=True) if at == one.search.refit])
        pending = False
        for _, update in plan.order(epochs[0]):  # updates are after the same steps in all epochs
            self.exchange += 1
            pending = not update
            if update:
                self._open(link, self.searches)
                factors = [one.structure.factors(one.strengths[None], plan.every)[0] for one in self.searches]
                self._send(link, np.stack(factors))
                for one, factor in zip(self.searches, factors, strict=True):
                    one.strengths = one.strengths * factor
        self.exchange += pending  # increments of the last steps, which nothing else took along
        done = len(self.history)
        for one, epoch in zip(self.searches, epochs, strict=True):
            one.structure.end_epoch(one.strengths[None], epoch - one.search.first)
            record, done = one.record(plan), done + 1
            self.notify(event_of("epoch", {"step": done, "of": plan.epochs, **record}))

    def _open(self, link: Link, searches: Sequence[JudgedSearch]) -> None:
        """The strengths of some searches, from one message of every party."""
        plan, count = self.plan, len(searches)
        self.exchange += 1
        squares = np.zeros((count, plan.d, plan.d))
        last = (plan.numbers,) if plan.validator == "M1" else ()
        opened = np.zeros((count, plan.d, plan.d, *last), dtype=np.int64)
        for party, message in link.gather_each(self.norms_kind, self.step).items():
            own, others, sent = self.own[party], self.others[party], protocol.of_each(message, count)
            if plan.shares == "two":
                opened[:, others, own] += sent["into"]
                opened[:, own, others] += sent["out"]
            else:
                opened[:, plan.between] += sent["into"]
            squares[:, own, own] = sent["own"]
            for one, loss in zip(searches, sent["losses"], strict=True):
                one.loss += float(loss)
        opened = ring.reduce(opened)
        shared = np.square(decode(opened, BITS)).sum(3) if plan.validator == "M1" else decode(opened, 2 * BITS)
        for own in self.own.values():
            shared[:, own, own] = squares[:, own, own]
        for one, strengths in zip(searches, np.sqrt(np.maximum(shared, 0.0)), strict=True):
            one.strengths = strengths

    def _send(self, link: Link, factors: Array) -> None:
        for party in self.plan.parties:
            at = self.plan.concerned(party)
            tensors = {"into": tensor(factors[:, :, at]), "out": tensor(factors[:, at])}
            link.send(party, self.factors_kind[party], self.step, tensors)

    def _settle(self, link: Link, searches: Sequence[JudgedSearch]) -> None:
        """End the search of some; from now on their edges follow one order."""
        if not searches:
            return
        self._open(link, searches)
        allowed = [one.structure.settle(one.strengths[None])[0] for one in searches]
        self._send(link, np.stack(allowed).astype(float))
        for one, kept in zip(searches, allowed, strict=True):
            one.strengths = one.strengths * kept

    def _choose(self, link: Link, one: JudgedSearch) -> None:
        """The threshold, by the rule; the parties score edges on held-out rows."""
        plan, settings, allowed = self.plan, self.plan.settings, one.structure.allowed[0]
        self._open(link, [one])
        self._send(link, np.ones((1, plan.d, plan.d)))
        one.strengths = strengths = np.where(allowed, one.strengths, 0.0)
        if settings.threshold == "mixture":
            one.threshold = rules.mixture_threshold(strengths, allowed)
        elif isinstance(settings.threshold, float):
            one.threshold = settings.threshold
        if plan.held_out and plan.every_graph:
            self._compare_graphs(link, one)
        elif plan.held_out:
            self._try_edges(link, one)

    def _try_edges(self, link: Link, one: JudgedSearch) -> None:
        """Which strength is worth its place, by edges that a party can end by itself: all of them, in one set or
        another."""
        plan, settings = self.plan, self.plan.settings
        count = settings.candidates if settings.threshold == "held_out" else 0
        ended = {party: rules.endings(one.strengths, own, count) for party, own in self.own.items()}
        proposed = {party: {"own": _staying(ended[party], own)} for party, own in self.own.items()}
        scored, empty = self._scored(link, proposed)
        self.exchange += len(plan.held_out)
        loss = sum(float(losses[0]) for losses in scored.values())
        one.held_out_loss = one.apart = loss
        if settings.threshold == "held_out":
            rises = np.concatenate([losses[1:] - losses[0] for losses in scored.values()])
            sets, gain = np.concatenate([*ended.values()]), rules.mean_gain(loss, empty, plan.d)
            tried = one.strengths, one.structure.allowed[0], sets, rises
            one.threshold = rules.worth_threshold(*tried, gain, settings.min_edge_gain, plan.rows - plan.train_rows)

    def _compare_graphs(self, link: Link, one: JudgedSearch) -> None:
        plan, settings, allowed = self.plan, self.plan.settings, one.structure.allowed[0]
        thresholds, graphs = rules.candidates(one.strengths, allowed, self.required, settings.candidates)
        concerned = {party: plan.concerned(party) for party in plan.parties}
        proposed = {party: {"into": graphs[:, :, at], "out": graphs[:, at]} for party, at in concerned.items()}
        scored, empty = self._scored(link, proposed)
        self.exchange += len(plan.held_out) * len(graphs)
        losses = np.sum([*scored.values()], axis=0)
        one.apart = float(losses[0])  # the first choice leaves all edges
        chosen = rules.most_worthy(losses, graphs.sum((1, 2)), empty, plan.d, settings.min_edge_gain)
        one.threshold, one.held_out_loss = float(thresholds[chosen]), float(losses[chosen])

    def _scored(self, link: Link, proposed: Mapping[str, Mapping[str, Mask]]) -> tuple[dict[str, Array], float]:
        """Every party's held-out loss with each choice of edges, and that of all attributes without any causes."""
        for party, masks in proposed.items():
            tensors = {name: tensor(mask) for name, mask in masks.items()}
            link.send(party, self.candidates_kind[party], self.step, tensors)
        losses, empty = {}, 0.0
        for party, message in link.gather_each(dict.fromkeys(proposed, LOSSES), self.step).items():
            wanted = len(next(iter(proposed[party].values())))
            losses[party] = scored = message.tensors["losses"].numpy()
            if len(scored) != wanted:
                raise WireError("losses.losses", f"holds {len(scored)} numbers, {wanted} are expected (from {party!r})")
            empty += float(message.meta["empty"])
        return losses, empty

    def _tell(self, link: Link) -> None:
        """Each party its part of the graph, by the output policy."""
        found = self.found
        assert found is not None
        strengths, allowed = found.strengths[0], found.allowed[0]
        graph = greedy_cut(strengths, float(found.thresholds[0]), self.required, ~allowed)
        for party in self.plan.parties:
            part = output.sent_to(self.plan.output, graph, strengths, self.plan.own(party))
            link.send(party, self.result_kind[party], self.step, part)

    def state(self) -> dict[str, Any]:
        fits = [
            [number, {name: tensor(array) for name, array in fit.arrays.items()}, fit.history]
            for number, fit in self.fits.items()
        ]
        searches = [one.state() for one in self.searches]
        return {"epoch": self.epoch, "exchange": self.exchange, "searches": searches, "fits": fits}

    def load_state(self, state: Mapping[str, Any]) -> None:
        group = self.plan.left(state["epoch"])[0]
        self._begin(group)
        left = group.left(state["epoch"])
        self.searches = tuple(one for one in self.searches if one.search in left)
        for one, kept in zip(self.searches, state["searches"], strict=True):
            one.load_state(kept)
        self.epoch, self.exchange = state["epoch"], state["exchange"]
        for number, arrays, history in state["fits"]:
            found = {name: array.numpy() for name, array in arrays.items()}
            self.fits[number] = Fit(**found, history=[dict(record) for record in history])


def _staying(ended: Mask, own: slice) -> Mask:
    """For a party what stays in each trial, first all: between two of its attributes, and on the diagonal what all
    other parties add to an attribute."""
    gone = ended[:, own, own].copy()
    each = np.arange(gone.shape[1])
    outside = ended[:, :, own].sum(1) > gone.sum(1)
    gone[:, each, each] = outside
    return np.concatenate([np.ones((1, *gone.shape[1:]), dtype=bool), ~gone])
