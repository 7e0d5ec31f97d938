"""DISCO (Singh et al., 2021): a filter of the party's own learns which channels to hold back from a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Diagnoses, Learns, Prepares, no_progress
from veracausa.defenses.proxy_adversary import Depth, ProxyAdversary, Strength, payload_of, score_net
from veracausa.defenses.risk_map import RiskMap
from veracausa.events import ProgressCallback
from veracausa.models.runner import Precision, Runner, device_of, eval_mode
from veracausa.registry import Options


class DiscoOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("trade_off",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"trade_off": (0.2, 0.5, 0.8, 0.95)}

    name: str = "disco"
    trade_off: float = Field(0.5, ge=0, le=1)
    """ρ, how much the pruner cares for keeping its adversary blind, 0 to 1; the rest is the task's."""
    ratio: float = Field(0.6, gt=0, lt=1)
    """R, the share of channels (of a vector: of entries) that a row's filter closes."""
    sharpness: float = Field(30.0, gt=0)
    """How steeply the gate goes from closed to open around the threshold."""
    pruner: Depth = "lite"
    """Three convolutions, or what a ResNet-18 has behind such a map."""
    adversary: Strength = "medium"
    loss: Literal["l2", "l1"] = "l2"
    """Of the adversary."""
    lr: float = Field(3e-4, gt=0)
    """Adam's rate for pruner and adversary."""


def soft_gate(scores: Tensor, ratio: float, sharpness: float) -> Tensor:
    """(n, channels) in (0, 1): σ((score − t)·sharpness), t the row's own `ratio`-quantile of its scores."""
    threshold = torch.quantile(scores, ratio, dim=1, keepdim=True)
    return torch.sigmoid((scores - threshold) * sharpness)


@dataclass
class _Gated(Context):
    """A context with the gate (n, channels) that the payload passed; it carries the pruner's graph."""

    gate: Tensor = field(default_factory=lambda: torch.empty(0))


class _Filter:
    """The pruner, its Adam, and the adversary it works against."""

    def __init__(
        self,
        options: DiscoOptions,
        payload: tuple[int, ...],
        row: tuple[int, ...],
        seed: int,
        device: torch.device,
        precision: Precision,
    ) -> None:
        with seeding.drawing_from(seeding.generator(seed, "pruner")):
            pruner = score_net(payload, payload[0], options.pruner)
        self.pruner = pruner.to(device)
        self.optimizer = torch.optim.Adam(self.pruner.parameters(), lr=options.lr, fused=True)
        self.adversary = ProxyAdversary(payload, row, options.adversary, options.lr, seed, device, precision)

    def state(self) -> dict[str, Any]:
        return {
            "pruner": self.pruner.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "adversary": self.adversary.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.pruner.load_state_dict(state["pruner"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.adversary.load_state(state["adversary"])


@defenses.register("disco", DiscoOptions)
class Disco(Defense, Prepares, Learns, Diagnoses):
    """Sends gate ⊙ representation; a pruner chooses the gate of every row against a decoder trained on what is sent.

    Every exchange is three steps: the adversary learns to read the payload, the bottom follows the partners' gradient
    through the gate as it is, and the pruner follows (1 − ρ)·task − ρ·adversary. The bottom itself never hears of the
    adversary. A gate scales a channel and does not silence it: what a nearly closed gate lets through can still be read
    by whoever scales it back (`closed_gate` in the diagnostics says how much that is).
    """

    options: DiscoOptions

    def __init__(self, options: DiscoOptions) -> None:
        super().__init__(options)
        self.filter: _Filter | None = None

    @property
    def learns(self) -> bool:
        return True

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        super().bind(bottom, optimizer, rng, runner)
        self.seed = int(torch.randint(2**62, (), generator=rng))

    def prepare(self, data: Part, progress: ProgressCallback = no_progress) -> None:
        """Build pruner and adversary for the party's rows; they learn with the exchanges."""
        if data.features is not None:
            row = tuple(data.features.shape[1:])
            self._build(payload_of(self.bottom, row), row)

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        r = self.run_bottom(x)
        gate = self._gate(r, x) if len(x) > 1 else self._held_gate(r, x)
        payload = r.detach() * _over_maps(gate.detach(), r)
        return payload, _Gated(x, ids, step, r, payload, gate)

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Adversary, bottom and pruner, in this order, `local_steps` times."""
        for local in range(local_steps):
            if local:
                _, context = self.forward(context.x, context.ids, context.step)
            assert isinstance(context, _Gated)
            learning = context.gate.requires_grad  # not from a single row, which has no batch statistics
            r, parts = context.representation, self._parts(context.representation, context.x)
            if learning:
                parts.adversary.learn(context.payload, context.x, self._loss)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(r, (grad * _over_maps(context.gate.detach(), r)).to(r.dtype))
            self.optimizer.step()
            if learning:
                parts.optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(context.gate, self._pruner_slope(context, grad))
                parts.optimizer.step()

    def _pruner_slope(self, context: _Gated, grad: Tensor) -> Tensor:
        """(n, channels): how the gate should change, (1 − ρ)·task − ρ·adversary."""
        r = context.representation.detach().float()
        task = (grad.float() * r).flatten(2).sum(2) if r.ndim > 2 else grad.float() * r
        gate = context.gate.detach().requires_grad_()
        with torch.enable_grad():
            error = self._loss(self._parts(r, context.x).adversary.read(r * _over_maps(gate, r)), context.x)
        reading = torch.autograd.grad(error, gate)[0]
        return (1 - self.options.trade_off) * task - self.options.trade_off * reading

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return r * _over_maps(self._held_gate(r, x), r)

    def deterministic_payload(self, x: Tensor, ids: Tensor) -> Tensor:
        """With the gate's own dependence on the row: a gate that opens for some rows tells about them, too."""
        with eval_mode(self.bottom):
            r: Tensor = self.bottom(x)
        pruner = self._parts(r, x).pruner
        with eval_mode(pruner):
            scores = pruner(r)
        return r * _over_maps(soft_gate(scores.float(), self.options.ratio, self.options.sharpness), r)

    def risk_map(self, x: Tensor, ids: Tensor) -> RiskMap:
        given = "the pruner as it is at inference; in training it looks at the batch"
        return RiskMap(self.deterministic_payload, given=given)

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """How many channels are kept, what closed gates let through, and how well the adversary reads the payload."""
        with eval_mode(self.bottom), torch.no_grad():
            r = self.run_bottom(x)
            gate = self._held_gate(r, x)
            guess = self._parts(r, x).adversary.ask(r * _over_maps(gate, r))
            kept = gate > 0.5
            closed = (gate * ~kept).sum() / (~kept).sum().clamp_min(1)
            error = F.mse_loss(guess, x.float())
        return {"kept": float(kept.float().mean()), "closed_gate": float(closed), "proxy_mse": float(error)}

    # Parts.

    def _gate(self, r: Tensor, x: Tensor) -> Tensor:
        with self.run_bottom.precision():
            scores = self._parts(r, x).pruner(r.detach())
        return soft_gate(scores.float(), self.options.ratio, self.options.sharpness)

    def _held_gate(self, r: Tensor, x: Tensor) -> Tensor:
        """As it is at inference, without a graph."""
        with eval_mode(self._parts(r, x).pruner), torch.no_grad():
            return self._gate(r, x).detach()

    def _loss(self, guess: Tensor, rows: Tensor) -> Tensor:
        return F.mse_loss(guess, rows) if self.options.loss == "l2" else F.l1_loss(guess, rows)

    def _parts(self, r: Tensor, x: Tensor) -> _Filter:
        if self.filter is None:
            self._build(tuple(r.shape[1:]), tuple(x.shape[1:]))
        assert self.filter is not None
        return self.filter

    def _build(self, payload: tuple[int, ...], row: tuple[int, ...]) -> None:
        device, precision = device_of(self.bottom), self.run_bottom.precision
        self.filter = _Filter(self.options, payload, row, self.seed, device, precision)

    def state(self) -> dict[str, Any]:
        return {"seed": self.seed, "filter": None if self.filter is None else self.filter.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seed, self.filter = state["seed"], None
        if (kept := state["filter"]) is not None:
            self._build(*(tuple(kept["adversary"][shape]) for shape in ("payload", "row")))
            assert self.filter is not None
            self.filter.load_state(kept)


def _over_maps(gate: Tensor, r: Tensor) -> Tensor:
    """(n, channels) as something that multiplies representations."""
    return gate.view(*gate.shape, *[1] * (r.ndim - 2))
