"""The centralized topology validator of the protocol as published (algorithms 5 and 6, its side)."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto.agreement import tensor
from veracausa.crypto.randomness import make_draws
from veracausa.discovery.engines.literal import protocol
from veracausa.discovery.engines.literal.party import MASK
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.structure import Structure
from veracausa.discovery.privacy import options as output
from veracausa.discovery.result import Fit
from veracausa.errors import RunError
from veracausa.events import Observer, event_of
from veracausa.wire.link import Link


def structure_gradient(structure: Structure, strengths: Array) -> Array:
    """(d, d): ∇_B of λ‖B‖₁ + λ2 ρ(B)."""
    structure.value, gradient = structure.penalty(strengths[None])
    whole = structure.weight[:, None, None] * gradient + structure.settings.sparsity_weight
    return np.asarray(np.where(structure.allowed[0] & ~structure.required, whole[0], 0.0))


def random_split(gradient: Array, parts: int, rng: np.random.Generator, deviation: float) -> list[Array]:
    """Parts that add up to the gradient: an equal share each, and noise that cancels in the sum."""
    noise = [rng.normal(0.0, deviation, gradient.shape) for _ in range(parts - 1)]
    noise.append(-np.sum(noise, axis=0))
    return [gradient / parts + part for part in noise]


class LiteralValidator:
    """It is sent norms of fragments, and adds them up as if they were those of the encoders."""

    def __init__(
        self,
        plan: Plan,
        allowed: Mask,
        required: Mask,
        notify: Observer = lambda event: None,
        seed: int | None = None,
        *,
        mask: float = MASK,
    ) -> None:
        self.plan, self.required, self.notify, self.mask = plan, required, notify, mask
        self.rng = make_draws(seed, VALIDATOR).generator("literal split")
        self.structure = Structure(plan.settings, allowed[None], required)
        self.strengths = np.zeros((plan.d, plan.d))
        self.history: list[dict[str, float]] = []

    def run(self, link: Link) -> None:
        plan = self.plan
        norms, split = protocol.structure(plan), protocol.split(plan)
        results = {party: output.result_kind("all", plan.d, plan.count(party)) for party in plan.parties}
        for party in plan.parties:
            link.declare(norms, split, results[party], peer=party)
        step = 0
        for epoch in range(plan.settings.epochs):
            loss = 0.0
            for _, update in plan.order(epoch):
                step += 1
                if not update:
                    continue
                messages = {party: link.receive(party, norms, step) for party in plan.parties}
                loss += sum(float(message.meta["loss"]) for message in messages.values())
                self.strengths = np.sum([m.tensors["norms"].numpy() for m in messages.values()], axis=0)
                gradient = structure_gradient(self.structure, self.strengths)
                parts = random_split(gradient, len(plan.parties), self.rng, self.mask)
                for party, part in zip(plan.parties, parts, strict=True):
                    link.send(party, split, step, {"gradient": tensor(part)})
            self._end(epoch, loss)
        settings = plan.settings
        assert isinstance(settings.threshold, float)
        graph = greedy_cut(self.strengths, settings.threshold, self.required, ~self.structure.allowed[0])
        for party in plan.parties:
            link.send(party, results[party], step + 1, output.sent_to("all", graph, self.strengths, plan.own(party)))

    def _end(self, epoch: int, loss: float) -> None:
        self.structure.end_epoch(self.strengths[None], epoch)
        if not np.isfinite(loss):
            raise RunError(
                f"the fit diverged in epoch {epoch + 1}; lower its rate ({self.plan.settings.learning_rate})"
            )
        record = {
            "epoch": epoch + 1.0,
            "weight": float(self.structure.weight[0]),
            "loss": loss / len(self.plan.batches),
            "acyclicity": float(self.structure.value[0]),
        }
        self.history.append(record)
        self.notify(event_of("epoch", {"step": epoch + 1, "of": self.plan.settings.epochs, **record}))

    def fit(self) -> Fit:
        """What it ends with; nobody scores held-out rows."""
        nothing = np.array([np.nan])
        threshold = self.plan.settings.threshold
        return Fit(
            self.strengths[None],
            self.structure.allowed,
            thresholds=np.array([threshold], dtype=float),
            held_out_loss=nothing,
            score=np.array([self.history[-1]["loss"]]),
            search=np.array([0]),
            apart=nothing,
            history=self.history,
        )
