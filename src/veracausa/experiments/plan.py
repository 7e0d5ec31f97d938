"""The grid of an experiment as cells: a training, or one attack on it. A cell is known by the hash of its settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from veracausa.attacks import attacks
from veracausa.config import Job, load_job
from veracausa.errors import InputError
from veracausa.experiments.discovery.cells import DiscoveryCell
from veracausa.experiments.experiment import COSINE, AttackSpec, Experiment, deep_merge
from veracausa.registry import Options


@dataclass(frozen=True)
class ResolvedAttack:
    """An attack as it is asked for, every setting resolved."""

    name: str
    settings: Mapping[str, Any]
    auxiliary: int
    victims: int
    parties: tuple[str, ...]
    per_class: int | None
    sets: bool
    snapshots: tuple[float, ...] = ()
    """Shares of the training before its end at which it reads, too."""

    @property
    def live(self) -> bool:
        """Whether it sits in on a training of its own, so that it needs no other."""
        return self.name != COSINE and bool(getattr(attacks.get(self.name), "live", False))

    @property
    def options(self) -> Options:
        return attacks.options(self.name).model_validate(dict(self.settings))


@dataclass(frozen=True)
class Cell:
    """One training, or one attack on it."""

    job: Job
    reading: ResolvedAttack | None = None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that what it finds depends on."""
        job = self.job.model_dump(mode="json")
        job.pop("name")
        reading = None if self.reading is None else dict(vars(self.reading))
        if reading is not None and not reading["snapshots"]:
            del reading["snapshots"]  # what reads the last model alone is known by the same settings as ever
        return {"job": job, "reading": reading}

    @cached_property
    def key(self) -> str:
        written = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(written.encode()).hexdigest()[:20]

    @property
    def training(self) -> Cell | None:
        """The training it reads; None for a training, and for an attack that has one of its own."""
        return None if self.reading is None or self.reading.live else Cell(self.job)

    @property
    def about(self) -> str:
        """What it is, in a line of progress."""
        job, defense = self.job, self.job.defense.name
        what = f"trained {defense}" if self.reading is None else f"{self.reading.name} on {defense}"
        return f"{what}, {job.data.name}, cut {job.model.cut}, seed {job.seed}"


AnyCell = Cell | DiscoveryCell


@dataclass(frozen=True)
class GridPoint:
    """One place of the grid: a row of a panel, at one value of the axis, with one seed."""

    panel: str
    row: str
    at: float | None
    seed: int
    training: Cell
    readings: Mapping[str, Cell]

    @property
    def cells(self) -> list[Cell]:
        return [self.training, *self.readings.values()]


def points(experiment: Experiment, panels: Sequence[str], overrides: Sequence[str] = ()) -> Iterator[GridPoint]:
    """All places of these panels; `overrides` (`a.b=c`) are laid over every job."""
    for panel in panels:
        for row in experiment.rows_of(panel):
            for at in experiment.axis.values if experiment.axis else (None,):
                for seed in range(experiment.seeds_of.get(row, experiment.seeds)):
                    tree = job_tree(experiment, panel, row, at, seed)
                    where = f"{experiment.name}, {experiment.defenses[row].label}"
                    yield GridPoint(
                        panel,
                        row,
                        at,
                        seed,
                        Cell(_job(tree, overrides, where)),
                        {
                            name: _reading(name, experiment.attacks.get(name, AttackSpec()), tree, overrides, where)
                            for name in experiment.attacks_used
                        },
                    )


def job_tree(experiment: Experiment, panel: str, row: str, at: float | None, seed: int) -> dict[str, Any]:
    """The job at one place: the common one, the panel's, what the scale wants everywhere, the axis, the defense."""
    tree = {**experiment.job_of(panel), "name": "cell", "seed": seed, "defense": dict(experiment.defenses[row].defense)}
    if experiment.axis is not None and at is not None:
        *path, last = experiment.axis.setting.split(".")
        node: dict[str, Any] = {last: int(at) if float(at).is_integer() and last == "cut" else at}
        for part in reversed(path):
            node = {part: node}
        tree = deep_merge(tree, node)
    return tree


def _reading(name: str, spec: AttackSpec, tree: dict[str, Any], overrides: Sequence[str], where: str) -> Cell:
    if name == COSINE:
        reading = ResolvedAttack(COSINE, {}, spec.auxiliary, spec.victims, spec.parties, None, False)
        return Cell(_job(tree, overrides, where), reading)
    try:
        options = attacks.options(name).model_validate({"name": name, **spec.settings})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(("attacks", name, "settings", *map(str, problem["loc"])))
        raise InputError(f"{where}: {place}: {problem['msg']}") from None
    reading = ResolvedAttack(
        name,
        options.model_dump(mode="json"),
        spec.auxiliary,
        spec.victims,
        spec.parties,
        spec.per_class,
        spec.sets,
        spec.snapshots if attacks.get(name).snapshots else (),
    )
    return Cell(_job(deep_merge(tree, spec.job), overrides, where), reading)


def _job(tree: dict[str, Any], overrides: Sequence[str], where: str) -> Job:
    try:
        job = load_job(tree, overrides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if ":" in job.model.name:
        raise InputError(f"{where}: model.name = {job.model.name!r}: an experiment trains models of the registry alone")
    return job
