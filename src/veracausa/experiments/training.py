"""Cells of experiments on defended training: one training, or one attack on it, and the grid that asks for them."""

from __future__ import annotations

import gc
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from veracausa.attacks import attacks
from veracausa.audit.settings import OVER_TRAINING, SNAPSHOTS
from veracausa.config import Job, load_job
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.experiment import COSINE, AttackSpec, TrainingExperiment, deep_merge
from veracausa.experiments.grid import Place
from veracausa.registry import Options
from veracausa.runs.folder import Run
from veracausa.runs.record import invre, number

TRAINING = "training"
"""The name of a place's training among its cells; every other cell is an attack by its own name."""


@dataclass(frozen=True)
class TrainingCell(Cell):
    """One training."""

    job: Job

    @cached_property
    def settings(self) -> dict[str, Any]:
        return {"job": _job_settings(self.job), "reading": None}

    @property
    def about(self) -> str:
        return _about(f"trained {self.job.defense.name}", self.job)

    @property
    def fatal(self) -> tuple[type[Exception], ...]:
        """Undefended, wrong input is not the defense's fault: data that are missing, a model that does not fit."""
        return (InputError,) if self.job.defense.name == "none" else ()

    def run(self, store: CellStore, observer: Observer) -> None:
        from veracausa.training.train import train

        _free_memory(self.job)
        path = store.work(self)
        begun = (path / "config.toml").is_file()
        if not begun:
            shutil.rmtree(path, ignore_errors=True)
        # The snapshots change nothing that a training finds, so they are no part of what it is known by.
        moments = tuple(sorted({*self.job.checkpoints.moments, *SNAPSHOTS}))
        kept = self.job.checkpoints.model_copy(update={"moments": moments})
        run = train(self.job.model_copy(update={"checkpoints": kept}), path, resume=begun, observer=observer)
        for folder in path.glob("parties/*/checkpoints"):
            shutil.rmtree(folder)  # the trained models stay; the way there takes most of the room
        store.keep(self, training_result(run))

    def trained(self, store: CellStore) -> Run | None:
        """The finished training; None where it is not there, or not any more."""
        path = store.work(self)
        if not (path / "config.toml").is_file():
            return None
        run = Run(path)
        models = [path / "parties" / name / "model.safetensors" for name in run.job.parties.passive]
        there = run.status.get("state") == "done" and run.summary and all(model.is_file() for model in models)
        return run if there else None


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
class AttackCell(Cell):
    """One attack on a training."""

    job: Job
    attack: ResolvedAttack

    @cached_property
    def settings(self) -> dict[str, Any]:
        attack = dict(vars(self.attack))
        if not attack["snapshots"]:
            del attack["snapshots"]  # what reads the last model alone is known by the same settings as ever
        return {"job": _job_settings(self.job), "reading": attack}

    @property
    def about(self) -> str:
        return _about(f"{self.attack.name} on {self.job.defense.name}", self.job)

    @property
    def needs(self) -> TrainingCell | None:
        """The training it reads; None for an attack that sits in on one of its own."""
        return None if self.attack.live else TrainingCell(self.job)

    def run(self, store: CellStore, observer: Observer) -> None:
        from veracausa.experiments.attack_cell import read

        started = time.perf_counter()
        _free_memory(self.job)
        training = self.needs
        if training is not None and training.trained(store) is None:
            with store.lock(training):
                if training.trained(store) is None:  # only its results came along: the model is needed again
                    training.run(store, observer)
        found, pictures = read(self, store)
        store.keep(self, {**found, "seconds": time.perf_counter() - started}, pictures)
        shutil.rmtree(store.work(self), ignore_errors=True)  # what an attack's own training left is of no more use


def _job_settings(job: Job) -> dict[str, Any]:
    settings = job.model_dump(mode="json")
    settings.pop("name")
    return settings


def _about(what: str, job: Job) -> str:
    return f"{what}, {job.data.name}, cut {job.model.cut}, seed {job.seed}"


def _free_memory(job: Job) -> None:
    """Give back what the cell before held: many follow each other in one process."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if job.runtime.compile:
        torch._dynamo.reset()  # it compiles one function for so many objects only, then silently stops


def training_result(run: Run) -> dict[str, Any]:
    """What a table needs of a training: scores, the risk meter's InvRE, the curves, notes on the data."""
    summary = run.summary
    found: dict[str, Any] = {}
    test = summary.get("test") or summary.get("validation") or {}
    for score in ("accuracy", "loss"):
        if number(test.get(score)) is not None:
            found[score] = {"mean": test[score]}
    risks = [party.get("risk") or {} for party in summary.get("parties", {}).values()]
    if known := [value for risk in risks if (value := invre(risk)) is not None]:
        found["invre"] = {"mean": max(known), "exact": 1.0}
    reasons = [str(risk["unavailable"]).rstrip(".") for risk in risks if "unavailable" in risk]
    epochs = [record for record in run.metrics if record.get("event") == "epoch"]
    curves = [{"epoch": record.get("epoch"), **(record.get("test") or {})} for record in epochs if record.get("test")]
    return {
        "scores": found,
        "unavailable": {"invre": f"InvRE: {reasons[0]}"} if reasons else {},
        "curves": curves,
        "seconds": summary.get("seconds"),
        "notes": summary.get("notes", []),
        "environment": json.loads((run.path / "environment.json").read_text(encoding="utf-8")),
    }


def training_places(
    experiment: TrainingExperiment, panels: Sequence[str], overrides: Sequence[str] = ()
) -> Iterator[Place]:
    """All places of these panels; `overrides` (`a.b=c`) are laid over every job."""
    for panel in panels:
        for row in experiment.rows_of(panel):
            for at in experiment.axis.values if experiment.axis else (None,):
                for seed in range(experiment.seeds_of.get(row, experiment.seeds)):
                    tree = job_tree(experiment, panel, row, at, seed)
                    where = f"{experiment.name}, {experiment.defenses[row].label}"
                    cells: dict[str, Cell] = {TRAINING: TrainingCell(checked_job(tree, overrides, where))}
                    for name in experiment.attacks_used:
                        spec = experiment.attacks.get(name, AttackSpec())
                        job = checked_job(deep_merge(tree, spec.job if name != COSINE else {}), overrides, where)
                        cells[name] = AttackCell(job, _resolved(name, spec, where))
                    yield Place(panel, row, at, seed, cells)


def job_tree(experiment: TrainingExperiment, panel: str, row: str, at: float | None, seed: int) -> dict[str, Any]:
    """The job at one place: the common one, the panel's, what the scale wants everywhere, the axis, the defense."""
    tree = {**experiment.job_of(panel), "name": "cell", "seed": seed, "defense": dict(experiment.defenses[row].defense)}
    if experiment.axis is not None and at is not None:
        *path, last = experiment.axis.setting.split(".")
        node: dict[str, Any] = {last: int(at) if float(at).is_integer() and last == "cut" else at}
        for part in reversed(path):
            node = {part: node}
        tree = deep_merge(tree, node)
    return tree


def _resolved(name: str, spec: AttackSpec, where: str) -> ResolvedAttack:
    if name == COSINE:
        return ResolvedAttack(COSINE, {}, spec.auxiliary, spec.victims, spec.parties, None, False)
    try:
        options = attacks.options(name).model_validate({"name": name, **spec.settings})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(("attacks", name, "settings", *map(str, problem["loc"])))
        raise InputError(f"{where}: {place}: {problem['msg']}") from None
    return ResolvedAttack(
        name,
        options.model_dump(mode="json"),
        spec.auxiliary,
        spec.victims,
        spec.parties,
        spec.per_class,
        spec.sets,
        spec.snapshots if name in OVER_TRAINING else (),
    )


def checked_job(tree: dict[str, Any], overrides: Sequence[str], where: str) -> Job:
    """The job of these settings, which may name models of the registry alone."""
    try:
        job = load_job(tree, overrides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if ":" in job.model.name:
        raise InputError(f"{where}: model.name = {job.model.name!r}: an experiment trains models of the registry alone")
    return job
