"""Train a decoder on pairs of payload and row: AdamW in one cycle, the best weights on held-out pairs kept.

On a GPU the pairs stay on the device, in bfloat16 where nothing is lost by it, and the whole training step is one CUDA
graph; on a CPU the same steps run one by one in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks.adversarial_training import precision
from veracausa.errors import RunError
from veracausa.events import ProgressCallback
from veracausa.metrics.images import ssim
from veracausa.metrics.leakage import PENALTIES, Ridge, best_penalty, fit_ridge
from veracausa.models.layers import RobustInputScaling
from veracausa.models.runner import capture, reset_optimizer_state
from veracausa.registry import Options

_SSIM_WEIGHT = 0.1
_STEPS_AN_EPOCH = 32
_SMALLEST_BATCH = 16
_ROWS_AT_ONCE = 512
_LOOKED_AT = 1024
"""Rows that show whether a few outweigh the others; all of them would take a GPU's memory several times over."""
_MOST_LOST = 1e-4
"""Of the variance of a channel over rows: what rounding it may cost."""


class FitOptions(Options):
    """What a training is told; an attack that trains a decoder has these settings."""

    epochs: int = Field(50, ge=1)
    batch_size: int = Field(64, ge=2)
    """At most; with few auxiliary rows it is smaller, so that an epoch has some steps."""
    lr: float = Field(2e-3, gt=0)
    """The highest of the one-cycle schedule."""
    weight_decay: float = Field(1e-2, ge=0)
    loss: Literal["mse", "mse_ssim"] = "mse"
    held_out: float = Field(0.1, gt=0, lt=1)
    """The share of the auxiliary pairs that chooses among the epochs' weights."""
    redraw_every: int = Field(1, ge=1)
    """Epochs between fresh payloads where the defense is random."""


@dataclass(frozen=True)
class Fitted:
    """How a training went."""

    held_out_mse: float
    best_epoch: int
    steps: int
    learnt: Tensor
    """Which pairs it learnt from."""
    held: Tensor
    """Which pairs chose among the epochs."""


def one_cycle(step: int, steps: int, highest: float, warmup: float = 0.25) -> float:
    """The learning rate: a cosine up from a 25th of the highest, and a cosine down to nearly nothing."""
    top = max(1, round(warmup * steps))
    if step < top:
        return highest * (1 / 25 + (1 - 1 / 25) * (1 - math.cos(math.pi * step / top)) / 2)
    return highest * max(1e-4, (1 + math.cos(math.pi * (step - top) / max(1, steps - top))) / 2)


def reconstruction_loss(guess: Tensor, rows: Tensor, loss: str) -> Tensor:
    """MSE, or MSE + 0.1·(1 − SSIM) for pictures."""
    error = F.mse_loss(guess, rows)
    return error + _SSIM_WEIGHT * (1 - ssim(guess, rows).mean()) if loss == "mse_ssim" and rows.ndim == 4 else error


def batch_size(rows: int, most: int) -> int:
    """Smaller batches for few rows: an epoch of two steps would teach a decoder nothing in fifty epochs."""
    return max(2, min(most, max(_SMALLEST_BATCH, rows // _STEPS_AN_EPOCH), rows))


def fit_decoder(
    decoder: nn.Module,
    payloads: Tensor,
    rows: Tensor,
    options: FitOptions,
    rng: torch.Generator,
    progress: ProgressCallback,
    fresh: Callable[[], Tensor] | None = None,
    known: Tensor | None = None,
) -> Fitted:
    """Train in place and leave the decoder in eval mode with its best weights; `fresh` redraws payloads an epoch.

    `known`, (n, width), is what the decoder is told of each row beside its payload.
    """
    device = rows.device
    order = torch.randperm(len(rows), generator=rng)
    kept = max(1, round(options.held_out * len(rows)))
    held, learnt = order[:kept].to(device), order[kept:]
    batch = batch_size(len(learnt), options.batch_size)
    steps_an_epoch = len(learnt) // batch
    steps = options.epochs * steps_an_epoch
    if (level := RobustInputScaling.of(decoder)) is not None:
        level.fit(payloads[learnt[:_LOOKED_AT].to(payloads.device)].to(device))
    kind = kept_as(payloads, device)
    told = None if known is None else known.to(device, torch.float32)
    pairs = _Pairs(payloads.to(device, kind, copy=fresh is not None), rows.to(device, torch.float32), told)
    # Another draw than the one learnt from first: what a draw has in common must not help on the held-out pairs.
    other = pairs.payloads if fresh is None else fresh().to(device, kind)
    held_payloads, held_rows = other[held].clone(), pairs.rows[held]
    held_known = None if told is None else told[held]
    step = _Step(decoder, pairs, batch, options)
    best, best_epoch = math.inf, 0
    best_weights = {name: value.clone() for name, value in decoder.state_dict().items()}
    for epoch in range(options.epochs):
        if fresh is not None and epoch and epoch % options.redraw_every == 0:
            pairs.payloads.copy_(fresh())  # in place: a captured graph reads from this memory
        decoder.train()
        shuffled = learnt[torch.randperm(len(learnt), generator=rng)].to(device)
        for number in range(steps_an_epoch):
            rate = one_cycle(epoch * steps_an_epoch + number, steps, options.lr)
            step(shuffled[number * batch : (number + 1) * batch], rate)
        decoder.eval()
        error = held_out_mse(decoder, held_payloads, held_rows, held_known)
        if error < best:
            best, best_epoch = error, epoch + 1
            for name, value in decoder.state_dict().items():
                best_weights[name].copy_(value)
        progress((epoch + 1) / options.epochs)
    step.close()
    if not math.isfinite(best):
        raise RunError("the decoder's training diverged; give the attack a lower lr")
    decoder.load_state_dict(best_weights)
    decoder.eval()
    return Fitted(best, best_epoch, steps, learnt.to(device), held)


def kept_as(payloads: Tensor, device: torch.device) -> torch.dtype:
    """Half the memory on a GPU, unless that costs digits: payloads may differ little around a large mean."""
    if device.type != "cuda":
        return torch.float32
    channels = payloads[:_ROWS_AT_ONCE].float().transpose(0, 1).flatten(1)
    lost = (channels - channels.bfloat16().float()).square().mean(1)
    return torch.bfloat16 if (lost <= _MOST_LOST * channels.var(1, correction=0)).all() else torch.float32


def held_out_mse(decoder: nn.Module, payloads: Tensor, rows: Tensor, known: Tensor | None = None) -> float:
    """The decoder's error in eval mode."""
    total = torch.zeros((), device=rows.device)
    with torch.no_grad(), precision(rows.device):
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            told = () if known is None else (known[some],)
            total += (decoder(payloads[some].float(), *told).float() - rows[some]).square().sum()
    return float(total) / rows.numel()


@dataclass
class _Pairs:
    payloads: Tensor
    rows: Tensor
    known: Tensor | None = None


class _Step:
    """A training step: choosing the batch, forward, backward and optimiser; on a GPU one launch of a captured graph.

    A decoder for small strips is a few hundred kernels of some microseconds; launched one by one, a GPU mostly waits.
    """

    def __init__(self, decoder: nn.Module, pairs: _Pairs, batch: int, options: FitOptions) -> None:
        device = pairs.rows.device
        self.decoder, self.pairs, self.options = decoder, pairs, options
        self.chosen = torch.arange(batch, device=device)
        on_gpu = device.type == "cuda"
        # Rehearsals of a capture at rate 0: AdamW then moves no weight. A graph reads the rate from a tensor.
        still = torch.zeros((), device=device) if on_gpu else options.lr
        self.optimizer = torch.optim.AdamW(
            decoder.parameters(), lr=still, weight_decay=options.weight_decay, capturable=on_gpu, fused=on_gpu or None
        )
        decoder.train()
        if on_gpu:
            decoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            # A capture runs on a stream of its own; that its gradients then meet weights of the usual one is meant.
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        self.run: Callable[[], None] | None = capture(self._step, device, list(decoder.buffers()))
        if on_gpu:
            reset_optimizer_state(self.optimizer)

    def __call__(self, chosen: Tensor, rate: float) -> None:
        assert self.run is not None
        self.chosen.copy_(chosen)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.run()

    def close(self) -> None:
        """Give the graph's memory back."""
        self.optimizer.zero_grad(set_to_none=True)
        self.run = None

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)  # the gradients must come from the graph's own memory
        payloads = self.pairs.payloads.index_select(0, self.chosen).float()
        if payloads.is_cuda and payloads.ndim == 4:
            payloads = payloads.contiguous(memory_format=torch.channels_last)
        known = self.pairs.known
        told = () if known is None else (known.index_select(0, self.chosen),)
        with precision(payloads.device):
            guess = self.decoder(payloads, *told)
        rows = self.pairs.rows.index_select(0, self.chosen)
        reconstruction_loss(guess.float(), rows, self.options.loss).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


_HARDLY = 1e-4
"""The penalty of what is known: it has few numbers, and rows enough to learn them from."""
_HIGHER = (*PENALTIES, 100.0, 1000.0)
"""A reader that has something to fall back on may turn away from the payload altogether."""


@dataclass(frozen=True)
class LinearReader:
    """Rows from payloads, and from what is known beside them; both parts are optional."""

    from_known: Ridge | None
    from_both: Ridge | None

    @classmethod
    def fit(
        cls,
        payloads: Tensor | None,
        known: Tensor | None,
        rows: Tensor,
        held: tuple[Tensor | None, Tensor | None, Tensor],
    ) -> LinearReader:
        """Learn from these rows; `held`, the same three of other rows, chooses the penalty."""
        from_known = None if known is None else fit_ridge(known, rows, _HARDLY)
        if payloads is None:
            return cls(from_known, None)
        held_payloads, held_known, held_rows = held
        assert held_payloads is not None
        if from_known is not None and known is not None and held_known is not None:
            rows, held_rows = rows - from_known(known), held_rows - from_known(held_known)
        penalties = PENALTIES if from_known is None else _HIGHER
        both, held_both = _together(payloads, known), _together(held_payloads, held_known)
        penalty, _ = best_penalty(both, rows, held_both, held_rows, penalties)
        return cls(from_known, fit_ridge(both, rows, penalty))

    def __call__(self, payloads: Tensor, known: Tensor | None) -> Tensor:
        first = self.from_known(known) if self.from_known is not None and known is not None else None
        if self.from_both is None:
            assert first is not None
            return first
        second = self.from_both(_together(payloads, known))
        return second if first is None else first + second


def _together(payloads: Tensor, known: Tensor | None) -> Tensor:
    return payloads if known is None else torch.cat([payloads.flatten(1), known.to(payloads)], 1)
