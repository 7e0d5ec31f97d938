"""A sweep: the settings of defenses as a grid, one trial after the other while there is time.

A trial trains the job with one setting and attacks what its parties send. It is a cell whose run stays in the folder
of the sweep, under the hash of what was asked.
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

from pydantic import ValidationError

from veracausa.audit.run import audit_run
from veracausa.audit.settings import SNAPSHOTS, attack_options, check_grants
from veracausa.config import Job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.defenses import defenses
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.frontier import Trial
from veracausa.experiments.schedule import Budget, CellProgress, CellWorkers, run_cells
from veracausa.metrics.advantage import is_unbalanced
from veracausa.registry import Options
from veracausa.report.audit_coverage import LAST, widest
from veracausa.runs.folder import Run, write_json
from veracausa.testing.compatibility import why_not
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


STANDARD = Attackers()


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


def settings_of(defense: str, base: Job, cuts: Sequence[int]) -> list[Setting]:
    """What there is to try of a defense: its main setting's values, the middle ones first, then its other settings'.

    Where the job has this defense already, the settings that are not swept stay the job's.
    """
    known = defenses.options(defense)
    own = base.defense
    start: dict[str, Any] = own.model_dump(exclude_unset=True) if own.name == defense else {"name": defense}
    trees = [{**start, name: value} for name in known.swept for value in _spread_out(known.sweep.get(name, ()))]
    made = []
    for tree in trees or [start]:
        try:
            options = known.model_validate(tree)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise InputError(
                f"--defenses {defense}: {where}: {problem['msg'].removeprefix('Value error, ')}; set it in the job, "
                "under a [defense] of this name"
            ) from None
        if options not in made:
            made.append(options)
    return [Setting(options, cut) for options in made for cut in cuts]


def rounds_of(settings: Mapping[str, Sequence[Setting]]) -> list[list[Setting]]:
    """The settings in rounds, one of each defense in a round, and as many rounds for each that has something to tune.

    Fewest decides: a defense with more values than another leaves the last ones untried, since the one that is tried
    more often looks better by that alone. A defense without settings is in as many rounds as there are cuts.
    """
    tuned = [len(own) for own in settings.values() if any(type(setting.options).swept for setting in own)]
    most = min(tuned, default=max((len(own) for own in settings.values()), default=0))
    return [[own[number] for own in settings.values() if number < len(own)] for number in range(most)]


def _spread_out(values: Sequence[Any]) -> list[Any]:
    """The middle first, then the ends, then what is farthest from all before: every beginning covers the range."""
    left = list(range(len(values)))
    if not left:
        return []
    order = [left.pop(len(left) // 2)]
    while left:
        following = max(left, key=lambda number: (min(abs(number - done) for done in order), -number))
        left.remove(following)
        order.append(following)
    return [values[number] for number in order]


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

    def event(self, kept: bool) -> dict[str, Any]:
        """What an observer hears when the trial begins, or is kept from before."""
        setting = self.setting
        named = {"event": "trial", "defense": setting.defense, "setting": setting.describe(), "cut": setting.cut}
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
        audit_run(
            run,
            self.attacks,
            asked.auxiliary,
            asked.victims,
            asked.settings(self.attacks),
            asked.parties or None,
            observer=observer,
            resume=True,
        )
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
    asked: dict[str, Any] = {"job": job.model_dump(mode="json", exclude=free), "snapshots": attackers.snapshots}
    kept = job.checkpoints.model_copy(update={"moments": attackers.snapshots})
    job = job.model_copy(update={"checkpoints": kept})
    if make_defense(job, job.parties.passive[0]).random:
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


@dataclass(frozen=True)
class SkippedSetting:
    """A setting that was not tried, and why."""

    setting: Setting
    why: str


@dataclass(frozen=True)
class Sweep:
    """All that a sweep found."""

    job: Job
    cuts: tuple[int, ...]
    attackers: Attackers
    tried: tuple[TrialResult, ...]
    skipped: tuple[SkippedSetting, ...]
    commonest: float
    """The share of the commonest class among the test rows: what a model reaches that is sent nothing."""
    seconds: float
    complete: bool
    """Whether everything planned was tried or cannot run; else the time was up."""
    score: str = "accuracy"
    """What the task is weighed by."""
    classes: int = 2
    named: tuple[str, ...] = ()
    """The defenses that were asked for."""
    able: tuple[str, ...] = ()
    """Those of them that can run on these rows."""
    budget: float = 0.0
    """Seconds that the sweep was given."""

    @property
    def trials(self) -> list[Trial]:
        return [tried.trial(len(self.cuts) > 1, self.score) for tried in self.tried]

    @property
    def blind(self) -> float:
        """The score of a model that is sent nothing."""
        return {"accuracy": self.commonest, "balanced_accuracy": 1 / self.classes, "auc": 0.5}[self.score]

    @property
    def seconds_of_a_first_round(self) -> float:
        """About how long the undefended job and one setting of each defense take, by the trials that were made."""
        slowest = max(tried.seconds for tried in self.tried)
        return 1.5 * slowest * len(self.cuts) * (1 + len(self.able))


def sweep(
    job: Job,
    names: Sequence[str],
    out: Path,
    budget: Budget,
    *,
    cuts: Sequence[int] = (),
    seeds: int = 1,
    attackers: Attackers = STANDARD,
    score: str | None = None,
    observer: Observer = lambda event: None,
) -> Sweep:
    """Try the undefended job and the settings of these defenses, in rounds, while there is time.

    The task is weighed by `score`. None means accuracy. Where classes are unbalanced it means the AUC of two classes
    and the balanced accuracy of more. A trial that is finished is not repeated, one that was broken off goes on.
    """
    cuts = tuple(cuts) or (job.model.cut,)
    started = time.monotonic()
    base = _plain(job)
    check_grants(attack_options(["inverse", "averaging"], attackers.settings(["inverse", "averaging"])))
    dataset = load(base)
    if dataset.task != "classification":
        raise InputError("frontier weighs accuracy against leakage, and this job has no classes to be accurate about")
    found = _Rounds(base, TrialStore(out), budget, attackers, observer)
    undefended = settings_of(UNDEFENDED, base, cuts)
    for setting in undefended:
        # What is wrong with the job itself is the user's to mend, not a reason to pass over a setting.
        if why := why_not(setting.job(base, base.seed), dataset):
            raise InputError(why)
    defended = {name: settings_of(name, base, cuts) for name in names if name != UNDEFENDED}
    defended = {name: kept for name, own in defended.items() if (kept := found.able(own, dataset))}
    rounds = [undefended, *rounds_of(defended)]
    # A round that could not be finished is the last one: nobody gets a second trial before everybody's first.
    complete = all(found.round(planned, seed) for seed in range(base.seed, base.seed + seeds) for planned in rounds)
    if not found.tried:
        raise RunError("the time was up before a single trial was finished; go on with --resume and a larger --budget")
    commonest, classes = _commonest(dataset), len(dataset.classes)
    return Sweep(
        job,
        cuts,
        attackers,
        (*found.tried,),
        (*found.skipped,),
        commonest,
        time.monotonic() - started,
        complete,
        score or fitting_score(commonest, classes),
        classes,
        tuple(name for name in names if name != UNDEFENDED),
        tuple(defended),
        budget.seconds,
    )


def fitting_score(commonest: float, classes: int) -> str:
    """What says most about a task with such classes."""
    if not is_unbalanced(commonest, classes):
        return "accuracy"
    return "auc" if classes == 2 else "balanced_accuracy"


class _Rounds:
    """The trials so far, and what was skipped."""

    def __init__(self, base: Job, store: TrialStore, budget: Budget, attackers: Attackers, observer: Observer) -> None:
        self.base, self.store, self.budget = base, store, budget
        self.attackers, self.observer = attackers, observer
        self.tried: list[TrialResult] = []
        self.skipped: list[SkippedSetting] = []

    def able(self, settings: Sequence[Setting], dataset: VerticalDataset) -> list[Setting]:
        """Those that can run on these rows; the others are skipped."""
        kept = []
        for setting in settings:
            if why := why_not(setting.job(self.base, self.base.seed), dataset):
                self.skipped.append(SkippedSetting(setting, why))
            else:
                kept.append(setting)
        return kept

    def round(self, settings: Sequence[Setting], seed: int) -> bool:
        """One trial each; False if the time was not enough for all of them, so that no other round may begin."""
        cells = [plan_trial(setting, seed, self.base, self.attackers) for setting in settings]
        for cell in cells:
            if (kept := cell.result(self.store)) is not None:
                self.observer(cell.event(kept=True))
                self.budget.took(cell.setting.defense, kept["seconds"])
        progress = run_cells(cells, self.store, CellWorkers(1), self._gate, self._took, self._heard)
        for cell in cells:
            if (found := cell.result(self.store)) is not None:
                self.tried.append(TrialResult(cell.setting, seed, self.store.work(cell), **found))
            elif cell.key in progress.reasons:
                self.skipped.append(SkippedSetting(cell.setting, f"failed: {progress.reasons[cell.key]}"))
            elif cell.key in progress.late:
                self.skipped.append(SkippedSetting(cell.setting, progress.late[cell.key]))
        return not progress.stopped

    def _gate(self, cell: Cell) -> str:
        assert isinstance(cell, TrialCell)
        return self.budget.why_not(cell.setting.defense)

    def _took(self, cell: Cell, seconds: float, progress: CellProgress) -> None:
        assert isinstance(cell, TrialCell)
        if (found := cell.result(self.store)) is not None:
            self.budget.took(cell.setting.defense, found["seconds"])

    def _heard(self, event: Mapping[str, Any]) -> None:
        if event["event"] != "trial":
            self.budget.check()
        self.observer(event)


def _plain(job: Job) -> Job:
    """The job without what a trial does not need: baselines, the risk meter, models kept on the way."""
    return job.model_copy(
        update={
            "training": job.training.model_copy(update={"baselines": ()}),
            "risk": job.risk.model_copy(update={"every": 0}),
            "checkpoints": job.checkpoints.model_copy(update={"moments": ()}),
            "transcript": job.transcript.model_copy(update={"record": False}),
        }
    )


def _commonest(dataset: VerticalDataset) -> float:
    active = dataset.parties[dataset.active]
    labels = active.test.labels if len(active.test) else active.train.labels
    assert labels is not None
    return float(labels.bincount().max()) / max(1, len(labels))
