"""What a passive party does between its bottom model and the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from veracausa.models.dry_pass import evaluating
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.data.vertical import Part


Progress = Callable[[float], None]
"""Hears which share of a long work is done, 0 to 1, every second or so: it is also the party's sign of life."""


def unheard(share: float) -> None:
    """Nobody listens."""


@dataclass
class Context:
    """What `forward` leaves for `backward`: the batch, the representation and its graph, the payload."""

    x: Tensor
    ids: Tensor
    step: int
    representation: Tensor
    payload: Tensor


class Defense:
    """The identity defense, and the base of all others. A defense never sees labels.

    Most defenses override only `protect` (differentiable) or `penalty` (an extra local loss).
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse rows of a shape that this defense cannot protect, before anything is written."""

    def bind(
        self,
        bottom: nn.Module,
        optimizer: torch.optim.Optimizer,
        rng: torch.Generator,
        runner: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Give the defense what it works on. `runner` calls the bottom model as the job wants it run."""
        self.bottom, self.optimizer, self.rng = bottom, optimizer, rng
        self.run_bottom = runner or bottom

    def prepare(self, data: Part, progress: Progress = unheard) -> None:
        """Work done once, before the first exchange, on the party's own training rows."""

    def prepared(self) -> dict[str, Any]:
        """What `prepare` made. It never changes afterwards: a run keeps it once, beside the checkpoints."""
        return {}

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        """Take over what `prepared` gave, in place of `prepare`; without `data` nothing will be trained any more."""

    def gates(self) -> dict[str, float | bool | str]:
        """How good what `prepare` made is, for the report; a flag that is true warns of what went wrong."""
        return {}

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        """The payload for representation `r`; differentiable in `r`."""
        return r

    def penalty(self, r: Tensor, x: Tensor) -> Tensor | None:
        """An extra loss of the party's own, added to what the partners' gradient asks for."""
        return None

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        """The payload of one training exchange, and the context for its gradient."""
        r = self.run_bottom(x)
        payload = self.protect(r, x, ids)
        return payload.detach(), Context(x, ids, step, r, payload)

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Update the bottom model by the gradient of the payload, `local_steps` times (FedBCD: it grows stale)."""
        for local in range(local_steps):
            if local:
                _, context = Defense.forward(self, context.x, context.ids, context.step)
            self.optimizer.zero_grad(set_to_none=True)
            penalty = self.penalty(context.representation, context.x)
            if penalty is None:
                torch.autograd.backward(context.payload, grad)
            else:
                torch.autograd.backward([context.payload, penalty], [grad, torch.ones_like(penalty)])
            self.optimizer.step()

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        """The payload at test time; changes no state."""
        with evaluating(self.bottom), torch.no_grad():
            return self.protect(self.run_bottom(x), x, ids)

    def transmitted(self, x: Tensor, ids: Tensor) -> Tensor:
        """The deterministic part of the map from rows to payloads as it stands now, differentiable in `x`.

        The risk meter takes its Jacobian. Noise is left out, masks are held; changes no state.
        """
        with evaluating(self.bottom):
            return self.protect(self.bottom(x), x, ids)

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """A few numbers that say how the defense does on these training rows; changes no state."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep beside the bottom model, its optimiser and what `prepare` made."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
