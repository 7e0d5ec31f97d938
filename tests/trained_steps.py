"""A party program that trains a few jobs and leaves its state behind; in a module of its own so that spawn finds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from veracausa.config import Job, load_job
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.events import Observer
from veracausa.runs.store import deserialize_state, serialize_state
from veracausa.training.split.program import Schema, make_party, share, unshare
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link


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


def image_data(passive: int, rows: int = 24, channels: int = 3, active_part: bool = False, seed: int = 0):
    """Random pictures of 16 × 8 pixels a party."""
    rng = torch.Generator().manual_seed(seed)
    holders = [f"passive_{i + 1}" for i in range(passive)]
    labels = torch.randint(0, 4, (rows,), generator=rng)
    own = torch.randint(0, 256, (rows, channels, 16, 8), generator=rng, dtype=torch.uint8) if active_part else None
    empty = Part(0)
    active = PartyData(
        "active", tuple(own.shape[1:]) if own is not None else (), Part(rows, own, labels=labels), empty, empty
    )
    parties = {"active": active}
    for name in holders:
        pixels = torch.randint(0, 256, (rows, channels, 16, 8), generator=rng, dtype=torch.uint8)
        parties[name] = PartyData(name, (channels, 16, 8), Part(rows, pixels), empty, empty)
    return VerticalDataset("noise", "active", parties, "classification", ("a", "b", "c", "d"), "width")


def table_data(passive: int, rows: int = 24, seed: int = 0, task: str = "classification"):
    """Random tables of five columns a party."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (rows,), generator=rng)
    target = labels if task == "classification" else torch.randn(rows, generator=rng)
    empty = Part(0)
    parties = {"active": PartyData("active", (), Part(rows, labels=target), empty, empty)}
    for i in range(passive):
        name = f"passive_{i + 1}"
        parties[name] = PartyData(name, (5,), Part(rows, torch.randn(rows, 5, generator=rng)), empty, empty)
    classes = ("x", "y", "z") if task == "classification" else ()
    return VerticalDataset("noise", "active", parties, task, classes, "features")  # type: ignore[arg-type]


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
