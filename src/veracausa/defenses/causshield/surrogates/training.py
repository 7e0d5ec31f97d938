"""The network that predicts some channels of an image from the others, pixel for pixel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.defenses.base import unheard
from veracausa.defenses.causshield.surrogates.base import as_float, batches
from veracausa.events import ProgressCallback


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
# Steps that run as usual before a capture: libraries choose their kernels, the optimiser makes its state.
_REHEARSALS = 3
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
    progress: ProgressCallback = unheard,
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
        if self.graph is None and self.done > _REHEARSALS:
            self._capture(chosen)
        if self.graph is not None and self.batch is not None:
            self.batch.copy_(self.rows[chosen])
            self.graph.replay()
        else:
            self._rehearse(chosen)
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

    def _rehearse(self, chosen: Tensor) -> None:
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            self._run(self.rows[chosen], unheard)
        torch.cuda.current_stream().wait_stream(self.aside)

    def _capture(self, chosen: Tensor) -> None:
        # A capture runs on a stream of its own; that its gradients then meet weights of the usual one is meant.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        self.batch = self.rows[chosen].clone()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        # Other parties may work in other threads of this process; what they do must not spoil the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._run(self.batch, unheard)
        self.graph = graph
