"""Surrogates that are learnt: two networks, each predicting one half of an image from the other (Eqs. 8–10).

An image is taken apart into *structure* (what should be kept) and *values* (what may change). A1 predicts a
distribution of the values from the structure, A2 the structure from the values; the surrogate is put together from
what they say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa import seeding
from veracausa.defenses.causshield.surrogates import bins
from veracausa.defenses.causshield.surrogates.base import (
    Groups,
    Paced,
    Surrogate,
    SurrogateOptions,
    as_float,
    batches,
    on_device,
)
from veracausa.defenses.protocols import no_progress
from veracausa.events import ProgressCallback
from veracausa.models.runner import WARM_UP, record, side_stream

# A million pixels and more tell how common each bin is.
_COUNTED_ROWS = 4096


class CrossChannelOptions(SurrogateOptions):
    """What the learnt kinds take."""

    neighbours: int = Field(5, ge=1)
    """A soft target lies on so many bins."""
    rebalance: bool = True
    """Let rare bins count more; false is the paper's Eq. 8 to the letter, and tends to the commonest value."""
    decode: Literal["annealed_mean", "argmax", "sample_pixel", "sample_window"] = "annealed_mean"
    decode_temperature: float = Field(0.38, gt=0)
    """Of the annealed mean: 1 is the mean, towards 0 the mode."""
    window: int = Field(4, ge=1)
    """The side s of the windows of the variance term and of `sample_window`."""
    v_e: float = Field(0.02, ge=0)
    """The variance that the values should have in a window."""
    mu: float = Field(1000.0, ge=0)
    """The weight of the variance term."""
    epochs: int = Field(20, ge=0)
    batch_size: int = Field(256, ge=1)
    lr: float = Field(1e-3, gt=0)
    width: int = Field(64, ge=1)
    """Channels of the networks at full resolution."""


class CrossChannel(Surrogate):
    """A1 and A2; a kind says how an image is taken apart and put together, and over which bins values lie."""

    options: CrossChannelOptions
    centres: Tensor
    """(Q, d) of the bins."""
    scale: float
    """Values over this are what the networks see and the variance is taken of."""
    sigma: float
    """The width of a soft target; 0: all mass on the nearest bin."""
    structure_from_a2: float
    """The share of A2's prediction in the surrogate's structure; where it is 0, A2 is not trained."""

    def __init__(self, options: CrossChannelOptions) -> None:
        super().__init__(options)
        self.a1: UNet | None = None
        self.a2: UNet | None = None
        self.terms: dict[str, float] = {}

    def decompose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The structure (n, 1, H, W), in the networks' units, and the values (n, d, H, W)."""
        raise NotImplementedError

    def recompose(self, structure: Tensor, values: Tensor) -> Tensor:
        """The image of this structure and these values, not clipped."""
        raise NotImplementedError

    def fit(
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = no_progress, groups: Groups | None = None
    ) -> None:
        self.check(rows.shape[1:])
        options, both = self.options, self.structure_from_a2 > 0
        self.a1, self.a2 = self._networks(both, rng)
        # On the device before a step is captured there: a graph cannot fetch them.
        self.centres = self.centres.to(rows.device)
        first, second = Paced(progress, 0, 0.5 if both else 1), Paced(progress, 0.5, 1)
        weights = self._weights(rows, first) if options.rebalance else None
        a1 = self._placed(self.a1, rows)
        schedule = (options.epochs, options.batch_size, options.lr)

        def a1_loss(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            structure, values = self.decompose(x)
            log_p = torch.log_softmax(predict(a1, structure), dim=1)
            entropy = bins.cross_entropy(log_p, self._target(values), weights)
            decoded = bins.expected_value(log_p.exp(), self.centres) / self.scale
            variance = (bins.window_variance(decoded, options.window) - options.v_e).square().mean() * options.mu
            return entropy + variance, {"a1_cross_entropy": entropy, "a1_window_variance": variance}

        self.terms = train(a1, a1_loss, rows, rng, *schedule, progress=first)
        if not both:
            return
        a2 = self._placed(self.a2, rows)

        def a2_loss(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            structure, values = self.decompose(x)
            error = (predict(a2, values / self.scale) - structure).square().mean()
            return error, {"a2_squared_error": error}

        self.terms |= train(a2, a2_loss, rows, rng, *schedule, progress=second)

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        structure, values = self.decompose(x)
        self.centres = self.centres.to(x.device)
        drawn = self._decoded(predict(self._placed(self.a1, x), structure), rng)
        if self.structure_from_a2:
            guess = predict(self._placed(self.a2, x), values / self.scale)
            structure = structure + self.structure_from_a2 * (guess - structure)
        return self.recompose(structure, drawn)

    def quality_checks(self, x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
        return super().quality_checks(x, surrogate) | self.terms

    def state(self) -> dict[str, Any]:
        named = {"a1": self.a1, "a2": self.a2}
        networks = {name: dict(network.state_dict()) for name, network in named.items() if network is not None}
        return {"networks": networks, "terms": dict(self.terms)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.a1, self.a2 = self._networks("a2" in state["networks"], torch.Generator())
        for network, weights in ((self.a1, state["networks"]["a1"]), (self.a2, state["networks"].get("a2"))):
            if network is not None:
                network.load_state_dict(weights)
        self.terms = dict(state["terms"])

    def _networks(self, both: bool, rng: torch.Generator) -> tuple[UNet, UNet | None]:
        bin_count, channels = self.centres.shape
        with seeding.drawing_from(rng):
            a1 = UNet(1, bin_count, self.options.width)
            a2 = UNet(channels, 1, self.options.width) if both else None
        return a1, a2

    @staticmethod
    def _placed(network: UNet | None, rows: Tensor) -> UNet:
        if network is None:
            raise RuntimeError("fit a surrogate before it makes any")
        return network.to(rows.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def _target(self, values: Tensor) -> bins.Target:
        if self.sigma == 0:
            return bins.hard_encode(values, self.centres)
        return bins.soft_encode(values, self.centres, self.options.neighbours, self.sigma)

    def _weights(self, rows: Tensor, heard: ProgressCallback) -> Tensor:
        """(Q,) from how often each bin occurs in at most a few thousand rows, evenly spaced."""
        some = rows[:: -(-len(rows) // _COUNTED_ROWS)]
        counts = torch.zeros(len(self.centres), dtype=torch.int64, device=rows.device)
        for batch in batches(some):
            nearest = bins.hard_encode(self.decompose(as_float(some[batch]))[1], self.centres).indices
            counts += bins.bin_counts(nearest, len(self.centres))
            heard(0.0)
        return bins.rebalancing(counts)

    def _decoded(self, logits: Tensor, rng: torch.Generator) -> Tensor:
        options = self.options
        if options.decode == "annealed_mean":
            return bins.annealed_mean(logits, self.centres, options.decode_temperature)
        if options.decode == "argmax":
            return bins.argmax(logits, self.centres)
        own = on_device(rng, logits.device)
        if options.decode == "sample_pixel":
            return bins.sample_pixel(logits, self.centres, own)
        return bins.sample_window(logits, self.centres, options.window, own)


class UNet(nn.Module):
    """Two halvings and two doublings with skips, a prediction at full resolution; images of any size.

    GroupNorm, not BatchNorm: a row's surrogate must not depend on the rows beside it.
    """

    def __init__(self, inputs: int, outputs: int, width: int = 64) -> None:
        super().__init__()
        self.at_full = nn.Sequential(_block(inputs, width), _block(width, width))
        self.at_half = nn.Sequential(_block(width, 2 * width, stride=2), _block(2 * width, 2 * width))
        self.at_quarter = nn.Sequential(_block(2 * width, 4 * width, stride=2), _block(4 * width, 4 * width))
        self.to_half = _block(6 * width, 2 * width)
        self.to_full = _block(3 * width, width)
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = F.pad(x, (0, -width % 4, 0, -height % 4), mode="replicate")
        full = self.at_full(x)
        half = self.at_half(full)
        values = self.to_half(torch.cat((_doubled(self.at_quarter(half)), half), dim=1))
        values = self.to_full(torch.cat((_doubled(values), full), dim=1))
        predicted: Tensor = self.head(values)
        return predicted[..., :height, :width]


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.GroupNorm(math.gcd(8, outputs), outputs),
        nn.ReLU(inplace=True),
    )


def _doubled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


LAST_LR = 1e-5
# A GPU works behind the interpreter; without waiting now and then, progress would say what is asked, not what is done.
_STEPS_AHEAD = 16

Loss = Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]
"""From a batch of rows to the loss, a mean over rows, and the terms of it that a report names."""


def predict(network: nn.Module, x: Tensor) -> Tensor:
    """The network's output in float32; a GPU computes it in bfloat16."""
    x = x.contiguous(memory_format=torch.channels_last)
    if x.device.type != "cuda":
        output: Tensor = network(x)
        return output
    # Without the weight cache: a graph must not depend on copies that an earlier pass left.
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        output = network(x)
    return output.float()


def train(
    network: nn.Module,
    loss: Loss,
    rows: Tensor,
    rng: torch.Generator,
    epochs: int = 20,
    batch_size: int = 256,
    lr: float = 1e-3,
    progress: ProgressCallback = no_progress,
) -> dict[str, float]:
    """Fit the network with Adam, its rate falling as a cosine to 1e-5; gives the mean terms of the last epoch.

    Full batches only: the rows that are left over are others in each epoch.
    """
    batch_size = min(batch_size, len(rows))
    per_epoch = len(rows) // batch_size
    steps = epochs * per_epoch
    step = _Step(network, loss, rows, batch_size, lr)
    for done in range(steps):
        at = done % per_epoch
        if at == 0:
            order = torch.randperm(len(rows), generator=rng).to(rows.device)
            step.forget_terms()
        rate = LAST_LR + (lr - LAST_LR) * 0.5 * (1 + math.cos(math.pi * done / steps))
        step(order[at * batch_size : (at + 1) * batch_size], rate, partial(_heard, progress, done, steps))
    network.zero_grad(set_to_none=True)  # gradients of a graph would hold its memory
    return {name: total.item() / per_epoch for name, total in step.terms.items()}


def _heard(progress: ProgressCallback, done: int, steps: int, share: float) -> None:
    progress((done + share) / steps)


class _Step:
    """One step of training, and the sums of the loss's terms since `forget_terms`."""

    def __init__(self, network: nn.Module, loss: Loss, rows: Tensor, size: int, lr: float) -> None:
        self.loss, self.rows, self.size = loss, rows, size
        self.terms: dict[str, Tensor] = {}
        self.on_gpu = rows.device.type == "cuda"
        if self.on_gpu:
            # A graph replays what it was given: the rate must be a tensor to change.
            self.rate = torch.tensor(lr, device=rows.device)
            self.optimizer = torch.optim.Adam(network.parameters(), lr=self.rate, fused=True, capturable=True)
            self.aside: torch.cuda.Stream = torch.cuda.Stream(rows.device)  # type: ignore[no-untyped-call]
        else:
            self.optimizer = torch.optim.Adam(network.parameters(), lr=lr)
        self.done = 0
        self.batch: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def forget_terms(self) -> None:
        for total in self.terms.values():
            total.zero_()

    def __call__(self, chosen: Tensor, rate: float, heard: ProgressCallback) -> None:
        self.done += 1
        if not self.on_gpu:
            self.optimizer.param_groups[0]["lr"] = rate
            self._run(self.rows[chosen], heard)
            return
        self.rate.fill_(rate)
        if self.graph is None and self.done > WARM_UP:
            self._capture(chosen)
        if self.graph is not None and self.batch is not None:
            self.batch.copy_(self.rows[chosen])
            self.graph.replay()
        else:
            self._warm_up(chosen)
        if self.done % _STEPS_AHEAD == 0:
            torch.cuda.current_stream().synchronize()
        heard(1.0)

    def _run(self, batch: Tensor, heard: ProgressCallback) -> None:
        """In as many pieces as memory and signs of life ask for: losses are means over rows, so their sum is exact."""
        self.optimizer.zero_grad(set_to_none=True)
        for piece in batches(batch):
            x = as_float(batch[piece])
            share = len(x) / len(batch)
            loss, terms = self.loss(x)
            torch.autograd.backward(loss * share)
            for name, term in terms.items():
                if name not in self.terms:
                    self.terms[name] = torch.zeros((), device=batch.device)
                self.terms[name].add_(term.detach(), alpha=share)
            heard(min(1.0, piece.stop / len(batch)))
        self.optimizer.step()

    def _warm_up(self, chosen: Tensor) -> None:
        with side_stream(self.aside):
            self._run(self.rows[chosen], no_progress)

    def _capture(self, chosen: Tensor) -> None:
        # A capture runs on a stream of its own; that its gradients then meet weights of the usual one is meant.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        batch = self.batch = self.rows[chosen].clone()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        record(graph, lambda: self._run(batch, no_progress))
        self.graph = graph
