"""A sweep: the settings of defenses as a grid, tried in rounds while there is time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from veracausa.audit.settings import attack_options, check_grants
from veracausa.config import Job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.defenses import defenses
from veracausa.errors import InputError, RunError, wrong_value
from veracausa.events import Event, Observer
from veracausa.experiments.cell import Cell
from veracausa.experiments.frontier import Trial
from veracausa.experiments.schedule import Budget, CellProgress, CellWorkers, run_cells
from veracausa.experiments.trial import UNDEFENDED, Attackers, Setting, TrialCell, TrialResult, TrialStore, plan_trial
from veracausa.metrics.advantage import is_unbalanced
from veracausa.training.train import why_not

STANDARD = Attackers()


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
                f"--defenses {defense}: {where}: {wrong_value(problem)}; set it in the job, "
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
                self._heard(cell.event(kept=True))
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

    def _heard(self, event: Event) -> None:
        """Hand every event on; none but that of a trial that begins may come when the time is up."""
        if event["event"] == "trial":
            self.observer({**event, "left": self.budget.left})
            return
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
