"""The one setting to take for a wanted accuracy or a wanted leakage, out of those that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from veracausa.config import Job
from veracausa.experiments.frontier.pareto import FrontierPoint
from veracausa.experiments.frontier.plan import Setting

ALLOWED_LOSS = 0.02
"""Without a wish: so much less accuracy than undefended is taken for less leakage."""

SCORES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": "AUC"}
"""What a defense may be weighed by, and the words for it."""


def written_score(value: float, score: str) -> str:
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

    def written(self) -> str:
        if self.accuracy is None:
            return f"leakage of at most {100 * (self.leakage or 0.0):.1f} %"
        within = f", {written_score(ALLOWED_LOSS, self.score)} under the undefended job’s" if self.by_default else ""
        return f"{SCORES[self.score]} of at least {written_score(self.accuracy, self.score)}{within}"


@dataclass(frozen=True)
class Recommendation:
    """The point to take, if one met the wish, and what is to be said of it."""

    point: FrontierPoint | None
    sentence: str
    why: str


def recommend(points: Sequence[FrontierPoint], wish: Constraint) -> Recommendation:
    """Of the points that meet the wish the one that leaks least, or is most accurate; never anything in between them.

    An undefended point counts like any other: another cut alone may do, and a defense that buys nothing is not
    recommended.
    """
    good = [point for point in points if wish.met_by(point)]
    if not good:
        if wish.accuracy is not None:
            near, how = max(points, key=lambda point: point.accuracy), f"has the highest {SCORES[wish.score]}"
        else:
            near, how = min(points, key=lambda point: point.leakage), "leaks least"
        article = "an" if wish.written()[0] in "aA" else "a"
        said = f"No setting that was tried reached {article} {wish.written()}."
        subject = named(near)
        return Recommendation(None, said, f"{subject[0].upper()}{subject[1:]} {how}: {_figures(near, wish.score)}.")
    if wish.accuracy is not None:
        best = min(good, key=lambda point: (point.leakage, -point.accuracy))
        what = "least leakage measured under these attacks"
    else:
        best = max(good, key=lambda point: (point.accuracy, -point.leakage))
        what = f"highest {SCORES[wish.score]}"
    why = f"It has the {what} among the settings tried with {wish.written()}."
    if best.defense == "none" and len({point.defense for point in points}) > 1:
        why += " No defense that was tried does better there."
    return Recommendation(best, f"Take {named(best)}: {_figures(best, wish.score)}.", why)


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
    reached = f"{SCORES[score]} {written_score(point.accuracy, score)}"
    return f"{reached}, leakage {100 * point.leakage:.1f} % (by {point.attack})"
