"""The party that looks at the graph as a whole: it opens strengths, and says by how much each block shrinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import ring
from veracausa.crypto.fixed_point import WEIGHT_BITS, decode
from veracausa.crypto.randomness import make_draws
from veracausa.crypto.shares import NORM_BITS
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, SearchPlan
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
        self.history: list[dict[str, float]] = []
        self.norms_kind = {party: protocol.norms(plan, party) for party in plan.parties}
        self.factors_kind = {party: protocol.factors(plan, party) for party in plan.parties}
        self.candidates_kind = {party: protocol.candidates(plan, party) for party in plan.parties}
        self.result_kind = {party: output.result_kind(plan.output, plan.d, plan.count(party)) for party in plan.parties}
        self.own = {party: plan.own(party) for party in plan.parties}
        self.others = {party: plan.foreign(party) for party in plan.parties}
        self.epoch = 0
        """So many phases of the plan are done."""
        self.found: Fit | None = None
        """The likeliest of the searches that are over."""
        self._begin(plan.searches[0])

    def _begin(self, search: SearchPlan) -> None:
        plan = self.plan
        self.structure = Structure(search.settings, self.allowed[None], self.required)
        self.structure.start = self.start_graph
        if plan.laplace is not None and plan.laplace.rule == "published":
            self.structure.penalty = NoisyPenalty(self.structure.penalty, plan.laplace, len(plan.parties), self.noise)
        self.strengths = np.zeros((plan.d, plan.d))
        self.exchange = protocol.first_exchange(search.number)
        self.loss, self.threshold, self.held_out_loss, self.apart = 0.0, 0.0, float("nan"), float("nan")

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
        for search in plan.left(self.epoch):
            if search.begins(self.epoch):
                self._begin(search)
            for epoch in search.epochs(self.epoch):
                if epoch == search.refit:
                    self._settle(link)
                self._epoch(link, search, epoch)
                self.epoch = epoch + 1
                if store is not None and plan.keeps(search, self.epoch):
                    store.save(self.epoch, self.state())
            self._choose(link)
            self._compare(search)
        self._tell(link)

    def _epoch(self, link: Link, search: SearchPlan, epoch: int) -> None:
        pending = False
        for _, update in self.plan.order(epoch):
            self.exchange += 1
            pending = not update
            if update:
                self._open(link)
                factors = self.structure.factors(self.strengths[None], self.plan.every)[0]
                self._send(link, factors)
                self.strengths = self.strengths * factors
        self.exchange += pending  # increments of the last steps, which nothing else took along
        self.structure.end_epoch(self.strengths[None], epoch - search.first)
        structure = self.structure
        record = {
            "epoch": len(self.history) + 1.0,
            "weight": float(structure.weight[0]) if structure.searching else 0.0,
            "loss": self.loss / len(self.plan.batches),
            "acyclicity": float(structure.value[0]),
        }
        self.loss = 0.0
        if self.plan.privacy is not None:
            del record["loss"]  # nobody sent one
        elif not np.isfinite(record["loss"]):
            raise RunError(
                f"the fit diverged in epoch {len(self.history) + 1}; lower its rate "
                f"({self.plan.settings.learning_rate})"
            )
        self.history.append(record)
        self.notify(event_of("epoch", {"step": len(self.history), "of": self.plan.epochs, **record}))

    def _open(self, link: Link) -> None:
        """The strengths, from one message of every party."""
        plan = self.plan
        self.exchange += 1
        squares = np.zeros((plan.d, plan.d))
        last = (plan.numbers,) if plan.validator == "M1" else ()
        opened = np.zeros((plan.d, plan.d, *last), dtype=np.int64)
        for party, message in link.gather_each(self.norms_kind, self.step).items():
            own, others = self.own[party], self.others[party]
            if plan.shares == "two":
                opened[others, own] += message.tensors["into"].numpy()
                opened[own, others] += message.tensors["out"].numpy()
            else:
                opened[plan.between] += message.tensors["into"].numpy()
            squares[own, own] = message.tensors["own"].numpy()
            self.loss += float(message.meta["loss"])
        opened = ring.reduce(opened)
        shared = np.square(decode(opened, BITS)).sum(2) if plan.validator == "M1" else decode(opened, 2 * BITS)
        for own in self.own.values():
            shared[own, own] = squares[own, own]
        self.strengths = np.sqrt(np.maximum(shared, 0.0))

    def _send(self, link: Link, factors: Array) -> None:
        for party in self.plan.parties:
            at = self.plan.concerned(party)
            tensors = {"into": tensor(factors[:, at]), "out": tensor(factors[at])}
            link.send(party, self.factors_kind[party], self.step, tensors)

    def _settle(self, link: Link) -> None:
        """End the search; from now on edges follow one order."""
        self._open(link)
        allowed = self.structure.settle(self.strengths[None])[0]
        self._send(link, allowed.astype(float))
        self.strengths = self.strengths * allowed

    def _choose(self, link: Link) -> None:
        """The threshold, by the rule; the parties score edges on held-out rows."""
        plan, settings, allowed = self.plan, self.plan.settings, self.structure.allowed[0]
        self._open(link)
        self._send(link, np.ones((plan.d, plan.d)))
        self.strengths = strengths = np.where(allowed, self.strengths, 0.0)
        if settings.threshold == "mixture":
            self.threshold = rules.mixture_threshold(strengths, allowed)
        elif isinstance(settings.threshold, float):
            self.threshold = settings.threshold
        if plan.held_out and plan.every_graph:
            self._compare_graphs(link)
        elif plan.held_out:
            self._try_edges(link)

    def _try_edges(self, link: Link) -> None:
        """Which strength is worth its place, by edges that a party can end by itself: all of them, in one set or
        another."""
        plan, settings = self.plan, self.plan.settings
        count = settings.candidates if settings.threshold == "held_out" else 0
        ended = {party: rules.endings(self.strengths, own, count) for party, own in self.own.items()}
        proposed = {party: {"own": _staying(ended[party], own)} for party, own in self.own.items()}
        scored, empty = self._scored(link, proposed)
        loss = sum(float(losses[0]) for losses in scored.values())
        self.held_out_loss = self.apart = loss
        if settings.threshold == "held_out":
            rises = np.concatenate([losses[1:] - losses[0] for losses in scored.values()])
            sets, gain = np.concatenate([*ended.values()]), rules.mean_gain(loss, empty, plan.d)
            tried = self.strengths, self.structure.allowed[0], sets, rises
            self.threshold = rules.worth_threshold(*tried, gain, settings.min_edge_gain, plan.rows - plan.train_rows)

    def _compare_graphs(self, link: Link) -> None:
        plan, settings, allowed = self.plan, self.plan.settings, self.structure.allowed[0]
        thresholds, graphs = rules.candidates(self.strengths, allowed, self.required, settings.candidates)
        concerned = {party: plan.concerned(party) for party in plan.parties}
        proposed = {party: {"into": graphs[:, :, at], "out": graphs[:, at]} for party, at in concerned.items()}
        scored, empty = self._scored(link, proposed)
        losses = np.sum([*scored.values()], axis=0)
        self.apart = float(losses[0])  # the first choice leaves all edges
        chosen = rules.most_worthy(losses, graphs.sum((1, 2)), empty, plan.d, settings.min_edge_gain)
        self.threshold, self.held_out_loss = float(thresholds[chosen]), float(losses[chosen])

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

    def _compare(self, search: SearchPlan) -> None:
        """Keep this search if it makes the data likelier than those before it did."""
        recent = [record.get("loss", 0.0) for record in self.history[-search.settings.compared :]]
        found = Fit(
            self.strengths[None],
            self.structure.allowed,
            thresholds=np.array([self.threshold]),
            held_out_loss=np.array([self.held_out_loss]),
            score=np.array([np.mean(recent)]),
            search=np.array([search.number]),
            apart=np.array([self.apart]),
            history=self.history,
        )
        self.found = likelier(self.found, found, self.plan.settings.each)

    def _tell(self, link: Link) -> None:
        """Each party its part of the graph, by the output policy."""
        assert self.found is not None
        strengths, allowed = self.found.strengths[0], self.found.allowed[0]
        graph = greedy_cut(strengths, float(self.found.thresholds[0]), self.required, ~allowed)
        for party in self.plan.parties:
            part = output.sent_to(self.plan.output, graph, strengths, self.plan.own(party))
            link.send(party, self.result_kind[party], self.step, part)

    def state(self) -> dict[str, Any]:
        structure = self.structure
        arrays = {"strengths": self.strengths, "allowed": structure.allowed, "weight": structure.weight,
                  "value": structure.value}  # fmt: skip
        return {
            "epoch": self.epoch,
            "exchange": self.exchange,
            "arrays": {name: tensor(array) for name, array in arrays.items()},
            "penalty": {name: tensor(array) for name, array in structure.penalty.state().items()},
            "searching": structure.searching,
            "history": self.history,
            "loss": self.loss,
            "found": {name: tensor(array) for name, array in self.found.arrays.items()} if self.found else {},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._begin(self.plan.left(state["epoch"])[0])
        structure = self.structure
        if state["found"]:
            self.found = Fit(**{name: array.numpy() for name, array in state["found"].items()})
        self.epoch, self.exchange, self.loss = state["epoch"], state["exchange"], state["loss"]
        arrays = {name: array.numpy() for name, array in state["arrays"].items()}
        self.strengths, structure.allowed = arrays["strengths"], arrays["allowed"]
        structure.weight, structure.value = arrays["weight"], arrays["value"]
        structure.penalty.load_state({name: array.numpy() for name, array in state["penalty"].items()})
        structure.searching = state["searching"]
        self.history = [dict(record) for record in state["history"]]


def _staying(ended: Mask, own: slice) -> Mask:
    """For a party what stays in each trial, first all: between two of its attributes, and on the diagonal what all
    other parties add to an attribute."""
    gone = ended[:, own, own].copy()
    each = np.arange(gone.shape[1])
    outside = ended[:, :, own].sum(1) > gone.sum(1)
    gone[:, each, each] = outside
    return np.concatenate([np.ones((1, *gone.shape[1:]), dtype=bool), ~gone])
