"""UnSplit (Erdoğan, Küpçü, Çiçek 2022): rows and a clone of the bottom model, found together from payloads alone.

It knows the bottom's architecture and nothing else: no weights, no labels, no rows of its own. In turns it moves
guessed rows so that the clone's payloads match the observed ones, and the clone's weights likewise. Many pairs of rows
and clone match equally well: a small representation loss is no proof of a good reconstruction, and colours and
brightness are the first to be exchanged between the first layer and the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack, Grant
from veracausa.attacks.matching import (
    FitStatistics,
    ProgressReporter,
    adam,
    batched,
    starting_rows,
    total_variation,
    validate_payload,
)
from veracausa.errors import InputError
from veracausa.models.runner import capture, eval_mode, reset_optimizer_state
from veracausa.models.units import shape_text
from veracausa.registry import Options


class UnSplitSchedule(NamedTuple):
    """How often UnSplit turns from rows to clone and back, how many steps each takes, and how it weighs its priors."""

    main: int
    input_steps: int
    clone_steps: int
    tv: float
    l2: float


SCHEDULES = {"fast": UnSplitSchedule(200, 20, 20, 1.0, 0.1), "original": UnSplitSchedule(1000, 100, 100, 0.1, 1.0)}


class UnSplitOptions(Options):
    schedule: Literal["fast", "original"] = "fast"
    """The numbers below, where they are not given: 200·(20 + 20) steps, or the original 1000·(100 + 100)."""
    main: int | None = Field(None, ge=1)
    input_steps: int | None = Field(None, ge=0)
    clone_steps: int | None = Field(None, ge=0)
    tv: float | None = Field(None, ge=0)
    """The weight of total variation; tables have none."""
    l2: float | None = Field(None, ge=0)
    """The weight of the mean square of the guessed rows."""
    input_lr: float = Field(1e-3, gt=0)
    clone_lr: float = Field(1e-3, gt=0)
    batching: Literal["joint", "independent"] = "joint"
    """One clone for a batch of targets, or a clone for each."""
    batch_size: int = Field(250, ge=1)
    """Targets at once, at most; fewer where they would not fit into memory."""
    reuse_clone: bool = True
    """The clone of one batch begins the next; with independent clones each begins anew."""
    post: Literal["minmax", "none"] = "minmax"
    """Stretch each guessed picture to [0, 1], as an attacker would who knows that pictures have black and white."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """On a GPU; a CPU computes in float32."""

    @property
    def numbers(self) -> UnSplitSchedule:
        """The schedule with what was given laid over it."""
        given = {field: getattr(self, field) for field in UnSplitSchedule._fields}
        return SCHEDULES[self.schedule]._replace(**{name: value for name, value in given.items() if value is not None})


@attacks.register("unsplit", UnSplitOptions)
class UnSplit(FeatureAttack):
    """Rows and a clone of the bottom model by alternating optimisation, from payloads and the architecture alone."""

    title = "UnSplit"
    needs = Grant.ARCHITECTURE
    by_default: ClassVar[Literal["", "always", "fast"]] = "fast"
    quick: ClassVar = {"main": 10, "batch_size": 64}
    options: UnSplitOptions

    @property
    def most_victims(self) -> int:
        """One batch: it searches for every row."""
        return self.options.batch_size

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.view = view
        self.clone = view.bottom(view.rng).to(view.device)
        if view.device.type == "cuda" and len(view.row_shape) == 3:
            self.clone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with eval_mode(self.clone), torch.no_grad():
            given = tuple(self.clone(torch.zeros(1, *view.row_shape, device=view.device)).shape[1:])
        if given != tuple(view.payload_shape):
            raise InputError(
                f"attack 'unsplit': the bottom's architecture gives {shape_text(given)} for a row, "
                f"but {view.victim} sends {shape_text(view.payload_shape)}, so there is nothing a clone could match"
            )
        self.first = [weight.detach().clone() for weight in self.clone.parameters()]
        self.tally = FitStatistics()

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The rows behind these payloads; pictures in [0, 1]."""
        view, options = self.view, self.options
        held = sum(weight.numel() for weight in self.first) if options.batching == "independent" else 0
        batches = batched(validate_payload(payload, view, options.name), view, options.batch_size, held)
        found = [starting_rows(0, view)]
        with eval_mode(self.clone), torch.enable_grad():
            for number, batch in enumerate(batches):
                rows = self._optimised(batch, ProgressReporter(view.progress, number, len(batches)))
                found.append(finished(rows, view.pixels, options.post))
        view.progress(1.0)
        return torch.cat(found)

    def notes(self) -> Mapping[str, float]:
        return self.tally.notes()

    def _optimised(self, target: Tensor, pulse: ProgressReporter) -> Tensor:
        joint = self.options.batching == "joint"
        if not (joint and self.options.reuse_clone):
            with torch.no_grad():
                for weight, first in zip(self.clone.parameters(), self.first, strict=True):
                    weight.copy_(first)
        run, weights = _shared(self.clone) if joint else _one_each(self.clone, len(target))
        start = starting_rows(len(target), self.view)
        rows = alternate(run, weights, target, start, self.options, self.view.pixels, pulse)
        self.tally.add(self.options.name, run, rows, target, pulse.count)
        return rows


def alternate(
    run: Callable[[Tensor], Tensor],
    weights: Sequence[Tensor],
    target: Tensor,
    start: Tensor,
    options: UnSplitOptions,
    pictures: bool,
    pulse: Callable[[float], None] = lambda share: None,
) -> Tensor:
    """Rows whose payloads under `run` match `target`, moved in turns with `weights`, which are trained in place."""
    device, many = target.device, len(target)
    main, input_steps, clone_steps, tv, l2 = options.numbers
    rows = start.clone().requires_grad_()
    coarse = device.type == "cuda" and options.precision == "bfloat16"
    precision = torch.autocast(device.type, torch.bfloat16, enabled=coarse, cache_enabled=False)

    def matched(guess: Tensor) -> Tensor:
        with precision:
            payload = run(guess)
        return F.mse_loss(payload.float(), target)

    def input_step() -> None:
        loss = matched(rows) + l2 * rows.square().mean()
        if pictures and tv:
            loss = loss + tv * total_variation(rows)
        # Of the sum over targets, not the mean: for Adam's epsilon a target must not shrink with its batch.
        (rows.grad,) = torch.autograd.grad(many * loss, [rows])
        of_rows.step()

    def clone_step() -> None:
        loss = matched(rows.detach())
        if options.batching == "independent":
            loss = many * loss
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        of_clone.step()

    of_rows = adam([rows], options.input_lr)
    turns = [(capture(input_step, device, [rows]), input_steps)]
    reset_optimizer_state(of_rows)
    if weights and clone_steps:
        of_clone = adam(weights, options.clone_lr)
        turns.append((capture(clone_step, device, weights), clone_steps))
        reset_optimizer_state(of_clone)
    for turn in range(main):
        for step, times in turns:
            for _ in range(times):
                step()
                pulse(turn / main)
    for weight in weights:
        weight.grad = None
    return rows.detach()


def finished(rows: Tensor, pictures: bool, post: str) -> Tensor:
    """Guessed rows as they are handed over: pictures stretched to [0, 1] where `post` asks for it, then clamped."""
    if not pictures:
        return rows
    if post == "minmax":
        low, high = rows.flatten(1).amin(1), rows.flatten(1).amax(1)
        width = high - low
        low, width = (values.view(-1, *[1] * (rows.ndim - 1)) for values in (low, width))
        rows = torch.where(width > 0, (rows - low) / width.clamp_min(1e-12), rows)
    return rows.clamp(0, 1)


def _shared(clone: nn.Module) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    return clone, [weight for weight in clone.parameters() if weight.requires_grad]


def _one_each(clone: nn.Module, count: int) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """As many clones as targets, run side by side with stacked weights; all begin with the weights of this one."""
    stacked = {
        name: weight.detach().expand(count, *weight.shape).clone().requires_grad_(weight.requires_grad)
        for name, weight in clone.named_parameters()
    }
    buffers = dict(clone.named_buffers())

    def one(weights: dict[str, Tensor], row: Tensor) -> Tensor:
        payload: Tensor = functional_call(clone, (weights, buffers), (row.unsqueeze(0),))
        return payload.squeeze(0)

    def run(rows: Tensor) -> Tensor:
        payloads: Tensor = vmap(one)(stacked, rows)
        return payloads

    return run, [weight for weight in stacked.values() if weight.requires_grad]
