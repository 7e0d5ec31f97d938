"""The one setting to take for a wanted accuracy or a wanted leakage, and what to be wary of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from veracausa.audit.snapshots import WHOLE
from veracausa.audit.verdict import WORKS_FROM
from veracausa.config import Job
from veracausa.escaping import escaped
from veracausa.experiments.frontier import (
    FrontierPoint,
    Matched,
    compare_at,
    equal_trials,
    pareto_front,
    points_of,
    trials_by_defense,
)
from veracausa.experiments.schedule import written_seconds
from veracausa.experiments.sweep import Sweep
from veracausa.experiments.trial import UNDEFENDED, Setting, TrialResult
from veracausa.metrics.advantage import is_unbalanced

ALLOWED_LOSS = 0.02
"""Without a constraint: so much less accuracy than undefended is taken for less leakage."""

SCORES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": "AUC"}
"""What a defense may be weighed by, and the words for it."""


def score_text(value: float, score: str) -> str:
    """As a table has it: a share in per cent, an area as it is."""
    return f"{value:.3f}" if score == "auc" else f"{100 * value:.1f} %"


@dataclass(frozen=True)
class Constraint:
    """What is wanted: at least an accuracy (or the score in its place), or at most a leakage."""

    accuracy: float | None = None
    leakage: float | None = None
    by_default: bool = False
    score: str = "accuracy"

    @classmethod
    def near(cls, undefended: float, score: str = "accuracy") -> Constraint:
        """Within two points of the undefended accuracy."""
        return cls(accuracy=undefended - ALLOWED_LOSS, by_default=True, score=score)

    def met_by(self, point: FrontierPoint) -> bool:
        if self.accuracy is not None:
            return point.accuracy >= self.accuracy
        return self.leakage is None or point.leakage <= self.leakage

    def describe(self) -> str:
        if self.accuracy is None:
            return f"leakage of at most {100 * (self.leakage or 0.0):.1f} %"
        loss = f"{ALLOWED_LOSS:.3f}" if self.score == "auc" else f"{100 * ALLOWED_LOSS:g} points"
        within = f", {loss} under the undefended job’s" if self.by_default else ""
        return f"{SCORES[self.score]} of at least {score_text(self.accuracy, self.score)}{within}"


@dataclass(frozen=True)
class Recommendation:
    """The point to take, if one met the constraint, and what is to be said of it."""

    point: FrontierPoint | None
    sentence: str
    why: str


def recommend(points: Sequence[FrontierPoint], constraint: Constraint) -> Recommendation:
    """Of the points that meet the constraint the one that leaks least, or is most accurate.

    It is always a point that was measured. An undefended point counts like any other: another cut alone may do, and a
    defense that buys nothing is not recommended.
    """
    good = [point for point in points if constraint.met_by(point)]
    if not good:
        if constraint.accuracy is not None:
            near, how = max(points, key=lambda point: point.accuracy), f"has the highest {SCORES[constraint.score]}"
        else:
            near, how = min(points, key=lambda point: point.leakage), "leaks least"
        article = "an" if constraint.describe()[0] in "aA" else "a"
        said = f"No setting that was tried reached {article} {constraint.describe()}."
        subject = named(near)
        return Recommendation(
            None, said, f"{subject[0].upper()}{subject[1:]} {how}: {_figures(near, constraint.score)}."
        )
    if constraint.accuracy is not None:
        best = min(good, key=lambda point: (point.leakage, -point.accuracy))
        what = "least leakage measured under these attacks"
    else:
        best = max(good, key=lambda point: (point.accuracy, -point.leakage))
        what = f"highest {SCORES[constraint.score]}"
    why = f"It has the {what} among the settings tried with {constraint.describe()}."
    if best.defense == "none" and len({point.defense for point in points}) > 1:
        others = sum(point.defense != "none" for point in points)
        why += f" Of {others} defended setting{'s' * (others > 1)} tried, none does better there; more time tries more."
        cheaper = [point for point in points if point.leakage < best.leakage and not constraint.met_by(point)]
        if constraint.accuracy is not None and cheaper:
            near = max(cheaper, key=lambda point: (point.accuracy, -point.leakage))
            why += f" Nearest to it is {named(near)}: {_figures(near, constraint.score)}."
    return Recommendation(best, f"Take {named(best)}: {_figures(best, constraint.score)}.", why)


def nothing_to_compare(named_: int, able: int, budget: str, needed: str) -> Recommendation:
    """What is said where no defense was tried: nothing is recommended, least of all to go without one.

    `named_` defenses were asked for, `able` of them can run on these rows; `needed` is a budget that should do.
    """
    if not named_:
        return Recommendation(None, "No defense was named, so there is nothing to recommend.", "Name some: --defenses.")
    if not able:
        why = "None of the defenses that were named can run on these rows; each reason is below."
        return Recommendation(None, "No defense was tried, so none is recommended.", why)
    said = f"No defense was tried, so none is recommended: {budget} was too little time."
    return Recommendation(None, said, f"A first setting of each takes about {needed}: --resume --budget {needed}.")


def snippet(setting: Setting, job: Job) -> str:
    """What to write into the job for this setting, as TOML."""
    import tomli_w

    chosen = setting.options.model_dump(mode="json", exclude_none=True)
    try:
        usual = type(setting.options)(name=setting.defense).model_dump(mode="json")
    except ValidationError:  # some of its settings have no default
        usual = {}
    own = {name: value for name, value in chosen.items() if value != usual.get(name) or name in setting.values}
    tree: dict[str, Any] = {"defense": {"name": setting.defense, **own}}
    if setting.cut != job.model.cut:
        tree = {"model": {"cut": setting.cut}, **tree}
    return tomli_w.dumps(tree)


def named(point: FrontierPoint) -> str:
    """The point in words: `laplace (epsilon = 2)`."""
    name = "the undefended job" if point.defense == "none" else point.defense
    return f"{name} ({point.setting})" if point.setting else name


def _figures(point: FrontierPoint, score: str) -> str:
    reached = f"{SCORES[score]} {score_text(point.accuracy, score)}"
    return f"{reached}, leakage {100 * point.leakage:.1f} % (by {point.attack})"


@dataclass(frozen=True)
class Frontier:
    """A sweep as it is shown: points, front, comparison, recommendation, and what to be wary of."""

    sweep: Sweep
    wanted: Constraint | None = None
    quick: bool = False

    def __repr__(self) -> str:
        return escaped(f"Frontier({len(self.points)} points: {self.recommendation.sentence})")

    def _repr_html_(self) -> str:
        from veracausa.report.notebook import frontier_html

        return frontier_html(self)

    @cached_property
    def points(self) -> list[FrontierPoint]:
        """By defense, in the order they were tried, the most accurate setting of each first."""
        points = points_of(self.sweep.trials)
        order = list(dict.fromkeys(point.defense for point in points))
        return sorted(points, key=lambda point: (order.index(point.defense), -point.accuracy))

    @cached_property
    def front(self) -> list[FrontierPoint]:
        return pareto_front(self.points)

    @cached_property
    def constraint(self) -> Constraint:
        """What was asked for; else within two points of the job undefended, at its own cut where that was tried."""
        if self.wanted is not None:
            return self.wanted
        sweep = self.sweep
        undefended = [tried for tried in sweep.tried if tried.setting.defense == UNDEFENDED]
        own = [tried.score(sweep.score) for tried in undefended if tried.setting.cut == sweep.job.model.cut]
        scores = own or [tried.score(sweep.score) for tried in undefended]
        return Constraint.near(sum(scores) / len(scores), sweep.score)

    @cached_property
    def matched(self) -> dict[str, Matched]:
        """Every defense at the constraint, by interpolation between what was measured; the best first."""
        return compare_at(self.points, accuracy=self.constraint.accuracy, leakage=self.constraint.leakage)

    @cached_property
    def recommendation(self) -> Recommendation:
        sweep = self.sweep
        if all(point.defense == UNDEFENDED for point in self.points):
            needed = written_seconds(sweep.seconds_of_a_first_round)
            return nothing_to_compare(len(sweep.named), len(sweep.able), written_seconds(sweep.budget), needed)
        return recommend(self.points, self.constraint)

    @cached_property
    def snippet(self) -> str | None:
        """The recommended setting as TOML."""
        point = self.recommendation.point
        return None if point is None else snippet(self.setting_of(point), self.sweep.job)

    def setting_of(self, point: FrontierPoint) -> Setting:
        several = len(self.sweep.cuts) > 1
        return next(
            tried.setting
            for tried in self.sweep.tried
            if (tried.setting.defense, tried.setting.describe(several)) == (point.defense, point.setting)
        )

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before trusting the figures."""
        sweep, said = self.sweep, []
        unread = [
            tried.setting.describe(len(sweep.cuts) > 1)
            for tried in sweep.tried
            if tried.setting.defense == UNDEFENDED and not _read(tried)
        ]
        if unread:
            where = " and ".join(dict.fromkeys(setting for setting in unread if setting))
            said.append(
                f"These attacks read nothing even without a defense{f' ({where})' if where else ''}: "
                "low leakage there says nothing about a defense."
            )
        said += self._not_attacked()
        if self.quick:
            said.append("Quick: weaker attackers. What they could not read, others may; do not compare these figures.")
        tuned = {
            name: count
            for name, count in trials_by_defense(sweep.trials).items()
            if any(tried.setting.values for tried in sweep.tried if tried.setting.defense == name)
        }
        untuned = set(trials_by_defense(sweep.trials)) - set(tuned)
        if not equal_trials(sweep.trials, untuned):
            counts = ", ".join(f"{name} {count}" for name, count in tuned.items())
            said.append(f"Not every defense was tried equally often ({counts}): more trials alone look better.")
        if sweep.score != "accuracy":
            common = f"{100 * sweep.commonest:.1f} % of the test rows are of one class"
            said.append(f"{common}, so defenses are weighed by {SCORES[sweep.score]}, not by accuracy.")
        elif is_unbalanced(sweep.commonest, sweep.classes):
            common = f"{100 * sweep.commonest:.1f} % of the test rows are of one class"
            said.append(f"{common}: whoever guesses it has this accuracy. --score auc or balanced_accuracy says more.")
        if max(point.seeds for point in self.points) == 1:
            said.append("One seed: a difference of a point or two may be chance.")
        if not sweep.complete:
            said.append("The time was up before everything planned was tried; --resume with more goes on from here.")
        return said

    def _not_attacked(self) -> list[str]:
        """What the leakage is not of: earlier snapshots, other parties."""
        said, sweep = [], self.sweep
        partly = sum(tried.coverage != WHOLE for tried in sweep.tried)
        if partly:
            whose = "Leakage" if partly == len(sweep.tried) else f"The leakage of {partly} of {len(sweep.tried)} trials"
            said.append(f"{whose} is of the last model only: what crossed earlier in the training may tell more.")
        left_out = [party for party in sweep.job.parties.passive if party not in (sweep.attackers.parties or (party,))]
        if left_out:
            said.append(f"Not attacked: {', '.join(left_out)}.")
        return said

    @property
    def skipped(self) -> dict[str, list[str]]:
        """Why settings were not tried -> which."""
        reasons: dict[str, list[str]] = {}
        for skipped in self.sweep.skipped:
            words = skipped.setting.describe(len(self.sweep.cuts) > 1)
            reasons.setdefault(skipped.why, []).append(f"{skipped.setting.defense} {words}".strip())
        return reasons

    @property
    def tried_equally(self) -> str:
        """How many settings each defense got, in words."""
        counts = {n: c for n, c in trials_by_defense(self.sweep.trials).items() if n != UNDEFENDED}
        if not counts:
            return "no defense tried"
        if len(set(counts.values())) == 1:
            count = next(iter(counts.values()))
            return f"{count} setting{'' if count == 1 else 's'} of every defense tried"
        return "settings tried: " + ", ".join(f"{name} {count}" for name, count in counts.items())


def _read(undefended: TrialResult) -> bool:
    """Whether the attacks of an undefended trial read something; older records only have how much."""
    return max(undefended.leakage.values()) >= WORKS_FROM if undefended.works is None else undefended.works
