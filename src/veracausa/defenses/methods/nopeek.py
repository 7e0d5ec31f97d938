"""NoPeek (Vepakomma et al., 2020): the bottom learns to make its output depend less on the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Diagnoses
from veracausa.metrics.representations import distance_correlation
from veracausa.models.runner import Runner, device_of, eval_mode
from veracausa.registry import Options

FEWEST_ROWS = 4
"""A distance correlation of fewer rows says nothing: it is near 1 whatever they hold."""


class NoPeekOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("weight",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (0.1, 0.5, 1.0, 2.0, 5.0, 15.0)}

    name: str = "nopeek"
    weight: float = Field(1.0, ge=0)
    """a, how much the distance correlation counts beside the partners' gradient."""
    form: Literal["additive", "convex"] = "additive"
    """Gradient + a·∇dCor, or (1 − a)·gradient + a·∇dCor with a up to 1."""
    clip: float = Field(1.0, gt=0)
    """The greatest norm of the penalty's gradient of a batch's representations."""

    @model_validator(mode="after")
    def _shares(self) -> NoPeekOptions:
        if self.form == "convex" and self.weight > 1:
            raise ValueError("weight: the convex form shares out 1 between the task and NoPeek; set it to at most 1")
        return self


@defenses.register("nopeek", NoPeekOptions)
class NoPeek(Defense, Diagnoses):
    """Teaches the bottom to lower the distance correlation of rows and payloads; the payload itself is not changed.

    The penalty's gradient is taken, clipped and added at the representation, so one backward pass serves both. Batches
    of 64 rows or more are advised: a small batch's distance correlation is mostly bias.
    """

    options: NoPeekOptions

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        super().bind(bottom, optimizer, rng, runner)
        self.skipped = torch.zeros((), device=device_of(bottom))
        """Steps whose penalty was not finite and was left out."""

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Update the bottom by both gradients at once."""
        for local in range(local_steps):
            if local:
                _, context = self.forward(context.x, context.ids, context.step)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(context.payload, self._with_penalty(grad, context))
            self.optimizer.step()

    def _with_penalty(self, grad: Tensor, context: Context) -> Tensor:
        weight = self.options.weight
        if weight == 0 or len(context.x) < FEWEST_ROWS:
            return grad
        r = context.representation.detach().float().requires_grad_()
        with torch.enable_grad():
            slope = weight * torch.autograd.grad(distance_correlation(context.x, r), r)[0]
        norm = torch.linalg.vector_norm(slope)
        # Asked on the device: waiting for the answer would cost a GPU more than the penalty does.
        sound = norm.isfinite()
        slope = torch.where(sound, slope * (self.options.clip / norm).clamp_max(1), 0)
        self.skipped += ~sound
        if self.options.form == "convex":
            return torch.where(sound, (1 - weight) * grad + slope, grad).to(grad.dtype)
        return (grad + slope).to(grad.dtype)

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """The distance correlation of these rows and their payloads, and how many steps went without the penalty."""
        found = {"skipped": float(self.skipped)}
        if len(x) >= FEWEST_ROWS:
            with eval_mode(self.bottom), torch.no_grad():
                found["dcor"] = float(distance_correlation(x, self.run_bottom(x)))
        return found

    def state(self) -> dict[str, Any]:
        return {"skipped": self.skipped}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.skipped = state["skipped"].to(self.skipped.device)
