"""The contract of a defense: what a passive party does between its bottom model and the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from veracausa.defenses.protocols import Penalizes, Stochastic
from veracausa.defenses.risk_map import NotDifferentiable, RiskMap
from veracausa.models.runner import Runner, eval_mode
from veracausa.registry import Options


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

    A party calls seven methods: `check`, `bind`, `forward`, `backward`, `infer`, `state` and `load_state`. An audit
    asks two questions: `deterministic_payload` and `risk_map`. Most defenses override one hook, `protect`, and also
    `risk_map` if `protect` has no true gradient. A defense that needs more adds a protocol of
    `veracausa.defenses.protocols`.
    """

    reconstructed: ClassVar[bool] = False
    """Whether it was built from publications alone, without its authors' code. Every table has to say so."""
    key: bytes | None = None
    """The secret that noise is derived from. A party sets it before `bind`; a generator's state holds far less."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse rows of a shape that this defense cannot protect. Called before anything is written."""

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        """Give the defense what it works on. `runner` calls the bottom model as the job wants it run."""
        self.bottom, self.optimizer, self.rng = bottom, optimizer, rng
        self.run_bottom = runner or Runner(bottom)

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        """The payload for representation `r`; differentiable in `r`."""
        return r

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        """The payload of one training exchange, and the context for its gradient."""
        r = self.run_bottom(x)
        payload = self.protect(r, x, ids)
        return payload.detach(), Context(x, ids, step, r, payload)

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Update the bottom model by the payload's gradient, `local_steps` times (FedBCD: the gradient grows stale)."""
        for local in range(local_steps):
            if local:
                _, context = Defense.forward(self, context.x, context.ids, context.step)
            self.optimizer.zero_grad(set_to_none=True)
            penalty = self.penalty(context.representation, context.x) if isinstance(self, Penalizes) else None
            if penalty is None:
                torch.autograd.backward(context.payload, grad)
            else:
                torch.autograd.backward([context.payload, penalty], [grad, torch.ones_like(penalty)])
            self.optimizer.step()

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        """The payload at test time. It changes no state."""
        with eval_mode(self.bottom), torch.no_grad():
            return self.protect(self.run_bottom(x), x, ids)

    def deterministic_payload(self, x: Tensor, ids: Tensor) -> Tensor:
        """What `infer` sends, without noise and differentiable. It changes no state.

        The gradient may be a stand-in, such as a straight-through estimate. Attackers with the weights descend on it.
        """
        with eval_mode(self.bottom):
            return self.protect(self.bottom(x), x, ids)

    def risk_map(self, x: Tensor, ids: Tensor) -> RiskMap | NotDifferentiable:
        """What `infer` sends for the rows `x` together, as the map whose Jacobian the risk meter takes.

        Its values must be those of `infer` (with noise: their mean, and the noise stated), and its gradient the true
        one. `check_defense` and the risk meter compare both. A defense that rounds its payload, or lets a row's values
        choose what is sent, has no such map and answers `NotDifferentiable` with the reason.
        """
        if isinstance(self, Stochastic):
            return RiskMap(self.deterministic_payload, self.noise_power)
        return RiskMap(self.deterministic_payload)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep beside the bottom model, its optimiser and what `prepare` made."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
