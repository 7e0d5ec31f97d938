"""Training of a network at home: one resumable loop, and the state of a fit that has several phases."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.errors import InputError, RunError
from veracausa.features.base import FitContext
from veracausa.features.encoder import load_weights
from veracausa.models.layers import Dropout

KEPT_EVERY = 60.0
"""Seconds between checkpoints within an epoch. There is one after every epoch as well."""


class LoopOptions(Protocol):
    """What the loop reads of an objective's settings."""

    @property
    def batch_size(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def warmup(self) -> float: ...


class FitProgress:
    """The state of a long fit: which phases are done and what they gave, and where the present one is.

    A restart goes on at the last checkpoint. Everything drawn is a pure function of the seed, the phase and the step,
    so a checkpoint needs no generator's state.
    """

    def __init__(self, context: FitContext, phases: Mapping[str, float], settings: str) -> None:
        """`phases` are names with their shares of the work, `settings` what a kept state must agree with."""
        self.context, self.phases, self.settings = context, dict(phases), settings
        kept = context.store.load()
        drawn = int(torch.randint(2**62, (), generator=context.rng))
        if kept is not None and kept.get("settings") != settings:
            raise InputError(
                "features: the kept state of this fit is of other settings or rows; start into a new folder"
            )
        self.seed: int = drawn if kept is None else int(kept["seed"])
        self.done: dict[str, Any] = {} if kept is None else dict(kept["done"])
        self.now: Mapping[str, Any] | None = None if kept is None else kept["now"]

    def finish(self, phase: str, result: Any) -> None:
        """Keep what a phase gave."""
        self.done[phase] = result
        self.now = None
        self._save()
        self.tell(phase, 1.0)

    def keep(self, phase: str, state: Mapping[str, Any]) -> None:
        """Keep where a phase is."""
        self.now = {"phase": phase, **state}
        self._save()

    def resumed(self, phase: str) -> Mapping[str, Any] | None:
        """Where this phase was left, if it was begun."""
        return self.now if self.now is not None and self.now["phase"] == phase else None

    def tell(self, phase: str, share: float) -> None:
        """Report the share of the whole fit that is done."""
        total = sum(self.phases.values())
        before = sum(weight for name, weight in self.phases.items() if name in self.done and name != phase)
        self.context.progress(min(1.0, (before + share * self.phases[phase]) / total))

    def _save(self) -> None:
        self.context.store.save({"settings": self.settings, "seed": self.seed, "done": self.done, "now": self.now})


BatchLoss = Callable[[Tensor, int], Tensor]
"""The loss of the rows at these positions, at this step."""


def train(
    network: nn.Module, rows: int, options: LoopOptions, loss: BatchLoss, fit: FitProgress, phase: str, epochs: int
) -> None:
    """Train a network on batches of `rows` rows by Adam, warm-up and a cosine; a killed training goes on.

    On a CPU a resumed training has the same bits as one that was never stopped.
    """
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=options.lr, weight_decay=options.weight_decay, foreach=True)
    size = min(options.batch_size, rows)
    an_epoch = max(1, rows // size)  # what is left over has its turn in another epoch
    steps, start = an_epoch * epochs, 0
    if (kept := fit.resumed(phase)) is not None:
        load_weights(network, kept["network"], "features")
        optimizer.load_state_dict(_with_numbers(kept["optimizer"]))
        start = int(kept["step"])
    # Dropout of the encoder draws from a generator of its own, put to the step's place: see `Dropout`.
    draws = [module.rng for module in network.modules() if isinstance(module, Dropout)]
    told = kept_at = time.monotonic()
    network.train()
    order = torch.arange(0)
    for step in range(start, steps):
        epoch, index = divmod(step, an_epoch)
        if not len(order) or index == 0:
            order = torch.randperm(rows, generator=seeding.generator(fit.seed, phase, "order", epoch))
        for rng in draws:
            rng.manual_seed(seeding.derive(fit.seed, phase, "dropout", step))
        for group in optimizer.param_groups:
            group["lr"] = options.lr * _rate(step, steps, round(options.warmup * steps))
        value = loss(order[index * size : (index + 1) * size], step)
        optimizer.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        ends = index + 1 == an_epoch
        now = time.monotonic()
        if ends or now - kept_at >= KEPT_EVERY:
            _require_finite(value, phase, step + 1)
            if step + 1 < steps:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                fit.keep(phase, state)
            kept_at = now
        if ends or now - told >= 0.25:
            fit.tell(phase, (step + 1) / steps)
            told = now
    network.eval()


def _rate(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _require_finite(value: Tensor, phase: str, step: int) -> None:
    if not bool(torch.isfinite(value.detach())):
        raise RunError(f"features: the loss of {phase} is not finite at step {step}; lower features.lr")


def _with_numbers(state: Mapping[str, Any]) -> dict[str, Any]:
    """An optimiser's state whose keys are numbers again, wherever a file made words of them."""
    return {
        "state": {int(key): dict(value) for key, value in state["state"].items()},
        "param_groups": state["param_groups"],
    }


def as_pixels(x: Tensor) -> Tensor:
    """A batch as networks see it: pixels in [0, 1], where they are bytes."""
    return x.to(torch.float32).div_(255) if x.dtype == torch.uint8 else x.to(torch.float32)
