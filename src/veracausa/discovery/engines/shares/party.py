"""A party that holds attributes: it learns their decoders, and with the others the weights between all attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point
from veracausa.crypto.randomness import make_draws
from veracausa.crypto.triples import Needs
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.offline_phase import OfflinePhase
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, SearchPlan, pairing
from veracausa.discovery.engines.shares.protocol import LOSSES, tensor
from veracausa.discovery.engines.shares.share_engine import ShareEngine
from veracausa.discovery.engines.shares.triples import TripleSpec
from veracausa.discovery.methods.vfedcd.as_published import laplace
from veracausa.discovery.methods.vfedcd.as_published.k_way_shares import KWayShareEngine
from veracausa.discovery.methods.vfedcd.decoders import Decoders, decoders_for
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
        self.decoders: Decoders
        self.inner: Array
        """The weights between the party's own attributes: nobody else's business, so not shared."""
        self.inner_allowed: Mask
        self.draw()
        self.norms_kind, self.factors_kind = protocol.norms(plan, name), protocol.factors(plan, name)
        self.candidates_kind = protocol.candidates(plan, name)
        self.result_kind = output.result_kind(plan.output, plan.d, self.count)
        self.known: Array
        """(d, d): what the validator sent this party of the graph, at the end."""
        self.epoch = 0
        """So many phases of the plan are done."""
        self.tell: Callable[[int], None] = lambda done: None
        """Hears after every epoch how many are done."""
        self.loss = 0.0
        self.figures = np.full((len(plan.searches), self.count, len(FIGURES)), np.nan)
        """Of the own attributes on held-out rows, by search, see `diagnostics`: they stay with the party."""

    def draw(self, *search: int) -> None:
        """First weights that are the party's own alone; for a search after the first one, by its number."""
        self.search = search[0] if search else 0
        settings = self.plan.searches[self.search].settings
        rng = self.draws.generator("decoders", *search)
        self.decoders = decoders_for(settings.likelihood)(
            1, self.count, self.h, settings.depth, settings.activation, self.binary, settings.likelihood, rng
        )
        self.decoders.observe(np.concatenate(self.values[: self.steps])[None])
        self.inner_allowed = self.allowed[self.own, self.own, None]
        shape = (self.count, self.count, self.h)
        self.inner = rng.uniform(-1, 1, shape) / (self.plan.d * np.sqrt(self.h)) * self.inner_allowed

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
            for search in self.plan.left(self.epoch):
                self.preparation.begin(search)
                if search.begins(self.epoch):
                    self._begin(link, search)
                self._learn(link, store, search)
                step = self._compare(link, search)
        sent = link.receive(VALIDATOR, self.result_kind, step).tensors
        self.known = output.received(sent, self.plan.d, self.own)

    def _begin(self, link: Link, search: SearchPlan) -> None:
        if search.number:
            self.draw(search.number)
        self.holder.share_first_weights(link, self.allowed, search.number)

    def _learn(self, link: Link, store: Store | None, search: SearchPlan) -> None:
        plan, holder = self.plan, self.holder
        for epoch in search.epochs(self.epoch):
            holder.use(self.preparation.epoch(link, epoch))
            rounding = self.draws.generator("rounding", epoch)
            own = search.settings
            self.decoders.noisy_rate = own.refit_noisy_rate if epoch >= search.refit else own.noisy_rate
            if epoch == search.refit:
                into, out = self._factors(link)
                holder.restrict(into > 0, out > 0)
                self.inner_allowed = (into[self.inside] > 0)[..., None]
                self.inner *= self.inner_allowed
            for batch, update in plan.order(epoch):
                self._step(link, batch, rounding)
                if update:
                    into, out = self._factors(link)
                    holder.shrink(into, out)
                    self.inner *= into[self.inside][..., None]
            holder.deliver(link)
            self.epoch = epoch + 1
            self.tell(plan.epochs_done(self.epoch))
            if store is not None and plan.keeps(search, self.epoch):
                store.save(self.epoch, self.state())

    def _step(self, link: Link, batch: int, rounding: np.random.Generator) -> None:
        settings = self.plan.settings
        foreign = self._spread(self.holder.features(link, batch))
        x = self.values[batch]
        decay = 2 * settings.sparsity_weight if settings.sparsity == "l2" else 0.0
        gradient = np.zeros_like(foreign)
        for local in range(self.plan.local_steps):
            step = self.decoders.step(self._features(foreign, x, self.inner), x.T[None], settings.learning_rate, decay)
            by_feature = step.features[0].swapaxes(0, 1).reshape(len(x), -1)
            self.inner -= settings.learning_rate * self.inner_allowed * (x.T @ by_feature).reshape(self.inner.shape)
            gradient += by_feature
            if local == 0:
                self.loss += float(step.losses.sum())
        if self.mixing is not None:
            gradient = bottleneck.gathered(gradient, self.mixing)
        self.holder.descend(batch, fixed_point.encode_gradient(-settings.learning_rate * gradient, rounding))

    def _spread(self, opened: Array) -> Array:
        """What was opened, as an input of every hidden unit."""
        return opened if self.mixing is None else bottleneck.spread(opened, self.mixing)

    def _features(self, foreign: Array, x: Array, inner: Array) -> Array:
        """(1, own, n, h): the opened part and the party's own."""
        z = foreign + x @ inner.reshape(self.count, -1)
        features: Array = z.reshape(len(x), self.count, self.h).swapaxes(0, 1)[None]
        return features

    def _factors(self, link: Link) -> tuple[Array, Array]:
        """What the validator makes of the strengths: a factor for every block into and out of the own attributes."""
        holder = self.holder
        into, out = holder.norms(link) if self.plan.validator == "M2" else holder.weights(link)
        sent = {"into": into, "out": out, "own": np.square(self.inner).sum(2)}
        if self.plan.laplace is not None and self.plan.laplace.rule == "sum":
            noise = self.draws.masks("noise", holder.step)
            sent = laplace.noisy_squares(noise, self.plan.laplace, sent)
        tensors = {name: tensor(array) for name, array in sent.items()}
        link.send(VALIDATOR, self.norms_kind, holder.step, tensors, loss=self.loss)
        self.loss = 0.0
        received = link.receive(VALIDATOR, self.factors_kind, holder.step).tensors
        return received["into"].numpy(), received["out"].numpy()

    def _compare(self, link: Link, search: SearchPlan) -> int:
        """The held-out loss with the edges that the validator proposes; only sums leave. The last update's number."""
        self.holder.use(self.preparation.epoch(link, search.last))
        self._factors(link)
        step = self.holder.step
        if not self.plan.held_out:
            return step
        proposed = link.receive(VALIDATOR, self.candidates_kind, step).tensors
        if self.plan.every_graph:
            held_out = tuple(range(self.steps, len(self.values)))
            self.holder.use(self.preparation.at_once(link, Needs(forward=held_out * len(proposed["into"]))))
        losses, empty = self.scores(link, {name: part.numpy() for name, part in proposed.items()})
        link.send(VALIDATOR, LOSSES, step, {"losses": tensor(losses)}, empty=empty)
        return step

    def scores(self, link: Link, proposed: Mapping[str, Mask]) -> tuple[Array, float]:
        """The held-out loss with each choice of edges, and without any causes."""
        if self.plan.every_graph:
            graphs = zip(proposed["into"], proposed["out"], strict=True)
            losses = np.array([self._held_out_loss(link, graph, not at) for at, graph in enumerate(graphs)])
        else:
            losses = self._own_edges(link, proposed["own"])
        rows = np.concatenate(self.values[self.steps :])
        return losses, float(self.decoders.losses_without_causes(rows.T[None]).sum())

    def _own_edges(self, link: Link, stays: Mask) -> Array:
        """The loss with what stays in each trial: between two own attributes, and on the diagonal what all others add
        to an attribute. Every row is opened once: under two graphs the difference would show what the edges between
        them add, a copy of their causes. To leave out all that was opened of an attribute opens nothing."""
        total, rows, seen = np.zeros(len(stays)), 0, []
        for batch in range(self.steps, len(self.values)):
            x = self.values[batch]
            foreign = self._spread(self.holder.features(link, batch))
            seen.append(foreign)
            for at, own in enumerate(stays):
                opened = foreign * np.repeat(own.diagonal(), self.h)
                features = self._features(opened, x, self.inner * own[..., None])
                total[at] += float(self.decoders.losses(features, x.T[None]).sum()) * len(x)
            rows += len(x)
        self._diagnose(seen, self.inner)
        return total / rows

    def _held_out_loss(self, link: Link, graph: tuple[Mask, Mask], first: bool) -> float:
        inner = self.inner * graph[0][self.inside][..., None]
        total, rows, seen = 0.0, 0, []
        for batch in range(self.steps, len(self.values)):
            x = self.values[batch]
            foreign = self._spread(self.holder.features(link, batch, graph))
            seen.append(foreign)
            total += float(self.decoders.losses(self._features(foreign, x, inner), x.T[None]).sum()) * len(x)
            rows += len(x)
        if first:  # it has all edges that the order leaves
            self._diagnose(seen, inner)
        return total / rows

    def _diagnose(self, seen: list[Array], inner: Array) -> None:
        """What held-out rows say of the own attributes, from what was opened of them."""
        rows, foreign = np.concatenate(self.values[self.steps :]), np.concatenate(seen)
        prediction = self.decoders.predict(self._features(foreign, rows, inner))[0].T
        opened = foreign.reshape(len(rows), self.count, self.h)
        own = np.broadcast_to(self.inner_allowed[..., 0], (self.count, self.count))
        causes = [np.column_stack([opened[:, at], rows[:, own[:, at]]]) for at in range(self.count)]
        self.figures[self.search] = figures(prediction, rows, causes, self.binary, self.plan.train_rows)

    def state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "holder": self.holder.state(),
            "used_keys": self.preparation.used_keys,
            "decoders": {name: tensor(value) for name, value in self.decoders.values.items()},
            "inner": tensor(self.inner),
            "inner_allowed": tensor(self.inner_allowed),
            "loss": self.loss,
            "figures": tensor(self.figures),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.loss = state["epoch"], state["loss"]
        if number := self.plan.left(self.epoch)[0].number:
            self.draw(number)  # of the likelihood of that search
        self.holder.load_state(state["holder"])
        self.preparation.used_keys = list(state["used_keys"])
        self.decoders.values = {name: value.numpy() for name, value in state["decoders"].items()}
        self.inner, self.inner_allowed = state["inner"].numpy(), state["inner_allowed"].numpy()
        if "figures" in state:  # checkpoints from before there were any have none
            self.figures = state["figures"].numpy()
