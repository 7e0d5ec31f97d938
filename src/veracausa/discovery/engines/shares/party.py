"""A party that holds attributes: it learns their decoders, and with the others the weights between all attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point
from veracausa.crypto.randomness import make_draws
from veracausa.crypto.triples import Needs
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.offline_phase import OfflinePhase
from veracausa.discovery.engines.shares.plan import VALIDATOR, ParallelSearches, Plan, SearchPlan, pairing
from veracausa.discovery.engines.shares.protocol import LOSSES, tensor
from veracausa.discovery.engines.shares.share_engine import ShareEngine
from veracausa.discovery.engines.shares.triples import TripleSpec
from veracausa.discovery.methods.vfedcd.as_published import laplace
from veracausa.discovery.methods.vfedcd.as_published.k_way_shares import KWayShareEngine
from veracausa.discovery.methods.vfedcd.decoders import Decoders, Likelihood, decoders_for
from veracausa.discovery.methods.vfedcd.diagnostics import FIGURES, figures
from veracausa.discovery.privacy import countermeasures as bottleneck
from veracausa.discovery.privacy import options as output
from veracausa.runs.store import Store
from veracausa.wire.link import Link


class AttributeParty:
    """A straight program in step with the others: the plan says what is sent when, so nobody has to ask."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        values: Array,
        binary: Mask,
        allowed: Mask,
        seed: int | None,
        restart_index: int = 0,
    ) -> None:
        self.plan, self.name, self.allowed = plan, name, allowed
        self.draws = make_draws(seed, name)
        settings, self.own = plan.settings, plan.own(name)
        self.count, self.h = self.own.stop - self.own.start, settings.width
        fixed = fixed_point.encode_columns(values, plan.names[self.own])
        parts = [*plan.batches, *plan.held_out]
        self.values = [np.ascontiguousarray(values[rows]) for rows in parts]
        self.steps = len(plan.batches)
        self.training = np.stack(self.values[: self.steps])
        """(batches, n, own)."""
        self.batches = batches = [np.ascontiguousarray(fixed[rows]) for rows in parts]
        self.holder = (ShareEngine if plan.shares == "two" else KWayShareEngine)(
            plan, name, batches, self.draws, restart_index
        )
        start = self.own.start - plan.concerned(name).start
        self.inside = (self.own, slice(start, start + self.count))
        """Where the edges between the own attributes lie in what the validator says."""
        order = TripleSpec(name, plan.encryption, pairing(plan, name), batches, seed, restart_index)
        self.preparation = OfflinePhase(plan, name, order)
        self.binary = binary & settings.bernoulli
        self.mixing = bottleneck.mixing(settings.bottleneck, self.h) if settings.bottleneck else None
        self.searches: tuple[SearchPlan, ...] = ()
        """Those side by side that are not over. Arrays below have an axis for the S of them."""
        self.decoders: Decoders
        self.inner: Array
        """(S, own, own, h): the weights between the party's own attributes, nobody else's business, so not shared."""
        self.inner_allowed: Mask
        self.loss: Array
        """(S,): since the last structure update."""
        self.ending = 0
        """Which of the searches is being compared."""
        self.norms_kind, self.factors_kind = protocol.norms(plan, name), protocol.factors(plan, name)
        self.candidates_kind = protocol.candidates(plan, name)
        self.result_kind = output.result_kind(plan.output, plan.d, self.count)
        self.known: Array
        """(d, d): what the validator sent this party of the graph, at the end."""
        self.epoch = 0
        """So many rounds of the plan are done."""
        self.tell: Callable[[int], None] = lambda done: None
        """Hears after every epoch how many are done."""
        self.figures = np.full((len(plan.searches), self.count, len(FIGURES)), np.nan)
        """Of the own attributes on held-out rows, by search, see `diagnostics`: they stay with the party."""

    def draw(self, group: ParallelSearches) -> None:
        """First weights that are the party's own alone, for each search of a group."""
        self.searches, drawn = group.searches, [self._drawn(search) for search in group.searches]
        decoders, inner = zip(*drawn, strict=True)
        self.decoders = decoders[0].beside(decoders[1:])
        self.inner_allowed = np.repeat(self.allowed[None, self.own, self.own, None], len(inner), axis=0)
        self.inner = np.stack(inner) * self.inner_allowed
        self.loss = np.zeros(len(inner))

    def _drawn(self, search: SearchPlan) -> tuple[Decoders, Array]:
        settings = search.settings
        rng = self.draws.generator("decoders", *([search.number] if search.number else []))
        kind = settings.depth, settings.activation, self.binary, settings.likelihood
        decoders = self._decoders(settings.likelihood, 1, self.count, self.h, *kind, rng)
        decoders.observe(np.concatenate(self.values[: self.steps])[None])
        return decoders, rng.uniform(-1, 1, (self.count, self.count, self.h)) / (self.plan.d * np.sqrt(self.h))

    def _decoders(self, likelihood: Likelihood, *shape_and_kind: Any) -> Decoders:
        return decoders_for(likelihood)(*shape_and_kind)

    def run(self, link: Link, store: Store | None = None) -> None:
        """Take part from set-up to the last held-out row."""
        link.declare(self.norms_kind, self.factors_kind, self.candidates_kind, LOSSES, peer=VALIDATOR)
        link.declare(self.result_kind, peer=VALIDATOR)
        self.holder.declare(link)
        if store is not None and store.start_step is not None:
            self.load_state(store.load(store.start_step))
        with self.preparation:
            self.preparation.set_up(link)
            self.holder.share_pads(link)
            for group in self.plan.left(self.epoch):
                if self.epoch <= group.first:
                    self.draw(group)
                    numbers = [search.number for search in group.searches]
                    self.holder.share_first_weights(link, self.allowed, numbers)
                    self.epoch = group.first
                for done in range(self.epoch, group.last + 1):
                    for search in group.ending(done):
                        self._compare(link, search)
                    self.keep(group.running(done))
                    if self.searches:
                        self._learn(link, group, done)
                        self.epoch = done + 1
                        self.tell(self.plan.epochs_done(self.epoch))
                        if store is not None and self.plan.keeps(group, self.epoch):
                            store.save(self.epoch, self.state())
        sent = link.receive(VALIDATOR, self.result_kind, self.holder.step).tensors
        self.known = output.received(sent, self.plan.d, self.own)

    def keep(self, searches: tuple[SearchPlan, ...]) -> None:
        """Go on with these searches: the others are over."""
        if searches and searches != self.searches:
            at = [self.searches.index(search) for search in searches]
            self.holder.keep(at)
            self.decoders = self.decoders.chosen(at)
            self.inner, self.inner_allowed, self.loss = self.inner[at], self.inner_allowed[at], self.loss[at]
        self.searches = searches

    def _learn(self, link: Link, group: ParallelSearches, done: int) -> None:
        """One epoch of each search that is not over."""
        plan, holder = self.plan, self.holder
        epochs = [group.epoch(search, done) for search in self.searches]
        made = [self.preparation.epoch(link, *each) for each in zip(self.searches, epochs, strict=True)]
        steps = list(zip(*(plan.order(epoch) for epoch in epochs), strict=True))
        holder.use(dict(enumerate(made)), [[batch for batch, _ in order] for order in zip(*steps, strict=True)])
        rounding = self.rounding(epochs, len(steps))
        self.pace(epochs)
        settling = [at for at, search in enumerate(self.searches) if epochs[at] == search.refit]
        if settling:
            into, out = self._factors(link, settling)
            holder.restrict(into > 0, out > 0, settling)
            self.inner_allowed[settling] = (into[:, *self.inside] > 0)[..., None]
            self.inner *= self.inner_allowed
        every = range(len(self.searches))
        for number, step in enumerate(steps):
            self.step(link, tuple(batch for batch, _ in step), rounding[number])
            if step[0][1]:
                into, out = self._factors(link, every)
                holder.shrink(into, out, every)
                self.inner *= into[:, *self.inside][..., None]
        holder.deliver(link)

    def pace(self, epochs: Sequence[int]) -> None:
        """Let attributes with much noise learn as fast as each search says for this epoch."""
        own = [(search.settings, epoch >= search.refit) for search, epoch in zip(self.searches, epochs, strict=True)]
        rates = [settings.refit_noisy_rate if refit else settings.noisy_rate for settings, refit in own]
        self.decoders.noisy_rate = np.array(rates)[:, None, None, None]

    def rounding(self, epochs: Sequence[int], steps: int) -> Any:
        """What each step's gradients are rounded by, (S, n, own·numbers): every epoch has draws of its own."""
        shape = (steps, len(self.values[0]), self.count * self.plan.numbers)
        return np.stack([self.draws.generator("rounding", epoch).random(shape) for epoch in epochs], axis=1)

    def step(self, link: Link, batches: tuple[int, ...], rounding: Any) -> None:
        settings = self.plan.settings
        foreign = self._spread(self.holder.features(link, batches))
        x = self.training[list(batches)]
        turned = x.swapaxes(1, 2)
        decay = 2 * settings.sparsity_weight if settings.sparsity == "l2" else 0.0
        gradient = np.zeros_like(foreign)
        for local in range(self.plan.local_steps):
            step = self.decoders.step(self._features(foreign, x, self.inner), turned, settings.learning_rate, decay)
            by_feature = step.features.swapaxes(1, 2).reshape(foreign.shape)
            moved = settings.learning_rate * self.inner_allowed
            self.inner -= moved * (turned @ by_feature).reshape(self.inner.shape)
            gradient += by_feature
            if local == 0:
                self.loss += step.losses.sum(1)
        if self.mixing is not None:
            gradient = bottleneck.gathered(gradient, self.mixing)
        self.holder.descend(batches, fixed_point.encode_gradient(-settings.learning_rate * gradient, rounding))

    def _spread(self, opened: Array) -> Array:
        """What was opened, as an input of every hidden unit."""
        return opened if self.mixing is None else bottleneck.spread(opened, self.mixing)

    def _features(self, foreign: Array, x: Array, inner: Array) -> Array:
        """(S, own, n, h): the opened part and the party's own."""
        z = foreign + x @ inner.reshape(len(inner), self.count, -1)
        features: Array = z.reshape(*x.shape[:2], self.count, self.h).swapaxes(1, 2)
        return features

    def _factors(self, link: Link, at: Sequence[int]) -> tuple[Array, Array]:
        """What the validator makes of some searches' strengths: a factor for every block into and out of the own
        attributes."""
        holder, these = self.holder, list(at)
        into, out = holder.norms(link, at) if self.plan.validator == "M2" else holder.weights(link, at)
        sent = {"into": into, "out": out, "own": np.square(self.inner[these]).sum(3)}
        if self.plan.laplace is not None and self.plan.laplace.rule == "sum":
            noise = self.draws.masks("noise", holder.step)
            sent = laplace.noisy_squares(noise, self.plan.laplace, sent)
        tensors = {name: tensor(array) for name, array in (sent | {"losses": self.loss[these]}).items()}
        link.send(VALIDATOR, self.norms_kind, holder.step, tensors)
        self.loss[these] = 0.0
        received = protocol.of_each(link.receive(VALIDATOR, self.factors_kind, holder.step), len(these))
        return received["into"], received["out"]

    def _compare(self, link: Link, search: SearchPlan) -> None:
        """The held-out loss with the edges that the validator proposes; only sums leave."""
        self.ending = at = self.searches.index(search)
        self.holder.use({at: self.preparation.epoch(link, search, search.last)})
        self._factors(link, [at])
        step = self.holder.step
        if not self.plan.held_out:
            return
        proposed = link.receive(VALIDATOR, self.candidates_kind, step).tensors
        if self.plan.every_graph:
            held_out = tuple(range(self.steps, len(self.values)))
            needs = Needs(forward=held_out * len(proposed["into"]))
            self.holder.use({at: self.preparation.at_once(link, search, needs)})
        losses, empty = self.scores(link, {name: part.numpy() for name, part in proposed.items()})
        link.send(VALIDATOR, LOSSES, step, {"losses": tensor(losses)}, empty=empty)

    def scores(self, link: Link, proposed: Mapping[str, Mask]) -> tuple[Array, float]:
        """The held-out loss of the search that ends, with each choice of edges, and without any causes."""
        decoders, inner = self.decoders.chosen([self.ending]), self.inner[[self.ending]]
        if self.plan.every_graph:
            graphs = zip(proposed["into"], proposed["out"], strict=True)
            losses = np.array(
                [self._held_out_loss(link, decoders, inner, graph, not at) for at, graph in enumerate(graphs)]
            )
        else:
            losses = self._own_edges(link, decoders, inner, proposed["own"])
        rows = np.concatenate(self.values[self.steps :])
        return losses, float(decoders.losses_without_causes(rows.T[None]).sum())

    def _own_edges(self, link: Link, decoders: Decoders, inner: Array, stays: Mask) -> Array:
        """The loss with what stays in each trial: between two own attributes, and on the diagonal what all others add
        to an attribute. Every row is opened once: under two graphs the difference would show what the edges between
        them add, a copy of their causes. To leave out all that was opened of an attribute opens nothing."""
        total, rows, seen = np.zeros(len(stays)), 0, []
        for batch in range(self.steps, len(self.values)):
            x = self.values[batch]
            foreign = self._spread(self.holder.features(link, (batch,), at=self.ending))
            seen.append(foreign)
            for at, own in enumerate(stays):
                opened = foreign * np.repeat(own.diagonal(), self.h)
                features = self._features(opened, x[None], inner * own[..., None])
                total[at] += float(decoders.losses(features, x.T[None]).sum()) * len(x)
            rows += len(x)
        self._diagnose(seen, decoders, inner)
        return total / rows

    def _held_out_loss(
        self, link: Link, decoders: Decoders, inner: Array, graph: tuple[Mask, Mask], first: bool
    ) -> float:
        inner = inner * graph[0][self.inside][..., None]
        total, rows, seen = 0.0, 0, []
        for batch in range(self.steps, len(self.values)):
            x = self.values[batch]
            foreign = self._spread(self.holder.features(link, (batch,), graph, self.ending))
            seen.append(foreign)
            total += float(decoders.losses(self._features(foreign, x[None], inner), x.T[None]).sum()) * len(x)
            rows += len(x)
        if first:  # it has all edges that the order leaves
            self._diagnose(seen, decoders, inner)
        return total / rows

    def _diagnose(self, seen: list[Array], decoders: Decoders, inner: Array) -> None:
        """What held-out rows say of the own attributes, from what was opened of them."""
        rows, foreign = np.concatenate(self.values[self.steps :]), np.concatenate(seen, axis=1)
        prediction = decoders.predict(self._features(foreign, rows[None], inner))[0].T
        opened = foreign.reshape(len(rows), self.count, self.h)
        own = np.broadcast_to(self.inner_allowed[self.ending, ..., 0], (self.count, self.count))
        causes = [np.column_stack([opened[:, at], rows[:, own[:, at]]]) for at in range(self.count)]
        number = self.searches[self.ending].number
        self.figures[number] = figures(prediction, rows, causes, self.binary, self.plan.train_rows)

    def state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "holder": self.holder.state(),
            "used_keys": self.preparation.used_keys,
            "decoders": {name: tensor(value) for name, value in self.decoders.values.items()},
            "inner": tensor(self.inner),
            "inner_allowed": tensor(self.inner_allowed),
            "loss": tensor(self.loss),
            "figures": tensor(self.figures),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.epoch = state["epoch"]
        group = self.plan.left(self.epoch)[0]
        self.draw(group)  # of the likelihood of these searches
        self.holder.load_state(state["holder"])
        self.keep(group.left(self.epoch))
        self.preparation.used_keys = list(state["used_keys"])
        self.decoders.values = {name: value.numpy() for name, value in state["decoders"].items()}
        self.inner, self.inner_allowed = state["inner"].numpy(), state["inner_allowed"].numpy()
        self.loss, self.figures = state["loss"].numpy(), state["figures"].numpy()
