"""Train and attack one setting after the other, under a budget of time; every trial is a run that can be used again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veracausa.audit.settings import attack_options, check_grants
from veracausa.config import Job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.events import Observer
from veracausa.experiments.frontier.budget import Budget, OutOfTime
from veracausa.experiments.frontier.pareto import Trial
from veracausa.experiments.frontier.plan import Setting, rounds_of, settings_of
from veracausa.experiments.frontier.trial import Attackers, Planned, TrialResult, plan_trial
from veracausa.metrics.advantage import is_unbalanced
from veracausa.training.train import why_not

UNDEFENDED = "none"
STANDARD = Attackers()


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
    passed: tuple[SkippedSetting, ...]
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
    and the balanced accuracy of more. Trials lie in `out`/trials under the hash of their job: one that is finished is
    not repeated, one that was broken off goes on.
    """
    cuts = tuple(cuts) or (job.model.cut,)
    started = time.monotonic()
    base = _plain(job)
    check_grants(attack_options(["inverse", "averaging"], attackers.settings(["inverse", "averaging"])))
    dataset = load(base)
    if dataset.task != "classification":
        raise InputError("frontier weighs accuracy against leakage, and this job has no classes to be accurate about")
    found = _Trials(base, dataset, out, budget, attackers, observer)
    undefended = settings_of(UNDEFENDED, base, cuts)
    for setting in undefended:
        # What is wrong with the job itself is the user's to mend, not a reason to pass over a setting.
        if why := why_not(setting.job(base, base.seed), dataset):
            raise InputError(why)
    defended = {name: settings_of(name, base, cuts) for name in names if name != UNDEFENDED}
    defended = {name: kept for name, own in defended.items() if (kept := found.able(own))}
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
        (*found.passed,),
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


class _Trials:
    """The trials so far, and what was passed over."""

    def __init__(
        self, base: Job, dataset: VerticalDataset, out: Path, budget: Budget, attackers: Attackers, observer: Observer
    ) -> None:
        self.base, self.dataset, self.out = base, dataset, out
        self.budget, self.attackers, self.observer = budget, attackers, observer
        self.tried: list[TrialResult] = []
        self.passed: list[SkippedSetting] = []

    def able(self, settings: Sequence[Setting]) -> list[Setting]:
        """Those that can run on these rows; the others are passed over."""
        kept = []
        for setting in settings:
            if why := why_not(setting.job(self.base, self.base.seed), self.dataset):
                self.passed.append(SkippedSetting(setting, why))
            else:
                kept.append(setting)
        return kept

    def round(self, settings: Sequence[Setting], seed: int) -> bool:
        """One trial each; False if the time was not enough for all of them, so that no other round may begin."""
        whole = True
        for setting in settings:
            trial = plan_trial(setting, seed, self.base, self.out, self.attackers)
            if trial.kept is None and not self.budget.fits(setting.defense):
                needed, left = self.budget.estimate(setting.defense), max(0.0, self.budget.left)
                self.passed.append(SkippedSetting(setting, f"no time: about {needed:.0f} s needed, {left:.0f} s left"))
                whole = False
                continue
            try:
                self._try(trial)
            except OutOfTime as error:
                self.passed.append(SkippedSetting(setting, str(error)))
                return False
            except (VeracausaError, RuntimeError) as error:  # the latter is PyTorch's, such as a full GPU
                if setting.defense == UNDEFENDED:
                    raise
                self.passed.append(SkippedSetting(setting, f"failed: {error}"))
        return whole

    def _try(self, trial: Planned) -> None:
        setting, kept = trial.setting, trial.kept
        named = {"event": "trial", "defense": setting.defense, "setting": setting.written(), "cut": setting.cut}
        self.observer({**named, "seed": trial.seed, "kept": kept is not None})

        def heard(event: Mapping[str, Any]) -> None:
            self.budget.check()
            self.observer(event)

        found = kept or trial.run(heard)
        self.budget.took(setting.defense, found["seconds"])
        self.tried.append(TrialResult(setting, trial.seed, trial.path, **found))


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
