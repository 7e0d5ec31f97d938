"""What the validator makes of the strengths: factors, the order, candidates, the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Array, Mask
from veracausa.crypto.ring64.fixed64 import Words, decode, encode
from veracausa.discovery.engines.mpc.network import FACTOR_BITS, WEIGHT_BITS
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd import threshold as rules
from veracausa.discovery.methods.vfedcd.structure import Structure
from veracausa.errors import RunError


class Judge:
    """Sees the (d, d) strengths and sums of losses."""

    def __init__(self, plan: Plan, allowed: Mask, required: Mask) -> None:
        self.plan, self.required = plan, required
        self.structure = Structure(plan.settings, allowed[None], required)
        self.strengths = np.zeros((plan.d, plan.d))
        self.threshold, self.held_out_loss = 0.0, float("nan")
        self.history: list[dict[str, float]] = []
        self.loss = 0.0
        self._thresholds, self._graphs = np.zeros(1), np.zeros((1, plan.d, plan.d), dtype=bool)

    def see(self, squares: Words, loss: float) -> None:
        self.strengths = np.sqrt(np.maximum(decode(squares, 2 * WEIGHT_BITS), 0.0))
        self.loss += loss

    def factors(self) -> Words:
        """How every block is scaled."""
        factors = self.structure.factors(self.strengths[None], self.plan.every)[0]
        self.strengths = self.strengths * factors
        return encode(factors, FACTOR_BITS, 2.0)

    def settle(self) -> Mask:
        """End the search; from now on edges follow one order."""
        allowed: Mask = self.structure.settle(self.strengths[None])[0]
        self.strengths = self.strengths * allowed
        return allowed

    def end_epoch(self, epoch: int) -> dict[str, float]:
        structure = self.structure
        structure.end_epoch(self.strengths[None], epoch)
        record = {
            "epoch": float(epoch + 1),
            "weight": float(structure.weight[0]) if structure.searching else 0.0,
            "loss": self.loss / len(self.plan.batches),
            "acyclicity": float(structure.value[0]),
        }
        self.loss = 0.0
        if not np.isfinite(record["loss"]):
            raise RunError(f"the fit diverged in epoch {epoch + 1}; lower its rate ({self.plan.settings.rate})")
        self.history.append(record)
        return record

    def state(self) -> dict[str, Any]:
        structure = self.structure
        arrays = {"strengths": self.strengths, "allowed": structure.allowed, "weight": structure.weight,
                  "value": structure.value}  # fmt: skip
        return {
            "arrays": {name: torch.from_numpy(array) for name, array in arrays.items()},
            "penalty": {name: torch.from_numpy(array) for name, array in structure.penalty.state().items()},
            "searching": structure.searching,
            "history": self.history,
            "loss": self.loss,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        structure = self.structure
        arrays = {name: array.numpy() for name, array in state["arrays"].items()}
        self.strengths, structure.allowed = arrays["strengths"], arrays["allowed"]
        structure.weight, structure.value = arrays["weight"], arrays["value"]
        structure.penalty.load_state({name: array.numpy() for name, array in state["penalty"].items()})
        structure.searching, self.loss = state["searching"], state["loss"]
        self.history = [dict(record) for record in state["history"]]

    def candidates(self) -> Mask:
        """The graphs that are compared on rows kept apart, (R, d, d)."""
        settings, allowed = self.plan.settings, self.structure.allowed[0]
        self.strengths = strengths = np.where(allowed, self.strengths, 0.0)
        if settings.threshold in rules.BY_LIKELIHOOD and self.plan.held_out:
            self._thresholds, self._graphs = rules.candidates(strengths, allowed, self.required, settings.candidates)
        else:
            fixed = settings.threshold if isinstance(settings.threshold, float) else 0.0
            found = rules.mixture_threshold(strengths, allowed) if settings.threshold == "mixture" else fixed
            self._thresholds = np.array([found])
            self._graphs = greedy_cut(strengths, found, self.required, ~allowed)[None]
        self.threshold = float(self._thresholds[0])
        return self._graphs

    def choose(self, losses: Array, empty: float) -> None:
        edges = self._graphs.sum((1, 2))
        chosen = rules.most_worthy(losses, edges, empty, self.plan.d, self.plan.settings.edge_worth)
        self.threshold, self.held_out_loss = float(self._thresholds[chosen]), float(losses[chosen])
