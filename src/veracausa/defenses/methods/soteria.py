"""Soteria (Sun et al., 2021), on representations: what tells most about the row beside what it weighs is not sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from veracausa.defenses import defenses
from veracausa.defenses.mask import MaskDefense, largest
from veracausa.defenses.protocols import BatchDependent
from veracausa.defenses.risk_map import Transmit
from veracausa.defenses.sensitivity import SensitivityOptions, row_norms
from veracausa.models.runner import Runner, eval_mode


class SoteriaOptions(SensitivityOptions):
    swept: ClassVar[tuple[str, ...]] = ("fraction",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"fraction": (0.5, 0.8, 0.9, 0.95, 0.99)}

    fraction: float = Field(0.95, ge=0, lt=1)
    """The share of values that are zeroed, those with the highest |r_j| / ‖∂r_j/∂x‖; one value at least is sent."""
    mask_scope: Literal["batch", "sample"] = "batch"
    """One mask for the batch, as the authors have it, from the means of |r_j| and of the norms; or one for each row."""
    offset: float = Field(0.1, ge=0)
    """Added to |r_j|, as in the authors' code."""


@defenses.register("soteria", SoteriaOptions)
class Soteria(MaskDefense, BatchDependent):
    """Zeroes the values with the highest |r_j| / ‖∂r_j/∂x‖, 95 % of them by default, the same for a whole batch.

    The authors protect the gradient of one layer in federated learning; here the same score prunes what is sent. Values
    that do not depend on the row at all, as behind a ReLU that is off, go first.
    """

    options: SoteriaOptions

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        super().bind(bottom, optimizer, rng, runner)
        self.seed = int(torch.randint(2**62, (), generator=rng))

    def mask(self, r: Tensor, x: Tensor) -> Tensor:
        size, norms = r.float().abs(), row_norms(self, self.options, self.seed, x, r)
        if self.options.mask_scope == "batch":
            size, norms = size.mean(0, keepdim=True), norms.mean(0, keepdim=True)
        return largest(inverse_score(size, norms, self.options.offset), self.options.fraction)

    def frozen_map(self, x: Tensor, ids: Tensor) -> Transmit:
        """The payload with the mask of these rows, which all rows then share where the batch has one."""
        if self.options.mask_scope == "sample":
            return self.deterministic_payload
        with eval_mode(self.bottom), torch.no_grad():
            mask = self._held_mask(self.bottom(x), x)

        def transmit(rows: Tensor, ids: Tensor) -> Tensor:
            with eval_mode(self.bottom):
                return cast(Tensor, self.bottom(rows) * mask)

        return transmit

    def state(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seed = state["seed"]


def inverse_score(size: Tensor, norms: Tensor, offset: float) -> Tensor:
    """‖∂r_j/∂x‖ / (|r_j| + offset), of which the largest are sent: 0 where nothing depends on the row."""
    return norms / (size + offset).clamp_min(1e-12)
