"""The embedded federation against the same graph in plain PyTorch, side by side in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.rows import Row, alternate
from veracausa.config import Job, load_job
from veracausa.data.vertical import PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.experiments.defense_times import CIFAR10, CIFAR10_ROWS, CIFAR10_SHAPE, data_or_noise, settle
from veracausa.models.runner import choose_device
from veracausa.registry import did_you_mean
from veracausa.training.baselines import joint
from veracausa.training.split.active import ActiveParty
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema, make_party, share, unshare
from veracausa.training.train import check_models
from veracausa.wire.launch import Launch
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link

WARMUP = 3


@dataclass(frozen=True)
class Workload:
    """One model on one data set: what is timed, and how many steps of it."""

    job: Mapping[str, Any]
    rows: int
    shape: tuple[int, int, int]
    cpu_steps: int | None
    """Steps timed on a CPU; None: an epoch, as on a GPU."""


WORKLOADS = {
    "mnist": Workload(
        {
            "data": {"name": "mnist"},
            "model": {"name": "convnet", "cut": 6},
            "training": {"batch_size": 256, "optimizer": {"name": "adam", "lr": 1e-3}},
        },
        60_000,
        (1, 28, 28),
        None,
    ),
    "cifar10": Workload(
        CIFAR10,
        CIFAR10_ROWS,
        CIFAR10_SHAPE,
        30,
    ),
}
LINKS = ("threads", "processes")
CASES = [f"{name} {link}" for name in WORKLOADS for link in LINKS]


def run(cases: list[str] | None = None, repeats: int = 3, device: str = "auto", precision: str = "fp32") -> list[Row]:
    """Seconds of each case against plain PyTorch; medians of `repeats` alternating runs."""
    wanted = cases or CASES
    for case in wanted:
        if case not in CASES:
            raise InputError(f"bench runtime: no case {case!r}{did_you_mean(case, CASES)}")
    rows = []
    for name, workload in WORKLOADS.items():
        links = [link for link in LINKS if f"{name} {link}" in wanted]
        if not links:
            continue
        job = load_job(
            {
                **workload.job,
                "runtime": {"device": device, "precision": precision, "channels_last": precision == "bf16"},
            }
        )
        dataset = data_or_noise(job, workload.rows, workload.shape)
        on_gpu = choose_device(device).type == "cuda"
        whole = -(-len(dataset.parties[dataset.active].train) // job.training.batch_size)
        steps = whole if on_gpu or workload.cpu_steps is None else workload.cpu_steps
        sides: dict[str, Callable[[], float]] = {"plain PyTorch": partial(_plain, job, dataset, steps)}
        for link in links:
            settings = job.model_copy(update={"runtime": job.runtime.model_copy(update={"link": link})})
            sides[link] = partial(federated, settings, dataset, steps)
        seconds = {side: median(times) for side, times in alternate(sides, repeats, warm_up=False).items()}
        rows += [Row(f"{name} {link}", seconds[link], "plain PyTorch", seconds["plain PyTorch"]) for link in links]
    return rows


def _plain(job: Job, dataset: VerticalDataset, steps: int) -> float:
    model = joint(job, dataset)
    model.model.train()
    for _ in range(WARMUP):
        model.train_step()
    settle(model.device)
    started = time.perf_counter()
    for _ in range(steps):
        model.train_step()
    settle(model.device)
    return time.perf_counter() - started


def federated(job: Job, dataset: VerticalDataset, steps: int, warm_up: int = WARMUP) -> float:
    """Seconds that a federation takes for these steps, after a warm-up that is not counted."""
    timed: list[float] = []
    order = sorted(dataset.parties, key=lambda name: name == dataset.active)
    processes = job.runtime.link == "processes"
    with tempfile.TemporaryDirectory() as ledgers:
        programs = {
            name: _Timed(
                job,
                share(dataset.parties[name]) if processes else dataset.parties[name],
                Schema.of(dataset),
                steps,
                Path(ledgers),
                warm_up,
            )
            for name in order
        }
        launch = Launch(
            job.runtime.link,
            job.runtime.timeout,
            device=str(choose_device(job.runtime.device)),
            cpu_threads=check_models(job, dataset),
        )
        launch.run(programs, lambda event: timed.append(event["seconds"]) if event["event"] == "timed" else None)
    return timed[0]


@dataclass
class _Timed:
    """A party that trains a given number of steps; the active one says how long they took, without set-up."""

    job: Job
    data: PartyData
    schema: Schema
    steps: int
    ledgers: Path
    warm_up: int

    def __call__(self, link: Link, notify: Observer) -> None:
        link.ledger = Ledger(self.ledgers / f"{self.data.name}.jsonl")
        party = make_party(self.job, unshare(self.data), self.schema)
        if isinstance(party, PassiveParty):
            party.run(link)
            return
        assert isinstance(party, ActiveParty)
        party.meet(link)
        for _ in range(self.warm_up):
            party.train_step(link)
        settle(party.device)
        started = time.perf_counter()
        for _ in range(self.steps):
            party.train_step(link)
        settle(party.device)
        notify({"event": "timed", "seconds": time.perf_counter() - started})
        party.finish(link)
