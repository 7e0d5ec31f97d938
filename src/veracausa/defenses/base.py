"""What a passive party does between its bottom model and the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from veracausa.defenses.risk_map import NotDifferentiable, RiskMap, Transmit
from veracausa.events import ProgressCallback
from veracausa.models.runner import eval_mode
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.data.vertical import Part


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

    reconstructed: ClassVar[bool] = False
    """Whether it was built from what is published about it, without its authors' code; every table has to say so."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse rows of a shape that this defense cannot protect, before anything is written."""

    def plan(self, exchanges: int) -> None:
        """Hear how often each training row will cross, before anything else; where nobody says it, it is not known."""

    def layers(self, shape: tuple[int, ...]) -> nn.Module | None:
        """Layers of the defense's own behind the bottom, whose output for one row has this shape; None for none.

        Their weights come from PyTorch's default generator, which the party sets to its own meanwhile. The party makes
        them the last module of its bottom: `bind`, the optimiser, checkpoints and attackers' copies of the architecture
        get the bottom with them. Keep no reference to them: the object that is bound may be another than this one.
        """
        return None

    key: bytes | None = None
    """What noise must follow from, where the party gives one before `bind`: a generator's state holds far less."""

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

    def prepare(self, data: Part, progress: ProgressCallback = unheard) -> None:
        """Work done once, before the first exchange, on the party's own training rows."""

    def prepared(self) -> dict[str, Any]:
        """What `prepare` made. It never changes afterwards: a run keeps it once, beside the checkpoints."""
        return {}

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        """Take over what `prepared` gave, in place of `prepare`; without `data` nothing will be trained any more."""

    @property
    def learns(self) -> bool:
        """Whether exchanges teach it what changes payloads, a pruner say: who runs it elsewhere has to repeat them."""
        return False

    def stand_at(self, epochs: int, batch: int) -> None:
        """Stand where a party stands after so many epochs in such batches, where that decides what is sent.

        For whoever runs this defense on a model of their own without having trained it: an attacker's shadow.
        """

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
        with eval_mode(self.bottom), torch.no_grad():
            return self.protect(self.run_bottom(x), x, ids)

    def transmitted(self, x: Tensor, ids: Tensor) -> Tensor:
        """The map from rows to payloads at inference as it stands now, without noise; differentiable, no state changes.

        Its gradient may be a stand-in, straight through a rounding say: an attacker who has the weights descends on it.
        """
        with eval_mode(self.bottom):
            return self.protect(self.bottom(x), x, ids)

    def white_box(self, x: Tensor, ids: Tensor) -> Transmit:
        """`transmitted` as a map of any rows and ids, as it stands while the rows `x` cross together."""
        return self.transmitted

    def risk_map(self, x: Tensor, ids: Tensor) -> RiskMap | NotDifferentiable:
        """What is sent at inference for the rows `x` together, as the map whose Jacobian the risk meter takes.

        It must be the map that is sent: its values those of `infer` (with noise: their mean, the noise stated), its
        gradient the true one. `check_defense` and the risk meter compare both. Where there is no such map, because the
        payload is rounded or a row's values choose what is sent, the answer is `NotDifferentiable`, with the reason.
        """
        return RiskMap(self.white_box(x, ids), self.noise_power)

    def noise_std(self, r: Tensor, x: Tensor) -> Tensor | None:
        """The noise's standard deviation in every entry of payloads `r`, or what broadcasts to it; None: no noise."""
        return None

    def noise_power(self, r: Tensor, x: Tensor) -> Callable[[Tensor], Tensor] | None:
        """E[(uᵀε)²] as a function of vectors u, (c, rows, entries of a payload) to (c, rows); None without noise.

        For noise that is independent in every entry `noise_std` says it all.
        """
        deviation = self.noise_std(r, x)
        if deviation is None:
            return None
        variance = deviation.detach().double().square().expand_as(r).flatten(1)
        return lambda u: (u.double().square() * variance).sum(-1)

    @property
    def random(self) -> bool:
        """Whether two training exchanges send different payloads for one row: noise, or a mask drawn at random."""
        return False

    def observations(self, exchanges: int) -> int:
        """How many different payloads so many training exchanges show of one row, where the defense is `random`."""
        return exchanges

    @contextmanager
    def redrawing(self, rng: torch.Generator) -> Iterator[None]:
        """Inside the block `infer` draws its noise from `rng`, anew at each call, noise that belongs to a row included.

        An audit asks so for what an attacker saw in training, where the defense is `random`, and for rows that an
        attacker learns from. Outside, `infer` gives a row the same payload every time.
        """
        yield

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """A few numbers that say how the defense does on these training rows; changes no state."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep beside the bottom model, its optimiser and what `prepare` made."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
