"""An epoch of split training across three sites on this machine, beside the same epoch in one process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from veracausa.bench.rows import Row, median
from veracausa.bench.wire_flare import make_identities
from veracausa.bench.wire_stations import HOST, Station, free_port, running, wait_for_port
from veracausa.config import Job, load_job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.events import Event
from veracausa.federation.members import NetworkOptions
from veracausa.runs import folder
from veracausa.training.split.program import PartyProgram, Schema, share
from veracausa.training.train import check_models, cpu_threads
from veracausa.wire.credentials import Credentials
from veracausa.wire.launch import Launch

MNIST = {
    "name": "mnist",
    "data": {"name": "mnist"},
    "partition": {"kind": "strips", "parts": [14, 14]},
    "model": {"name": "convnet", "cut": 6},
    "training": {"batch_size": 256, "optimizer": {"name": "adam", "lr": 1e-3}},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


def run(repeats: int, job: Mapping[str, Any] | None = None, scheme: str = "tcp") -> list[Row]:
    """Seconds of an epoch of MNIST (cut 6, batches of 256) with mutual TLS between three processes, and in threads.

    Each run trains for one epoch more than is measured: the first one warms up.
    """
    settings = load_job({**MNIST, **(job or {})}, [f"training.epochs={repeats + 1}"])
    dataset = load(settings)
    with TemporaryDirectory() as scratch:
        ours = _across_sites(settings, dataset, Path(scratch), scheme)
        theirs = _in_threads(settings, dataset, Path(scratch) / "threads")
    case = f"flare {scheme} epoch of {settings.data.name}"
    return [Row(case, median(ours), "threads in one process", median(theirs), {"epochs": len(ours)})]


class _Clock:
    """Hears the active party's events, and keeps when each epoch ended."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def __call__(self, event: Event) -> None:
        if event["event"] == "epoch":
            self._ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Of every epoch but the first."""
        return [end - begin for begin, end in zip(self._ends, self._ends[1:], strict=False)]


def _programs(job: Job, dataset: VerticalDataset, path: Path, shared: bool) -> dict[str, PartyProgram]:
    folder.create(path, job, {name: "active" if name == dataset.active else "passive" for name in dataset.parties})
    order = sorted(dataset.parties, key=lambda name: name == dataset.active)
    hand = share if shared else (lambda data: data)
    return {name: PartyProgram(job, hand(dataset.parties[name]), Schema.of(dataset), path) for name in order}


def _in_threads(job: Job, dataset: VerticalDataset, path: Path) -> list[float]:
    clock = _Clock()
    threads = cpu_threads(job, check_models(job, dataset))
    Launch("threads", job.runtime.timeout, cpu_threads=threads).run(_programs(job, dataset, path, False), clock)
    return clock.seconds()


def _across_sites(job: Job, dataset: VerticalDataset, scratch: Path, scheme: str) -> list[float]:
    identities = make_identities(scratch / "identities", tuple(dataset.parties))
    members: dict[str, dict[str, str]] = {name: {} for name in dataset.parties}
    members[dataset.active] = {"address": f"{HOST}:{free_port()}"}
    net = NetworkOptions.model_validate(
        {"name": "bench", "server": dataset.active, "scheme": scheme, "members": members}
    )
    programs = _programs(job, dataset, scratch / "sites", True)
    names = sorted(programs, key=lambda name: name != dataset.active)
    with running(*(_site(net, programs[name], identities[name]) for name in names), apart=False) as way:
        way.wait()
        return way.together()[0]


def _site(net: NetworkOptions, program: PartyProgram, credentials: Credentials) -> Station:
    return partial(_take_part, net, program, credentials)


def _take_part(net: NetworkOptions, program: PartyProgram, credentials: Credentials, pipe: Connection) -> None:
    from veracausa.wire.flare.cell import FlareSite
    from veracausa.wire.threads import share_one_heap

    share_one_heap()
    torch.set_num_threads(1)
    me, clock = program.data.name, _Clock()
    if me != net.server:
        wait_for_port(int(str(net.members[net.server].address).rsplit(":")[1]))
    with FlareSite(me, net, credentials) as site:
        link = site.connect([name for name in net.members if name != me], "bench", 60.0)
        pipe.send("ready")
        pipe.recv()
        program(link, clock)
        link.close()
        link.wait_for_others(60.0)
    pipe.send(clock.seconds())
    pipe.recv()
