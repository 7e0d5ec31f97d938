"""Times every defense at one passive party: forward and backward of an exchange, and what it makes once before.

Every time stands beside that of the same exchange without a defense, measured in turns on the same machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from veracausa.config import Job, load_job
from veracausa.data.load import load
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.defenses import defenses
from veracausa.defenses.protocols import Prepares
from veracausa.errors import InputError
from veracausa.models.runner import choose_device, fetch_rows
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema

# The time of an exchange does not depend on the surrogates' values; a kind that needs no training is quick to make.
_SURROGATE = {"name": "permuted_ab"}


@dataclass(frozen=True)
class TimeRow:
    """Seconds of one case beside those of what it is measured against. A `ratio` below 1 means that it is faster."""

    case: str
    seconds: float
    against: str
    against_seconds: float
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further numbers that are shown beside it."""

    @property
    def ratio(self) -> float:
        return self.seconds / self.against_seconds

    def as_dict(self) -> dict[str, Any]:
        named = {
            "case": self.case,
            "seconds": self.seconds,
            "against": self.against,
            "against_seconds": self.against_seconds,
            "ratio": self.ratio,
        }
        return {**named, **self.extra}


def median(seconds: Sequence[float]) -> float:
    """The middle of several measurements: one disturbed round does not move it."""
    return float(statistics.median(seconds))


def settle(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def data_or_noise(job: Job, rows: int, shape: tuple[int, int, int]) -> VerticalDataset:
    """The job's pictures where they are at hand, else noise of their shape: times do not depend on the values."""
    try:
        return load(job)
    except InputError:
        rng = torch.Generator().manual_seed(0)
        channels, height, width = shape
        images = torch.randint(0, 256, (rows, *shape), generator=rng, dtype=torch.uint8)
        labels = torch.randint(0, 10, (rows,), generator=rng)
        empty, half = Part(0), width // 2
        halves = {"passive_1": images[..., :half], "passive_2": images[..., half:]}
        parties = {"active": PartyData("active", (), Part(rows, labels=labels), empty, empty)}
        for name, strip in halves.items():
            part = Part(rows, strip)
            parties[name] = PartyData(name, (channels, height, half), part, replace(part, length=0), empty)
        return VerticalDataset("noise", "active", parties, "classification", tuple("0123456789"), "width")


CIFAR10: Mapping[str, Any] = {
    "data": {"name": "cifar10", "train": 20_000},
    "model": {"name": "resnet18", "cut": 6},
    "training": {"batch_size": 128, "optimizer": {"name": "sgd", "lr": 0.05, "weight_decay": 5e-4}},
}
CIFAR10_ROWS, CIFAR10_SHAPE = 20_000, (3, 32, 32)


def timed_job(device: str, precision: str, compiled: bool, width: int | None) -> Job:
    """A ResNet-18 on CIFAR-10, cut at 6: what every defense is timed on. A CPU gets a narrow one."""
    on_gpu = choose_device(device).type == "cuda"
    return load_job(
        {
            **CIFAR10,
            "model": {"name": "resnet18", "cut": 6, "width": width or (64 if on_gpu else 16)},
            "risk": {"every": 0},
            "runtime": {
                "device": device,
                "precision": precision,
                "channels_last": precision == "bf16",
                "compile": compiled,
                "timeout": 600,
            },
        }
    )


def time_defenses(
    names: Sequence[str] | None = None, precision: str = "fp32", compiled: bool = False, width: int | None = None
) -> list[TimeRow]:
    """Every defense, or those of `names`, on this machine."""
    for name in names or ():
        defenses.get(name)
    job = timed_job("auto", precision, compiled, width)
    dataset = data_or_noise(job, CIFAR10_ROWS, CIFAR10_SHAPE)
    return defense_rows(job, dataset, Effort.on(choose_device("auto").type == "cuda"), names)


def time_defenses_quickly(names: Sequence[str] | None = None, width: int | None = None) -> list[TimeRow]:
    """The same rows of a tiny network on a little noise on the CPU, to see that everything runs."""
    job = load_job(
        {
            "data": {"name": "images", "path": "there is no such folder, so noise is taken", "size": 32},
            "model": {"name": "resnet18", "cut": 6, "width": width or 2},
            "training": {"batch_size": 16},
            "risk": {"every": 0},
            "runtime": {"device": "cpu"},
        }
    )
    effort = replace(Effort.on(gpu=False), repeats=1, warm_up=0, enough=0.0)
    # Without what is made once before the training: that alone would take longer than all the rest.
    return defense_rows(job, data_or_noise(job, 64, CIFAR10_SHAPE), effort, names, offline=False)


@dataclass(frozen=True)
class Variant:
    """One way to run a defense that is worth timing by itself."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: bool = False
    """Whether its forward takes so long that a few rows are timed and a batch is reckoned from them. Its backward is
    that of its quicker sibling, and is not reckoned: what noise there is would be multiplied."""
    once_an_epoch: bool = False
    """Whether one exchange an epoch takes longer, so that its share falls on every other."""
    long: bool = False
    """Whether it is left out on a CPU, where it would take as long as all others."""


def _causshield(long: bool = False, **settings: Any) -> Variant:
    amortised = settings.get("scope") in ("offset", "epoch")
    chosen = {"profile": "paper_repaired", "schedule": "const", "surrogate": _SURROGATE, **settings}
    return Variant(chosen, once_an_epoch=amortised, long=long)


VARIANTS: Mapping[str, Mapping[str, Variant]] = {
    "causshield": {
        "M = 30": _causshield(iterations=30),
        "M = 20": _causshield(long=True, iterations=20),
        "M = 1": _causshield(iterations=1),
        "scope offset, M = 10 (recommended)": _causshield(iterations=10, scope="offset"),
        "scope epoch, M = 30": _causshield(long=True, iterations=30, scope="epoch"),
    },
    "soteria": {
        "estimated": Variant({"norms": "hutchinson"}),
        "exact": Variant({"norms": "exact"}, rows=True),
    },
    "invl_dnp": {
        "one product": Variant({"norms": "product"}),
        "estimated": Variant({"norms": "hutchinson"}),
        "exact": Variant({"norms": "exact"}, rows=True),
    },
    "invl_enp": {
        "one product": Variant({"form": "product"}),
        "SVD": Variant({"form": "svd"}, rows=True),
    },
    "noisy_bottleneck": {
        "": Variant(),
        "with decomposition": Variant({"decomposition": 1.0, "surrogate": _SURROGATE}),
    },
}
"""Where a defense has several ways to run; every other is timed as it comes."""


@dataclass(frozen=True)
class Once:
    """What a defense makes before the first exchange, timed for one epoch of its training."""

    settings: Mapping[str, Any]
    epochs: int
    """What one would train; the rest is reckoned."""


OFFLINE: Mapping[str, Mapping[str, Once]] = {
    "causshield": {"lab surrogates, 20 epochs": Once({"surrogate": {"name": "lab", "epochs": 1}}, 20)},
    "ressfl": {
        "pretraining, 10 epochs": Once({"mode": "transfer", "source": {"name": "cifar10"}, "source_epochs": 1}, 10)
    },
}


def variants_of(name: str) -> Mapping[str, Variant]:
    """The ways to run a defense that are timed, by name."""
    return VARIANTS.get(name, {"": Variant()})


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    repeats: int
    warm_up: int
    enough: float
    """Seconds after which one measurement is as good as a median of several."""
    rows: int
    """Of a batch, for those that are reckoned from a few."""
    offline_rows: int
    """Training rows that what is made once is made of, and twice as many; the rest is reckoned."""
    long: bool
    """Whether there is time for everything."""

    @classmethod
    def on(cls, gpu: bool) -> Effort:
        """As many repeats as give a steady median on a GPU; on a CPU what two minutes allow."""
        return cls(20, 5, float("inf"), 16, 4096, True) if gpu else cls(5, 1, 1.5, 2, 64, False)


def defense_rows(
    job: Job, dataset: VerticalDataset, effort: Effort, names: Sequence[str] | None = None, offline: bool = True
) -> list[TimeRow]:
    """A row for every defense and way to run it beside the same exchange undefended.

    With `offline`, rows for what is made once before the first exchange follow.
    """
    bench = _Bench(job, dataset, effort)
    wanted = [name for name in (defenses.names() if names is None else names) if name != "none"]
    exchanges = [
        bench.exchange(f"{name}, {way}" if way else name, {"name": name, **variant.settings}, variant)
        for name in wanted
        for way, variant in variants_of(name).items()
        if effort.long or not variant.long
    ]
    if not offline:
        return exchanges
    once_before = [
        row
        for name in wanted
        for what, once in OFFLINE.get(name, {}).items()
        if (row := bench.offline(f"{name}, {what}", {"name": name, **once.settings}, once.epochs)) is not None
    ]
    return [*exchanges, *once_before]


class _Bench:
    """One passive party of a job, timed under one defense after the other."""

    def __init__(self, job: Job, dataset: VerticalDataset, effort: Effort) -> None:
        self.job, self.effort = job, effort
        self.data = dataset.parties[dataset.passive[0]]
        self.outputs = Schema.of(dataset).outputs
        self.batch = job.training.batch_size
        self.steps = -(-len(self.data.train) // self.batch)
        self.plain = self._made({"name": "none"}, self.batch)

    def exchange(self, label: str, defense: Mapping[str, Any], variant: Variant) -> TimeRow:
        """Forward and backward with this defense; a difference below zero is noise, and stands as zero."""
        batch = self.effort.rows if variant.rows else self.batch
        plain = self._made({"name": "none"}, batch) if variant.rows else self.plain
        own = self._made(defense, batch)
        if variant.once_an_epoch:
            own.once()
        usual, taken = _alternating((plain, own), self.effort)
        extra = [max(0.0, self.batch / batch * (b - a)) for a, b in zip(usual, taken, strict=True)]
        details: dict[str, float] = {}
        if variant.once_an_epoch:
            details["once an epoch ms"] = 1e3 * max(0.0, own.again_from_the_start() - taken[0])
            extra[0] += details["once an epoch ms"] / 1e3 / self.steps
        if variant.rows:
            extra[1] = 0.0
            label += f" (reckoned from {batch} of {self.batch} rows)"
            (usual,) = _alternating((self.plain,), self.effort)
        base = sum(usual)
        details = {
            "extra forward ms": 1e3 * extra[0],
            "extra backward ms": 1e3 * extra[1],
            "extra s an epoch": self.steps * sum(extra),
            **details,
        }
        return TimeRow(f"defense {label}", base + sum(extra), "no defense", base, details)

    def offline(self, label: str, defense: Mapping[str, Any], epochs: int) -> TimeRow | None:
        """What is made once, beside an undefended epoch of this party; None where its data is not at hand.

        From one epoch on two small numbers of rows, so that what does not grow with them is not multiplied by them.
        """
        whole, few = len(self.data.train), min(self.effort.offline_rows, len(self.data.train) // 2)
        try:
            small, large = (self._prepared(defense, rows) for rows in (few, 2 * few))
        except InputError:
            return None
        seconds = epochs * (small + max(0.0, large - small) / few * (whole - few))
        (usual,) = _alternating((self.plain,), self.effort)
        case = f"once: {label}, {whole} rows (reckoned from {2 * few})"
        return TimeRow(case, seconds, "an epoch, no defense", self.steps * sum(usual))

    def _prepared(self, defense: Mapping[str, Any], rows: int) -> float:
        tree = dict(defense)
        if "source" in tree:
            tree["source"] = {**tree["source"], "train": rows}
        made = self._made(tree, self.batch, rows)
        # What was made before is kept on disk; it says what it took then.
        checks = made.defense.quality_checks() if isinstance(made.defense, Prepares) else {}
        return float(checks.get("seconds", made.prepared))

    def _made(self, defense: Mapping[str, Any], batch: int, rows: int | None = None) -> _Exchange:
        tree = self.job.model_dump(mode="json", exclude_none=True)
        job = load_job({**tree, "defense": dict(defense)})
        train = self.data.train
        assert train.features is not None
        # So many that no measurement begins another epoch.
        count = min(rows or batch * (self.effort.warm_up + self.effort.repeats + 3), len(train))
        few = replace(train, length=count, features=train.features[:count], index=None)
        return _Exchange(job, replace(self.data, train=few), self.outputs, batch)


class _Exchange:
    """One party with one defense, and a batch of its rows."""

    def __init__(self, job: Job, data: PartyData, outputs: int, batch: int) -> None:
        party = PassiveParty(job, data, outputs)
        self.defense, self.device = party.defense, party.device
        party.bottom.train()
        started = time.perf_counter()
        if isinstance(self.defense, Prepares):
            self.defense.prepare(party.parts["train"])
        settle(self.device)
        self.prepared = time.perf_counter() - started
        self.ids = torch.arange(min(batch, len(data.train)))
        self.x = fetch_rows(party.parts["train"], self.ids, job.runtime)
        self.gradient = torch.full((len(self.ids), *party.shape), 1e-4, device=self.device)

    def once(self) -> tuple[float, float]:
        """Seconds of one forward and of its backward, each until the device has done it."""
        settle(self.device)
        started = time.perf_counter()
        _, context = self.defense.forward(self.x, self.ids, 0)
        settle(self.device)
        sent = time.perf_counter()
        self.defense.backward(context, self.gradient.to(context.payload.dtype))
        settle(self.device)
        return sent - started, time.perf_counter() - sent

    def again_from_the_start(self) -> float:
        """Seconds of the first forward of an epoch, in which what serves the whole epoch is made."""
        self.defense.adapted_epoch = -1  # type: ignore[attr-defined]
        return self.once()[0]


def _alternating(sides: Sequence[_Exchange], effort: Effort) -> list[list[float]]:
    """Medians of forward and backward of each side, in turns: a machine that slows down slows all."""
    taken: list[list[tuple[float, float]]] = [[] for _ in sides]
    spent = 0.0
    for number in range(effort.warm_up + effort.repeats):
        for side, times in zip(sides, taken, strict=True):
            times.append(side.once())
            spent += sum(times[-1])
        if spent > effort.enough and (number or spent > 2 * effort.enough):
            break
    kept = [times[effort.warm_up :] or times[-1:] for times in taken]
    return [[median([measured[part] for measured in times]) for part in (0, 1)] for times in kept]
