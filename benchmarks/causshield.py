"""What CausShield costs beside a plain exchange, by phase and beside its floor, and what every defense costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.rows import Row, alternate
from benchmarks.runtime import WARMUP, federated
from veracausa.config import Job, load_job
from veracausa.data.vertical import VerticalDataset
from veracausa.defenses import defenses
from veracausa.defenses.causshield import CausShield
from veracausa.defenses.causshield.adaptation import Adaptation
from veracausa.experiments.defense_times import (
    CIFAR10_ROWS,
    CIFAR10_SHAPE,
    Effort,
    data_or_noise,
    defense_rows,
    settle,
    timed_job,
)
from veracausa.models.runner import choose_device, fetch_rows
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema

ITERATIONS = (5, 20, 30)
# The time does not depend on the surrogates' values; a kind that needs no training keeps the bench short.
SURROGATE = {"name": "permuted_ab"}
AMORTISED: dict[str, Mapping[str, Any]] = {
    "scope offset, M = 30": {"scope": "offset", "schedule": "const"},
    "scope epoch, M = 30": {"scope": "epoch", "schedule": "const"},
    "plateau": {"schedule": "plateau", "iterations": 30, "tolerance": 0.01},
    "M = 1": {"iterations": 1, "schedule": "const"},
}


def run(
    repeats: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    compiled: bool = False,
    width: int | None = None,
    names: Sequence[str] | None = None,
) -> list[Row]:
    """Exchanges with CausShield against plain ones, its phases, its inner iteration against the floor; every defense.

    `names` picks defenses. CausShield's own rows, which take most of the time, are left out where it is not among them.
    """
    for name in names or ():
        defenses.get(name)
    on_gpu = choose_device(device).type == "cuda"
    job = timed_job(device, precision, compiled, width)
    dataset = data_or_noise(job, CIFAR10_ROWS, CIFAR10_SHAPE)
    rows = []
    if names is None or "causshield" in names:
        rows = _exchanges(job, dataset, 30 if on_gpu else 1, repeats or (3 if on_gpu else 1), on_gpu)
        rows += _phases(job, dataset, 20 if on_gpu else 2)
    defended = defense_rows(job, dataset, Effort.on(on_gpu), names)
    return rows + [Row(one.case, one.seconds, one.against, one.against_seconds, one.extra) for one in defended]


def _exchanges(job: Job, dataset: VerticalDataset, steps: int, repeats: int, amortised: bool) -> list[Row]:
    """Whole exchanges between three parties, plain and with each setting, in turns."""
    settings: dict[str, Mapping[str, Any]] = {f"M = {m}": {"iterations": m, "schedule": "const"} for m in ITERATIONS}
    if amortised:  # these spread their adaptation over an epoch, which a CPU does not finish
        settings |= AMORTISED
    whole = -(-len(dataset.parties[dataset.active].train) // job.training.batch_size)
    sides: dict[str, Callable[[], float]] = {"plain exchange": partial(_per_exchange, job, dataset, steps)}
    for name, chosen in settings.items():
        # One adaptation an epoch: its price is that of a whole epoch, in which exactly one falls.
        count = whole if "scope" in chosen else steps
        sides[name] = partial(_per_exchange, with_defense(job, chosen), dataset, count)
    seconds = {name: median(times) for name, times in alternate(sides, repeats, warm_up=False).items()}
    plain = seconds.pop("plain exchange")
    return [Row(f"exchange, {name}", taken, "plain exchange", plain) for name, taken in seconds.items()]


def _per_exchange(job: Job, dataset: VerticalDataset, steps: int) -> float:
    # On a CPU an exchange with many iterations takes seconds: nothing is left to warm up but the plain one.
    long = choose_device(job.runtime.device).type != "cuda" and getattr(job.defense, "iterations", 0) > 5
    return federated(job, dataset, steps, 0 if long else WARMUP) / steps


def _phases(job: Job, dataset: VerticalDataset, repeats: int) -> list[Row]:
    """One party alone: what each part of a defended exchange takes beside its part of a plain one."""
    job = with_defense(job, {"iterations": 30, "schedule": "const"})
    name = dataset.passive[0]
    party = PassiveParty(job, dataset.parties[name], Schema.of(dataset).outputs)
    shield = party.defense
    assert isinstance(shield, CausShield)
    shield.prepare(party.parts["train"])
    ids = torch.arange(job.training.batch_size)
    x = fetch_rows(party.parts["train"], ids, job.runtime)
    payload, context = shield.forward(x, ids, 0)
    gradient = torch.randn_like(payload)
    shield.backward(context, gradient)
    adaptation = shield.adaptation
    assert adaptation is not None
    surrogate = shield.surrogate_of(x, ids, 0)
    time_of = partial(timed, device=party.device, repeats=repeats)

    def plain() -> None:
        r = party.defense.run_bottom(x)
        party.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(r, gradient)
        party.optimizer.step()

    step = time_of(plain)
    inner = time_of(lambda: adaptation.iterate(x, surrogate))
    phases = {
        "phase: surrogates of a batch": time_of(lambda: shield.surrogate_of(x, ids, 0)),
        "phase: copy of the bottom": time_of(adaptation.reset_to_bottom),
        "phase: inner iteration": inner,
        "phase: payload": time_of(lambda: adaptation.payload(x)),
    }
    rows = [Row(phase, seconds, "plain bottom step", step) for phase, seconds in phases.items()]
    eager = time_of(lambda: _eagerly(adaptation, x, surrogate))
    floor = floor_of(adaptation, x, surrogate, job.runtime.precision)
    rows.append(Row("inner iteration", inner, "the same, eager", eager))
    details = {
        "TFLOP": floor.flops / 1e12,
        "TFLOP/s": floor.rate / 1e12,
        "GB": floor.bytes / 1e9,
        "TB/s": floor.bandwidth / 1e12,
        "arithmetic ms": 1e3 * floor.flops / floor.rate,
        "bytes ms": 1e3 * floor.bytes / floor.bandwidth,
    }
    rows.append(Row("inner iteration", inner, "its floor", floor.seconds, details))
    return rows


def floor_of(adaptation: Adaptation, x: torch.Tensor, surrogate: torch.Tensor, precision: str) -> Floor:
    """The floor of one inner iteration on this machine."""
    modules = [adaptation.generator, *([adaptation.masker] if adaptation.masker is not None else [])]
    with adaptation.preserving_state():
        counter = LayerBytes(*modules)
        flops = flops_of(lambda: _eagerly(adaptation, x, surrogate))
        moved = counter.done()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return Floor(flops, moved, matrix_rate(x.device, dtype), copy_bandwidth(x.device))


def _eagerly(adaptation: Adaptation, x: torch.Tensor, surrogate: torch.Tensor) -> None:
    compiled = [turn.objective for turn in adaptation.turns]
    try:
        for turn in adaptation.turns:
            turn.objective = turn.plain
        adaptation.iteration(x, surrogate)
    finally:
        for turn, objective in zip(adaptation.turns, compiled, strict=True):
            turn.objective = objective


def with_defense(job: Job, settings: Mapping[str, Any]) -> Job:
    """The same job with CausShield and these settings."""
    tree = job.model_dump(mode="json", exclude_none=True)
    return load_job(
        {**tree, "defense": {"name": "causshield", "profile": "paper_repaired", "surrogate": SURROGATE, **settings}}
    )


# ---- how fast a computation could be at best: its arithmetic and its bytes at the rates this machine reaches --------

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)
WEIGHTED = (nn.modules.conv._ConvNd, nn.Linear)


@dataclass(frozen=True)
class Floor:
    """The least time for some operations and some bytes; whichever takes longer."""

    flops: float
    bytes: float
    rate: float
    """Operations a second, of a large matrix product in the precision used."""
    bandwidth: float
    """Bytes a second, read and written, of a large copy."""

    @property
    def seconds(self) -> float:
        return max(self.flops / self.rate, self.bytes / self.bandwidth)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / timed(lambda: a @ b, device, 10)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    count = 1 << (30 if device.type == "cuda" else 26)
    source = torch.randn(count // 4, device=device)
    target = torch.empty_like(source)
    return 2 * count / timed(lambda: target.copy_(source), device, 10)


def flops_of(work: Callable[[], object]) -> float:
    """Operations of the convolutions and matrix products in `work`, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


class LayerBytes:
    """Counts the fewest bytes that a layer-by-layer pass and its gradient move, while `work` runs the layers.

    A convolution or linear layer reads its input and writes its output; backward it reads the output's gradient and its
    input and writes the input's gradient. A normalisation must see its whole input before it can write: it reads it
    twice, and backward its gradient and input twice. Activations, additions and weights are counted as free.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self.total = 0
        self._hooks = [
            leaf.register_forward_hook(self._count)
            for module in modules
            for leaf in module.modules()
            if isinstance(leaf, NORMS + WEIGHTED)
        ]

    def _count(self, leaf: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        size = output.element_size()
        read, written = inputs[0].numel() * size, output.numel() * size
        if isinstance(leaf, NORMS):
            self.total += (2 * read + written) + (2 * (written + read) + read)
        else:
            self.total += (read + written) + (written + 2 * read)

    def done(self) -> int:
        for hook in self._hooks:
            hook.remove()
        return self.total


def timed(work: Callable[[], object], device: torch.device, repeats: int, warm_up: int = 3) -> float:
    """Seconds of one call, over `repeats` calls between two waits for the device."""
    for _ in range(warm_up):
        work()
    settle(device)
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    settle(device)
    return (time.perf_counter() - started) / repeats
