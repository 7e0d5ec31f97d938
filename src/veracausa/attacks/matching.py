"""What attacks that move rows until their payloads match the observed ones have in common."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa.attacks.base import AdversaryView
from veracausa.errors import InputError, RunError
from veracausa.models.units import shape_text

_MOST_VALUES = 2**26
_PULSE = 0.5


def validate_payload(payload: Tensor, view: AdversaryView, attack: str) -> Tensor:
    """The payloads on the attacker's device, if they are the victim's and finite."""
    if tuple(payload.shape[1:]) != tuple(view.payload_shape):
        raise InputError(
            f"attack {attack!r}: payloads of {shape_text(payload.shape[1:])} do not come from {view.victim}, "
            f"which sends {shape_text(view.payload_shape)}"
        )
    if not payload.isfinite().all():
        raise InputError(f"attack {attack!r}: some payloads are not finite, and no row can be matched to them")
    return payload.detach().to(view.device, torch.float32)


def batched(payload: Tensor, view: AdversaryView, most: int, held: int = 0) -> list[Tensor]:
    """Batches of nearly equal size that fit into memory; `held` counts what else is kept for every target.

    Nearly equal, because a clone learns little from a few targets left over.
    """
    a_target = max(math.prod(view.payload_shape), math.prod(view.row_shape), held)
    at_once = max(1, min(most, _MOST_VALUES // a_target))
    return list(torch.tensor_split(payload, -(-len(payload) // at_once))) if len(payload) else []


def starting_rows(count: int, view: AdversaryView) -> Tensor:
    """Mid-grey pictures, or a table's mean row."""
    return torch.full((count, *view.row_shape), 0.5 if view.pixels else 0.0, device=view.device)


def adam(moved: Sequence[Tensor], lr: float) -> torch.optim.Adam:
    """Adam with AMSGrad, one kernel a step, with a state that a graph can hold."""
    return torch.optim.Adam(moved, lr=lr, amsgrad=True, fused=True, capturable=moved[0].is_cuda)


class ProgressReporter:
    """Counts steps, and says which share of all is done whenever half a second has passed."""

    def __init__(self, progress: Callable[[float], None], number: int, batches: int) -> None:
        self.progress, self.number, self.batches = progress, number, batches
        self.count, self.last = 0, time.monotonic()

    def __call__(self, share: float) -> None:
        self.count += 1
        if time.monotonic() - self.last >= _PULSE:
            self.progress((self.number + share) / self.batches)
            self.last = time.monotonic()


class FitStatistics:
    """How well payloads were matched, over all that were."""

    def __init__(self) -> None:
        self.targets = self.steps = 0
        self.loss = self.variance = 0.0

    def add(self, attack: str, run: Callable[[Tensor], Tensor], rows: Tensor, target: Tensor, steps: int) -> None:
        """Count a batch; refuses rows that a descent has lost."""
        with torch.no_grad():
            loss = float(F.mse_loss(run(rows).float(), target))
        if not (rows.isfinite().all() and math.isfinite(loss)):
            raise RunError(f"attack {attack!r} diverged: its rows or payloads are not finite; lower its learning rates")
        self.targets += len(target)
        self.steps += steps
        self.loss += len(target) * loss
        self.variance += len(target) * float((target - target.mean()).square().mean())

    def notes(self) -> Mapping[str, float]:
        """The loss, also as a share of the payloads' variance, and the network steps it took."""
        loss, variance = self.loss / max(1, self.targets), self.variance / max(1, self.targets)
        share = loss / variance if variance > 0 else 0.0
        return {"representation_loss": loss, "representation_share": share, "iterations": float(self.steps)}


def total_variation(pictures: Tensor) -> Tensor:
    """UnSplit's TV of (n, c, h, w): [Σ vertical differences² / n_v + Σ horizontal differences² / n_h] / n.

    n_v and n_h count the values of one picture's difference maps. A side of one pixel has no differences.
    """
    down = pictures[..., 1:, :] - pictures[..., :-1, :]
    across = pictures[..., 1:] - pictures[..., :-1]
    means = [differences.square().mean() for differences in (down, across) if differences.numel()]
    return torch.stack(means).sum() if means else pictures.new_zeros(())
