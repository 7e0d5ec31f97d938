"""A cell that trains a job, and what a table needs of the training."""

from __future__ import annotations

import gc
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from veracausa.audit.settings import SNAPSHOTS
from veracausa.config import Job, TranscriptOptions
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.table import DIAGNOSTICS, TRAINING_SECONDS
from veracausa.runs.folder import Run
from veracausa.runs.record import invre, mapping, number

TRAINING = "training"
"""The name of a place's training among its cells; every other cell is an attack by its own name."""


@dataclass(frozen=True)
class TrainingCell(Cell):
    """One training."""

    job: Job

    @cached_property
    def settings(self) -> dict[str, Any]:
        return {"job": job_settings(self.job), "reading": None}

    @property
    def about(self) -> str:
        return about_job(f"trained {self.job.defense.name}", self.job)

    @property
    def fatal(self) -> tuple[type[Exception], ...]:
        """Undefended, wrong input is not the defense's fault: data that are missing, a model that does not fit."""
        return (InputError,) if self.job.defense.name == "none" else ()

    def run(self, store: CellStore, observer: Observer) -> None:
        from veracausa.training.train import train

        free_memory(self.job)
        path = store.work(self)
        begun = (path / "config.toml").is_file()
        if not begun or self._unrecorded(path):
            begun = False
            shutil.rmtree(path, ignore_errors=True)
        # The snapshots change nothing that a training finds, so they are no part of what it is known by.
        moments = tuple(sorted({*self.job.checkpoints.moments, *SNAPSHOTS}))
        kept = self.job.checkpoints.model_copy(update={"moments": moments})
        run = train(self.job.model_copy(update={"checkpoints": kept}), path, resume=begun, observer=observer)
        for folder in path.glob("parties/*/checkpoints"):
            shutil.rmtree(folder)  # the trained models stay; the way there takes most of the room
        found = training_result(run)
        store.keep(self, {**found, "notes": [*found["notes"], *_how(self.job)]})

    def trained(self, store: CellStore) -> Run | None:
        """The finished training; None where it is not there, or not any more."""
        path = store.work(self)
        if not (path / "config.toml").is_file():
            return None
        run = Run(path)
        models = [path / "parties" / name / "model.safetensors" for name in run.job.parties.passive]
        there = run.status.get("state") == "done" and run.summary and all(model.is_file() for model in models)
        return run if there and not self._unrecorded(path) else None

    def _unrecorded(self, path: Path) -> bool:
        """Whether what crossed is wanted, and the training there did not keep it."""
        return self.job.transcript.record and not any(path.glob("parties/*/transcript"))


def job_settings(job: Job, without: Any = frozenset({"name"})) -> dict[str, Any]:
    """What a cell of this job is known by: all of it, without what makes no difference (as pydantic's `exclude`).

    Settings that came after the first cells count where they say something: cells that were run before are found again.
    """
    settings = job.model_dump(mode="json", exclude=without)
    if job.training.protocol == "split":
        for section in (settings, settings["training"]):
            for name in ("blind", "features", "protocol"):
                section.pop(name, None)
    if settings.get("transcript", {}).get("record"):  # what is kept changes nothing that a training finds
        settings["transcript"] = TranscriptOptions().model_dump(mode="json")
    for name in ("engine", "scheduler", "workers"):
        if getattr(job.runtime, name) == type(job.runtime).model_fields[name].default:
            settings["runtime"].pop(name)
    defense = settings.get("defense", {})
    # Surrogates that are sent: the bottom learns from them otherwise since there are `players`.
    if defense.get("players") == "together" and defense.get("transmit") == "raw":
        del defense["players"]
    if defense.get("profile") == "paper_repaired":
        defense["profile"] = "paper"
    return settings


def about_job(what: str, job: Job) -> str:
    """What is done with which job, in a line of progress."""
    return f"{what}, {job.data.name}, cut {job.model.cut}, seed {job.seed}"


def free_memory(job: Job) -> None:
    """Give back what the cell before held: many follow each other in one process."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if job.runtime.compile:
        torch._dynamo.reset()  # it compiles one function for so many objects only, then silently stops


def _how(job: Job) -> list[str]:
    from veracausa.models.runner import may_compile

    told = "a training ran uncompiled, because compiled it ended the GPU's context: its seconds are no measure"
    return [told] if job.runtime.compile and not may_compile() else []


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
    told = [mapping(party.get("diagnostics")) for party in summary.get("parties", {}).values()]
    for name in DIAGNOSTICS:
        if values := [value for own in told if (value := number(own.get(name))) is not None]:
            found[name] = {"mean": fmean(values)}
    if (seconds := number(summary.get("seconds"))) is not None:
        found[TRAINING_SECONDS] = {"mean": seconds}
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
