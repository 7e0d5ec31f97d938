"""Trainings that tests share: a few steps in a federation, a run that is resumed, and odd defenses and networks.

A spawned process finds them, because they are in a module of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import nn

import veracausa
from veracausa.config import Job, load_job
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.events import Observer
from veracausa.registry import Options
from veracausa.runs.store import deserialize_state, serialize_state
from veracausa.testing.synthetic import toy_data
from veracausa.training.split.program import Schema, make_party, share, unshare
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

JOB: dict[str, Any] = {
    "data": {"name": "digits", "train": 96},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 2, "batch_size": 32, "evaluate_every": 2, "local_steps": 2},
    "overlap": {"fraction": 0.7},
    "checkpoints": {"every_steps": 1, "keep": 99},
    "risk": {"samples": 2, "rank": 2},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@dataclass
class TrainedSteps:
    """Takes part in one training after the other over the same link, and writes its final states into `out`."""

    name: str
    jobs: list[tuple[Job, PartyData, Schema]]
    out: Path

    def __call__(self, link: Link, notify: Observer) -> None:
        for number, (job, data, schema) in enumerate(self.jobs):
            for kinds in link.kinds.values():
                kinds.clear()  # the next job declares its own
            party = make_party(job, unshare(data), schema)
            party.run(link)
            (self.out / f"{number}-{self.name}").write_bytes(serialize_state(party.state()))


def train_all(jobs: list[tuple[Job, VerticalDataset]], link: str, out: Path) -> list[dict[str, dict]]:
    """The parties' final states after each job, all run in one federation with one thread a party."""
    names = list(jobs[0][1].parties)
    ready = share if link == "processes" else lambda data: data
    programs = {
        name: TrainedSteps(name, [(job, ready(data.parties[name]), Schema.of(data)) for job, data in jobs], out)
        for name in names
    }
    Launch(link, timeout=60, cpu_threads=dict.fromkeys(names, 1)).run(programs)  # type: ignore[arg-type]
    return [
        {name: deserialize_state((out / f"{number}-{name}").read_bytes()) for name in names}
        for number in range(len(jobs))
    ]


def image_data(passive: int, rows: int = 24, active_part: bool = False) -> VerticalDataset:
    """Random pictures of 16 × 8 pixels a party."""
    rng = torch.Generator().manual_seed(0)
    holders = [f"passive_{i + 1}" for i in range(passive)]
    labels = torch.randint(0, 4, (rows,), generator=rng)
    own = torch.randint(0, 256, (rows, 3, 16, 8), generator=rng, dtype=torch.uint8) if active_part else None
    empty = Part(0)
    active = PartyData(
        "active", tuple(own.shape[1:]) if own is not None else (), Part(rows, own, labels=labels), empty, empty
    )
    parties = {"active": active}
    for name in holders:
        pixels = torch.randint(0, 256, (rows, 3, 16, 8), generator=rng, dtype=torch.uint8)
        parties[name] = PartyData(name, (3, 16, 8), Part(rows, pixels), empty, empty)
    return VerticalDataset("noise", "active", parties, "classification", ("a", "b", "c", "d"), "width")


def table_data(passive: int, rows: int = 24, task: str = "classification") -> VerticalDataset:
    """Tables of five columns a party."""
    return toy_data("tables", passive, train=rows, test=0, shape=(5,), classes=3 if task == "classification" else 0)


def job_for(dataset: VerticalDataset, model: dict, **training) -> Job:
    """A job of one epoch on such data."""
    settings = {"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.05}, **training}
    return load_job(
        {
            "data": {"name": "digits"},
            "model": model,
            "parties": {"passive": list(dataset.passive)},
            "training": settings,
            "risk": {"every": 0},
            "runtime": {"device": "cpu"},
            "seed": 7,
        },
        allow_model=model["name"],
    )


def own_network(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    """A user's own network, with the layers that need care: in-place activations, normalisation, dropout."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(shape[0], 6, 3, padding=1),
        torch.nn.BatchNorm2d(6),
        torch.nn.ReLU(inplace=True),
        torch.nn.Dropout(0.3),
        torch.nn.Conv2d(6, 6, 3, padding=1),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(outputs),
    )


def assert_resumes(defense: dict[str, Any], folder: Path, step: int = 2) -> None:
    """Train with the defense, and see that the run resumes after `step`."""
    job = {**JOB, "defense": defense}
    whole = veracausa.train(job, out=folder / "whole")
    assert any(line["event"] == "defense" for line in whole.metrics)
    assert_resumed(whole, job, folder / "broken", step)


def assert_resumed(whole: veracausa.Run, job: dict[str, Any], broken: Path, step: int) -> None:
    """A copy of the run forgets all after `step` and is resumed: models and metrics are the same bit for bit."""
    shutil.copytree(whole.path, broken)
    for path in broken.glob("parties/*/checkpoints/step-*"):
        if int(path.name.split("-")[1]) > step:
            path.unlink()
    (broken / "summary.json").unlink()
    (broken / "status.json").write_text(json.dumps({"state": "running"}))
    resumed = veracausa.train(job, out=broken, resume=True)
    models = list(whole.path.glob("parties/*/model.safetensors"))
    assert len(models) == 3
    for path in models:
        assert path.read_bytes() == (resumed.path / path.relative_to(whole.path)).read_bytes(), path.parent.name
    assert _timeless(whole) == _timeless(resumed)


def _timeless(run: veracausa.Run) -> list[dict[str, Any]]:
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics]
    return sorted(lines, key=lambda line: (line["step"], line["party"], line["event"]))


class LayeredOptions(Options):
    channels: int = 3
    pool: int = 2


class Layered(Defense):
    """Fewer channels on a coarser map, or fewer values; nothing else."""

    options: LayeredOptions
    Options = LayeredOptions

    def layers(self, shape):
        if len(shape) == 1:
            return nn.Linear(shape[0], self.options.channels)
        pool = self.options.pool
        return nn.Sequential(nn.AvgPool2d(pool, ceil_mode=True), nn.Conv2d(shape[0], self.options.channels, 1))


def registered(monkeypatch) -> None:
    """`layered` can be chosen by a job until the test ends."""
    defenses.names()
    monkeypatch.setitem(defenses._entries, "layered", (Layered, LayeredOptions))


class SlowOptions(Options):
    seconds: float = 0.0
    dies: bool = False
    silent: bool = False


@defenses.register("slow", SlowOptions)
class Slow(Defense):
    """Prepares a number for so many seconds, with a word every 20 ms."""

    options: SlowOptions
    times = 0

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.offset = torch.zeros(())

    def prepare(self, data, progress=lambda share: None):
        Slow.times += 1
        end = time.monotonic() + self.options.seconds
        for number in count():
            left = end - time.monotonic()
            if self.options.dies and number == 60:  # by then it has given a sign of life
                os.kill(os.getpid(), signal.SIGKILL)
            elif left <= 0 and not self.options.dies:
                break
            time.sleep(0.02)
            if not self.options.silent:
                progress(1 - left / self.options.seconds)
        self.offset = data.take(torch.arange(len(data))).mean()

    def prepared(self):
        return {"offset": self.offset}

    def load_prepared(self, kept, data=None):
        self.offset = kept["offset"]

    def quality_checks(self):
        return {"offset": float(self.offset), "structure_lost": False}

    def protect(self, r, x, ids):
        return r + self.offset

    def diagnose(self, x, ids):
        return {"offset": float(self.offset), "mean": float(x.mean()), "broken": float("nan")}


def small_network(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    """A network whose module brings the defense with it into a spawned process."""
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.LazyLinear(6), torch.nn.ReLU(), torch.nn.LazyLinear(outputs)
    )
