"""One trial of a sweep: a run, trained and attacked, in a folder that is named after what was asked."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from veracausa.audit.job import audit_run
from veracausa.audit.settings import SNAPSHOTS, AuditSettings
from veracausa.audit.snapshots import LAST, widest
from veracausa.config import Job
from veracausa.defenses.protocols import is_stochastic
from veracausa.events import Observer
from veracausa.experiments.frontier.pareto import Trial
from veracausa.experiments.frontier.plan import Setting
from veracausa.runs.folder import Run, write_json
from veracausa.training.split.halves import make_defense
from veracausa.training.train import train

RECORD = "trial.json"
SCORES = ("mse", "psnr", "ssim", "lpips")
TASK_SCORES = ("accuracy", "balanced_accuracy", "auc")


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


QUICK = ("epochs=12", "channels=16", "blocks=1")
"""Decoders for a first look at small data: weaker than those that figures are compared by."""
QUICK_SNAPSHOTS = (0.0,)
"""The first exchange: where most defenses have not learnt to hide anything yet."""


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
        words = self.setting.written(with_cut)
        return Trial(self.setting.defense, words, self.seed, self.score(score), self.leakage)


@dataclass(frozen=True)
class Planned:
    """A trial to be made: what to train, how to attack it, where it lies."""

    setting: Setting
    seed: int
    job: Job
    attacks: tuple[str, ...]
    path: Path
    attackers: Attackers

    @property
    def kept(self) -> dict[str, Any] | None:
        """What an earlier sweep found in just the same trial, if it finished it."""
        try:
            known: dict[str, Any] = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if known["attackers"] != json.loads(json.dumps(asdict(self.attackers))):
            return None
        # Trials of an earlier version kept the accuracy alone; the run knows the rest.
        return {"task": _task_scores(Run(self.path).summary), **known["found"]}

    def run(self, observer: Observer) -> dict[str, Any]:
        """Train and attack it, from where it was broken off if it was."""
        started, path, asked = time.monotonic(), self.path, self.attackers
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
        found = {
            "accuracy": float(summary["accuracy"]),
            "leakage": {name: float(entry["leakage"]) for name, entry in entries.items()},
            "seconds": time.monotonic() - started,
            "task": _task_scores(summary),
            "scores": {name: headline[name] for name in SCORES if name in headline},
            "coverage": widest(entry["coverage"] for entry in entries.values()),
            "party": headline["party"],
            "at": headline["at"],
            "end_leakage": float(headline["end"]["leakage"]),
            "works": None if headline["works"] is None else any(entry["works"] for entry in entries.values()),
        }
        write_json(path / RECORD, {"attackers": asdict(asked), "found": found})
        return found


def _task_scores(summary: Mapping[str, Any]) -> dict[str, float]:
    measured = summary.get("test") or summary.get("validation") or {}
    return {name: float(measured[name]) for name in TASK_SCORES if name in measured}


def plan_trial(setting: Setting, seed: int, base: Job, out: Path, attackers: Attackers) -> Planned:
    """The trial of a setting, attacked by the inverse network, and by averaging too where the defense is random."""
    job, attacks = setting.job(base, seed), ["inverse"]
    job = job.model_copy(update={"name": f"{setting.defense} {setting.written(True)}"})
    free: Any = {"runtime": {"link", "timeout", "max_message_mib"}, "checkpoints": True}
    # Of a training that kept no snapshots only the last model could be attacked: another one is needed.
    told: dict[str, Any] = {"job": job.model_dump(mode="json", exclude=free), "snapshots": attackers.snapshots}
    kept = job.checkpoints.model_copy(update={"moments": attackers.snapshots})
    job = job.model_copy(update={"checkpoints": kept})
    if is_stochastic(make_defense(job, job.parties.passive[0])):
        attacks.append("averaging")
        record = {"record": True, "victims": attackers.parties}
        job = job.model_copy(update={"transcript": job.transcript.model_copy(update=record)})
        told["attackers"] = asdict(attackers)  # what crossed is not kept, so another attack needs another run
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    return Planned(setting, seed, job, tuple(attacks), out / "trials" / digest, attackers)
