"""Layers that leave a payload few values of bounded power, and how much so many noisy values can say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.func import functional_call

from veracausa.crypto.randomness import subkey
from veracausa.defenses import defenses
from veracausa.defenses.base import Context
from veracausa.defenses.causshield.losses import decomposition, off_diagonal_weight
from veracausa.defenses.causshield.masker import as_matrix
from veracausa.defenses.causshield.options import SurrogateChoice
from veracausa.defenses.causshield.surrogates.collect import SurrogateDefense
from veracausa.defenses.noise import ExchangeBudget, NoiseDefense, NoiseSource, PerRowNoise, accounted_deviation
from veracausa.defenses.protocols import HasLayers, Penalizes, Scheduled
from veracausa.registry import Options


class UnitVariance(nn.modules.batchnorm._BatchNorm):
    """Every channel with mean 0 and variance 1: over the batch and all places in training, by averages at inference.

    It has no weights: with a scale of its own the model would learn to shout over the noise.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, affine=False)

    def _check_input_dim(self, input: Tensor) -> None:
        """Vectors and maps alike."""

    def forward(self, x: Tensor) -> Tensor:
        # One value has no variance: a batch of one vector is normalised as at inference.
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        return super().forward(x)


def build_bottleneck(shape: tuple[int, ...], channels: int, stride: int, kernel: int) -> nn.Sequential:
    """Layers to `channels` normalised channels, of maps pooled over `stride`×`stride` places, or as many features."""
    if len(shape) != 3:
        before: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        return nn.Sequential(*before, nn.Linear(math.prod(shape), channels, bias=False), UnitVariance(channels))
    pool: list[nn.Module] = [nn.AvgPool2d(stride, ceil_mode=True)] if stride > 1 else []
    narrow = nn.Conv2d(shape[0], channels, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(*pool, narrow, UnitVariance(channels))


def capped(r: Tensor, most: float) -> Tensor:
    """The rows of `r`, those whose root mean square is above `most` scaled down to it; 0: as they are.

    Normalised channels bound the power of the whole batch, which one row could still have for itself.
    """
    if not most:
        return r
    power = r.flatten(1).float().square().mean(1).clamp_min(most**2)  # before the root, whose slope at 0 is infinite
    scale: Tensor = most * torch.rsqrt(power)
    return r * scale.to(r.dtype).view(-1, *[1] * (r.ndim - 1))


def capacity_bits(values: int, power: float, noise: float) -> float:
    """values/2 · log2(1 + power/noise²): no code carries more through Gaussian noise, whatever the model learns.

    Of one payload; `power` is the mean square of its values. Several payloads of a row with fresh noise carry more.
    """
    return math.inf if noise == 0 else values / 2 * math.log2(1 + power / noise**2)


def channel_deviations(r: Tensor) -> Tensor:
    """(channels,) the standard deviation of each channel over rows and places."""
    over: Any = (0, *range(2, r.ndim))
    return r.float().std(over, correction=0)


class NoisyBottleneckOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("noise", "stride", "channels")
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "noise": (0.25, 0.5, 1.0, 1.5, 2.0),
        "stride": (2, 4),
        "channels": (16, 4),
    }

    name: str = "noisy_bottleneck"
    channels: int = Field(8, ge=1)
    """How many channels of a map are sent, or how many features of a vector."""
    stride: int = Field(1, ge=1)
    """Maps are averaged over so many by so many places first."""
    kernel: Literal[1, 3] = 1
    """The width of the convolution that narrows a map."""
    noise: float = Field(1.0, ge=0)
    """The noise's standard deviation; that of a channel is 1."""
    noise_mode: Literal["fresh", "fixed", "accounted"] = "fresh"
    """fresh: new at every exchange, so that an average over many removes it. fixed: one draw for each row, so that a
    difference of two payloads removes it while the bottom trains. accounted: new at every exchange, and so much that
    all exchanges of a row together tell what one at `noise` would."""
    exchanges: int = Field(0, ge=0)
    """For accounted: how many payloads a row may have, inference included; 0: one an epoch, and one more afterwards.
    With fewer, each needs less noise; in between a row's last payload is sent again, bit for bit, and tells nothing."""
    clip: float = Field(2.0, ge=0)
    """The largest root mean square of one row's payload, beside an average of 1; 0: none."""
    decomposition: float = Field(0.0, ge=0)
    """Weight of CausShield's decomposition loss between a row and its surrogate, straight on the bottom."""
    surrogate: SurrogateChoice = Options(name="auto")
    """For decomposition: as CausShield's."""

    @model_validator(mode="after")
    def _once_for_inference(self) -> NoisyBottleneckOptions:
        if self.exchanges == 1:
            raise ValueError("exchanges: one is for inference, so that none is left to train by; set 2 at least, or 0")
        return self


@dataclass
class _Partly(Context):
    """A context some of whose rows sent nothing: their gradient is dropped."""

    sent: Tensor | None = None


@defenses.register("noisy_bottleneck", NoisyBottleneckOptions)
class NoisyBottleneck(NoiseDefense, SurrogateDefense, Scheduled, HasLayers, Penalizes):
    """Sends few channels, each of unit variance, plus Gaussian noise; bottom and top learn to live with the noise.

    What a payload can carry is limited by its power and the noise, whatever the bottom learns; see `capacity_bits`. It
    is no guarantee for any one value of a row, and no differential privacy.
    """

    options: NoisyBottleneckOptions  # type: ignore[assignment]

    def __init__(self, options: NoisyBottleneckOptions) -> None:
        super().__init__(options)
        self.updates = 0
        """How often the bottom has changed, if only in its statistics: each state of it has its noise at inference."""
        self.exchanges = options.exchanges or 2
        self.budget = ExchangeBudget(self.exchanges - 1)
        self.last: Tensor | None = None
        """The last payload of every row, where rows are asked for more often than they may have a new one."""

    # Before the first exchange.

    @property
    def wanted_surrogate(self) -> Options | None:
        return self.options.surrogate if self.options.decomposition else None

    def on_schedule(self, exchanges: int) -> None:
        self.exchanges = self.options.exchanges or exchanges + 1
        self.budget = ExchangeBudget(self.exchanges - 1, exchanges)  # the last is for inference

    def layers(self, shape: tuple[int, ...]) -> nn.Module:
        options = self.options
        return build_bottleneck(shape, options.channels, options.stride, options.kernel)

    # What is sent.

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on one payload."""
        accounted = self.options.noise_mode == "accounted"
        return accounted_deviation(self.options.noise, self.exchanges) if accounted else self.options.noise

    @property
    def is_stochastic(self) -> bool:
        return self.options.noise_mode != "fixed" and self.options.noise > 0

    def distinct_payloads(self, exchanges: int) -> int:
        return min(exchanges, self.exchanges) if self.options.noise_mode == "accounted" else exchanges

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return capped(r, self.options.clip)

    def noise(self, r: Tensor, x: Tensor, draws: NoiseSource) -> Tensor:
        return self.deviation * draws.normal(*r.shape)

    def noise_std(self, r: Tensor, x: Tensor) -> Tensor | None:
        return r.new_full((), self.deviation) if self.options.noise else None

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        """The noisy payload; accounted, for rows that may have no new one their last, or zeros, which say nothing."""
        self._ids = ids
        self.updates += 1
        payload, context = super().forward(x, ids, step)
        if self.options.noise_mode != "accounted":
            return payload, context
        new = self.budget.spend(ids)
        repeating = self.budget.each < self.budget.planned
        if new.all() and not repeating:
            return payload, context
        sent = new.to(payload.device).view(-1, *[1] * (payload.ndim - 1))
        if repeating:
            return self._repeated(payload, ids.to(payload.device), sent), context
        return torch.where(sent, payload, 0.0), _Partly(**vars(context), sent=sent)

    def _repeated(self, payload: Tensor, ids: Tensor, new: Tensor) -> Tensor:
        """The new payloads, and the last ones of the other rows; they are kept."""
        missing = len(self.budget.asked) - (0 if self.last is None else len(self.last))
        more = payload.new_zeros(missing, *payload.shape[1:])
        self.last = more if self.last is None else torch.cat([self.last, more])
        payload = torch.where(new, payload, self.last[ids])
        self.last[ids] = payload
        return payload

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        sent = context.sent if isinstance(context, _Partly) else None
        super().backward(context, grad if sent is None else torch.where(sent, grad, 0.0), local_steps)

    def penalty(self, r: Tensor, x: Tensor) -> Tensor | None:
        """The decomposition loss (Eq. 14 over the channels) between rows and their surrogates, before any noise."""
        if not self.options.decomposition or len(x) < 2:
            return None
        # Not by the runner: a CUDA graph holds one pass, and that of the rows waits for its gradient. And with copies
        # of the statistics: they are to be those of rows, not of surrogates.
        statistics = {name: buffer.clone() for name, buffer in self.bottom.named_buffers()}
        with self.run_bottom.precision():
            other = functional_call(self.bottom, statistics, (self._surrogate_of(x),))
        a, b = as_matrix(r, "channel"), as_matrix(other, "channel")
        return self.options.decomposition * decomposition(a, b, off_diagonal_weight("auto", *a.shape))

    def _surrogate_of(self, x: Tensor) -> Tensor:
        made = self.stored_surrogates(self._ids)
        if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
            return made.contiguous(memory_format=torch.channels_last)
        return made

    def _inference_draws(self, x: Tensor) -> NoiseSource:
        if self.options.noise_mode == "accounted" and self._asked is None:
            # By row and state of the bottom: the same noise on two states would cancel in their difference.
            return PerRowNoise(subkey(self.row_key, "state", self.updates), x)
        return super()._inference_draws(x)

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """Signal and noise, how even the channels are, and the most bits that one payload of these rows can carry."""
        with torch.no_grad():
            r = self.deterministic_payload(x, ids).float()
        power, deviations = float(r.square().mean()), channel_deviations(r)
        found = {
            **super().diagnose(x, ids),
            "channel_deviation_least": float(deviations.min()),
            "channel_deviation_most": float(deviations.max()),
            "capacity_bits": capacity_bits(r[0].numel(), power, self.deviation),
        }
        if self.options.noise_mode == "accounted":
            found["spent"] = self.budget.spent()
        return found

    def state(self) -> dict[str, Any]:
        kept = {"updates": self.updates, "asked": self.budget.asked, "last": self.last}
        return {**super().state(), **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.updates, self.budget.asked = state["updates"], state["asked"].cpu()
        device = next(self.bottom.parameters()).device
        self.last = None if state["last"] is None else state["last"].to(device)
