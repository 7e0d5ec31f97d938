"""The one setting to take for a wanted accuracy or a wanted leakage, out of those that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from veracausa.config import Job
from veracausa.frontier.pareto import Point
from veracausa.frontier.plan import Setting

ALLOWED_LOSS = 0.02
"""Without a wish: so much less accuracy than undefended is taken for less leakage."""


@dataclass(frozen=True)
class Wish:
    """What is wanted: at least an accuracy, or at most a leakage."""

    accuracy: float | None = None
    leakage: float | None = None
    by_default: bool = False

    @classmethod
    def near(cls, undefended: float) -> Wish:
        """Within two points of the undefended accuracy."""
        return cls(accuracy=undefended - ALLOWED_LOSS, by_default=True)

    def met_by(self, point: Point) -> bool:
        if self.accuracy is not None:
            return point.accuracy >= self.accuracy
        return self.leakage is None or point.leakage <= self.leakage

    def written(self) -> str:
        if self.accuracy is None:
            return f"leakage of at most {100 * (self.leakage or 0.0):.1f} %"
        within = f", {100 * ALLOWED_LOSS:.0f} points under the undefended job’s" if self.by_default else ""
        return f"accuracy of at least {100 * self.accuracy:.1f} %{within}"


@dataclass(frozen=True)
class Recommendation:
    """The point to take, if one met the wish, and what is to be said of it."""

    point: Point | None
    sentence: str
    why: str


def recommend(points: Sequence[Point], wish: Wish) -> Recommendation:
    """Of the points that meet the wish the one that leaks least, or is most accurate; never anything in between them.

    An undefended point counts like any other: another cut alone may do, and a defense that buys nothing is not
    recommended.
    """
    good = [point for point in points if wish.met_by(point)]
    if not good:
        if wish.accuracy is not None:
            near, how = max(points, key=lambda point: point.accuracy), "is the most accurate"
        else:
            near, how = min(points, key=lambda point: point.leakage), "leaks least"
        article = "an" if wish.accuracy is not None else "a"
        said = f"No setting that was tried reached {article} {wish.written()}."
        subject = named(near)
        return Recommendation(None, said, f"{subject[0].upper()}{subject[1:]} {how}: {_figures(near)}.")
    if wish.accuracy is not None:
        best = min(good, key=lambda point: (point.leakage, -point.accuracy))
        what = "least leakage measured under these attacks"
    else:
        best = max(good, key=lambda point: (point.accuracy, -point.leakage))
        what = "most accuracy"
    why = f"It has the {what} among the settings tried with {wish.written()}."
    if best.defense == "none" and len({point.defense for point in points}) > 1:
        why += " No defense that was tried does better there."
    return Recommendation(best, f"Take {named(best)}: {_figures(best)}.", why)


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


def named(point: Point) -> str:
    """The point in words: `laplace (epsilon = 2)`."""
    name = "the undefended job" if point.defense == "none" else point.defense
    return f"{name} ({point.setting})" if point.setting else name


def _figures(point: Point) -> str:
    return f"accuracy {100 * point.accuracy:.1f} %, leakage {100 * point.leakage:.1f} % (by {point.attack})"
