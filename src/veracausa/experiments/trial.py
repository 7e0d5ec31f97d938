"""One trial of a sweep: a cell that trains the job with one setting of a defense and attacks what its parties send.

Its run stays in the folder of the sweep, under the hash of what was asked.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from veracausa.audit.job import audit_run
from veracausa.audit.settings import SNAPSHOTS, AuditSettings
from veracausa.audit.snapshots import LAST, widest
from veracausa.config import Job
from veracausa.defenses.protocols import is_stochastic
from veracausa.errors import VeracausaError
from veracausa.events import Event, Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.frontier import Trial
from veracausa.experiments.training_cell import job_settings
from veracausa.registry import Options
from veracausa.runs.folder import Run, write_json
from veracausa.training.split.halves import make_defense
from veracausa.training.train import train

UNDEFENDED = "none"
ATTACK_SCORES = ("mse", "psnr", "ssim", "lpips")
TASK_SCORES = ("accuracy", "balanced_accuracy", "auc")
QUICK = ("epochs=12", "channels=16", "blocks=1")
"""Decoders for a first look at small data: weaker than those that figures are compared by."""
QUICK_SNAPSHOTS = (0.0,)
"""The first exchange: where most defenses have not learnt to hide anything yet."""


@dataclass(frozen=True)
class Attackers:
    """How every trial is attacked; the same for all, or the figures could not be compared."""

    auxiliary: int = 4000
    victims: int = 2000
    parties: tuple[str, ...] = ()
    """Whose payloads; empty: every passive party's, and the worst counts."""
    overrides: tuple[str, ...] = ()
    """Settings of the decoders, as `epochs=12`, for the inverse network and for averaging alike."""
    snapshots: tuple[float, ...] = SNAPSHOTS
    """At which shares of the training its model is kept and attacked, beside the end; 0 is the first exchange."""

    def settings(self, names: Sequence[str]) -> list[str]:
        return [f"{name}.{setting}" for name in names for setting in self.overrides]


@dataclass(frozen=True)
class Setting:
    """A defense with its options, and the cut it defends."""

    options: Options
    cut: int

    @property
    def defense(self) -> str:
        return self.options.name

    @property
    def values(self) -> dict[str, Any]:
        """The swept settings and their values."""
        return {name: getattr(self.options, name) for name in type(self.options).swept}

    def describe(self, with_cut: bool = False) -> str:
        """In words: `epsilon = 2.0, cut 6`."""
        words = [
            f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
            for name, value in self.values.items()
        ]
        return ", ".join([*words, *([f"cut {self.cut}"] if with_cut else [])])

    def job(self, base: Job, seed: int) -> Job:
        """The base job with this defense at every passive party, this cut and this seed; what a trial trains."""
        party = {name: own.model_copy(update={"defense": None}) for name, own in base.party.items()}
        model = base.model.model_copy(update={"cut": self.cut})
        changed = {"defense": self.options, "party": party, "model": model, "seed": seed}
        return base.model_copy(update=changed)


class TrialStore(CellStore):
    """The trials in the folder of a sweep: each is a run with its result beside it, and has a report of its own."""

    def record(self, cell: Cell) -> Path:
        return self.work(cell) / "trial.json"

    def work(self, cell: Cell) -> Path:
        return self.root / "trials" / cell.key

    @contextmanager
    def lock(self, cell: Cell) -> Iterator[None]:
        """A sweep has its folder for itself."""
        yield


@dataclass(frozen=True)
class TrialCell(Cell):
    """A trial: what to train, and how to attack it."""

    setting: Setting
    seed: int
    job: Job
    attacks: tuple[str, ...]
    attackers: Attackers
    asked: Mapping[str, Any]
    """What it is known by."""

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.asked)

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def about(self) -> str:
        return f"{self.setting.defense} {self.setting.describe(True)}, seed {self.seed}"

    @property
    def fatal(self) -> tuple[type[Exception], ...]:
        """An undefended job that fails is the user's to mend, not a reason to pass over a setting."""
        return (VeracausaError, RuntimeError) if self.setting.defense == UNDEFENDED else ()

    def result(self, store: CellStore) -> dict[str, Any] | None:
        """What an earlier sweep found in just the same trial, if it finished it."""
        known = store.read(self)
        if known is None or known["attackers"] != json.loads(json.dumps(asdict(self.attackers))):
            return None
        found: dict[str, Any] = known["found"]
        # Trials of an earlier version kept the accuracy alone; the run knows the rest.
        return found if "task" in found else {"task": _task_scores(Run(store.work(self)).summary), **found}

    def event(self, kept: bool) -> Event:
        """What an observer hears when the trial begins, or is kept from before."""
        setting = self.setting
        named: Event = {"event": "trial", "defense": setting.defense, "setting": setting.describe(), "cut": setting.cut}
        return {**named, "seed": self.seed, "kept": kept}

    def run(self, store: CellStore, observer: Observer) -> None:
        observer(self.event(kept=False))
        found = self.measure(store.work(self), observer)
        store.record(self).parent.mkdir(parents=True, exist_ok=True)
        write_json(store.record(self), {"attackers": asdict(self.attackers), "found": found})

    def measure(self, path: Path, observer: Observer) -> dict[str, Any]:
        """Train and attack it, from where it was broken off if it was."""
        started, asked = time.monotonic(), self.attackers
        run = train(self.job, path, resume=(path / "config.toml").is_file(), observer=observer)
        overrides = asked.settings(self.attacks)
        settings = AuditSettings(self.attacks, overrides, asked.auxiliary, asked.victims, asked.parties or None)
        audit_run(run, settings, observer=observer, resume=True)
        run.report()
        for sent in (path / "parties").glob("*/transcript"):
            shutil.rmtree(sent)  # as large as all that ever crossed, and the attack that needs it is done
        summary = run.summary
        entries = {name: summary["attacks"][name] for name in self.attacks}
        strongest = max(entries, key=lambda name: entries[name]["leakage"])
        headline = entries[strongest]
        return {
            "accuracy": float(summary["accuracy"]),
            "leakage": {name: float(entry["leakage"]) for name, entry in entries.items()},
            "seconds": time.monotonic() - started,
            "task": _task_scores(summary),
            "scores": {name: headline[name] for name in ATTACK_SCORES if name in headline},
            "coverage": widest(entry["coverage"] for entry in entries.values()),
            "party": headline["party"],
            "at": headline["at"],
            "end_leakage": float(headline["end"]["leakage"]),
            "works": None if headline["works"] is None else any(entry["works"] for entry in entries.values()),
        }


def plan_trial(setting: Setting, seed: int, base: Job, attackers: Attackers) -> TrialCell:
    """The trial of a setting, attacked by the inverse network, and by averaging too where the defense is random."""
    job, attacks = setting.job(base, seed), ["inverse"]
    job = job.model_copy(update={"name": f"{setting.defense} {setting.describe(True)}"})
    free: Any = {"runtime": {"link", "timeout", "max_message_mib"}, "checkpoints": True}
    # Of a training that kept no snapshots only the last model could be attacked: another one is needed.
    asked: dict[str, Any] = {"job": job_settings(job, free), "snapshots": attackers.snapshots}
    kept = job.checkpoints.model_copy(update={"moments": attackers.snapshots})
    job = job.model_copy(update={"checkpoints": kept})
    if is_stochastic(make_defense(job, job.parties.passive[0])):
        attacks.append("averaging")
        record = {"record": True, "victims": attackers.parties}
        job = job.model_copy(update={"transcript": job.transcript.model_copy(update=record)})
        asked["attackers"] = asdict(attackers)  # what crossed is not kept, so another attack needs another run
    return TrialCell(setting, seed, job, tuple(attacks), attackers, asked)


def _task_scores(summary: Mapping[str, Any]) -> dict[str, float]:
    measured = summary.get("test") or summary.get("validation") or {}
    return {name: float(measured[name]) for name in TASK_SCORES if name in measured}


@dataclass(frozen=True)
class TrialResult:
    """A finished trial: its setting, its run, what it scored and what could be read."""

    setting: Setting
    seed: int
    run: Path
    accuracy: float
    leakage: Mapping[str, float]
    seconds: float
    scores: Mapping[str, float] = field(default_factory=dict)
    """Of the strongest attack: mse, psnr, ssim, …"""
    task: Mapping[str, float] = field(default_factory=dict)
    """Test scores of the task: accuracy, balanced accuracy, AUC where it is defined."""
    coverage: str = LAST
    """How much of the training the leakage is of; older records are of the last model."""
    party: str = ""
    """Whose rows the strongest attack reads best."""
    at: str = ""
    """When."""
    end_leakage: float | None = None
    """What the strongest attack reads from the last model."""
    works: bool | None = None
    """Of an undefended trial: whether some attack surely beats the blind guess."""

    def score(self, name: str) -> float:
        """A test score of the task."""
        return self.accuracy if name == "accuracy" else self.task[name]

    def trial(self, with_cut: bool, score: str = "accuracy") -> Trial:
        words = self.setting.describe(with_cut)
        return Trial(self.setting.defense, words, self.seed, self.score(score), self.leakage)
