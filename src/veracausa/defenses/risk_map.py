"""What a defense sends, as a map that the risk meter can differentiate, and the proof that it is what is sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.defenses.protocols import resampling
from veracausa.metrics.jacobian import RiskUnavailable, RowJacobian

if TYPE_CHECKING:
    from veracausa.defenses.base import Defense

Transmit = Callable[[Tensor, Tensor], Tensor]
"""Rows and their ids to payloads, each row apart from the others."""
Power = Callable[[Tensor], Tensor]
"""Vectors u, (c, rows, entries of a payload), to E[(uᵀε)²], (c, rows)."""


@dataclass(frozen=True)
class RiskMap:
    """The map from rows to what is sent for them at inference, without its noise; its Jacobian is the true one."""

    transmit: Transmit
    noise: Callable[[Tensor, Tensor], Power | None] = lambda payload, rows: None
    """The power of the noise on top of these payloads of these rows; None where nothing is added."""
    given: str = ""
    """What the map holds as it is, where a payload depends on more than its row: the batch it is sent with, say."""


@dataclass(frozen=True)
class NotDifferentiable:
    """The answer of a defense whose payload has no Jacobian to take: it rounds, or sends what a row's values choose."""

    reason: str


@dataclass(frozen=True)
class RiskMapProof:
    """How closely a risk map has to be what is sent."""

    values: float
    """The largest difference of map and payload, as a share of the payload's size."""
    slope: float
    """The largest difference of Jacobian and finite differences, as a share of the larger."""
    steps: tuple[float, ...]
    """Of the finite differences, in standard deviations of a row's values; the best of them counts."""
    draws: int
    """Of payloads with noise."""
    directions: int = 5
    noise: float = 2.0
    """The largest factor between the noise that is stated and the noise that is sent."""


def independent_noise(deviation: Tensor, r: Tensor) -> Power:
    """The power of noise that is independent in every entry of payloads `r`, of this standard deviation.

    `deviation` has the shape of `r`, or broadcasts to it.
    """
    variance = deviation.detach().double().square().expand_as(r).flatten(1)
    return lambda u: (u.double().square() * variance).sum(-1)


STRICT = RiskMapProof(values=1e-3, slope=0.05, steps=(1e-3, 3e-4), draws=64)
"""For a small model on a CPU: what `check_defense` asks for."""
ROUGH = RiskMapProof(values=0.05, slope=0.3, steps=(3e-2, 1e-2, 3e-3), draws=16, directions=3, noise=3.0)
"""For any model in any precision: what the risk meter itself asks for before it gives a number."""


ASIDE = 0.1
"""How far from a row its slope is compared, in standard deviations of a row's values."""


def fault(defense: Defense, found: RiskMap, x: Tensor, ids: Tensor, proof: RiskMapProof) -> str:
    """Why the map is not what the defense sends for the rows `x` together, in a sentence; empty where it is.

    Three things are compared: the map's values with what `infer` sends, or with its mean where there is noise; the
    noise that is stated with the noise that is sent; and the map's Jacobian with finite differences of its values.
    """
    with torch.no_grad():
        payload = found.transmit(x, ids).float()
        noise = found.noise(payload, x)
    if wrong := _values_fault(defense, payload, noise, x, ids, proof):
        return wrong
    return _slope_fault(found, x, ids, payload, proof)


def differs(payload: Tensor, sent: Tensor, tolerance: float) -> bool:
    """Whether two payloads differ by more than this share of their size."""
    apart, size = float((sent - payload).norm()), max(float(sent.norm()), float(payload.norm()))
    return not apart <= tolerance * size + 1e-6 * math.sqrt(payload.numel())


def _values_fault(
    defense: Defense, payload: Tensor, noise: Power | None, x: Tensor, ids: Tensor, proof: RiskMapProof
) -> str:
    if noise is None:
        if differs(payload, defense.infer(x, ids).float(), proof.values):
            return "its risk map gives other values than what is sent, and states no noise that would explain it"
        return ""
    rng = seeding.generator(0, "risk map", "noise")
    with resampling(defense, rng):
        sent = torch.stack([defense.infer(x, ids).float() for _ in range(proof.draws)])
    drawn = (sent - payload).flatten(2).double()
    spread = drawn.var(0).mean()
    # The mean of the draws is off by their deviation over √draws; a map that leaves something out, by more.
    if float(drawn.mean(0).square().mean()) > 4 * float(spread) / proof.draws + 1e-10:
        return "its risk map is not the mean of what is sent over the noise (is noise redrawn inside `resampling`?)"
    u = torch.randn(8, *drawn.shape[1:], generator=rng).to(drawn)
    stated = float(noise(u).double().mean())
    seen = float(torch.stack([(u * one).sum(-1).square().mean() for one in drawn - drawn.mean(0)]).mean())
    if not stated / proof.noise <= seen * proof.draws / (proof.draws - 1) <= stated * proof.noise:
        return (
            f"the noise that is stated is not the noise that is sent: its power is {stated:.3g} by `noise_power`, "
            f"{seen:.3g} by the payloads"
        )
    return ""


def _slope_fault(found: RiskMap, x: Tensor, ids: Tensor, payload: Tensor, proof: RiskMapProof) -> str:
    def transmit(rows: Tensor) -> Tensor:
        return found.transmit(rows, ids)

    size = x.float().std(0, correction=0).mean() if len(x) > 1 else x.float().abs().mean()
    scale = max(float(size), 1e-3)
    rng = seeding.generator(0, "risk map", "directions")
    # A pooling over equal values, the black around a digit say, has a kink just there, which is no fault of the map.
    x = x + ASIDE * scale * torch.randn(x.shape, generator=rng).to(x)
    try:
        jacobian = RowJacobian(transmit, x, len(x) * proof.directions)
    except RiskUnavailable as reason:
        return str(reason)
    worst = []
    for _ in range(proof.directions):
        v = torch.randn(x.shape, generator=rng).to(x)
        slope = jacobian.jv(v.flatten(1).unsqueeze(0))[0].view_as(payload).float()
        apart = []
        for step in proof.steps:
            with torch.no_grad():
                ahead, behind = (transmit(x + sign * step * scale * v).float() for sign in (1, -1))
            moved = (ahead - behind) / (2 * step * scale)
            # What the payload's own precision makes of such a step is not the map's.
            noise = 1e-6 * float(payload.norm()) / (step * scale)
            larger = max(float(moved.norm()), float(slope.norm()))
            apart.append(0.0 if larger <= noise else max(0.0, float((moved - slope).norm()) - noise) / larger)
        worst.append(min(apart))
    error = sorted(worst)[len(worst) // 2]
    if error <= proof.slope:
        return ""
    return (
        "its risk map's Jacobian is not how the payload changes with the row: finite differences of what is sent are "
        f"{error:.0%} off (a gradient written straight through, a rounding or a detach); answer NotDifferentiable"
    )
