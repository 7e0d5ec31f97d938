"""How near attacks come to the columns of one recorded discovery, beside somebody who opened nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, beside, directions, explained, flat, regressed
from veracausa.audit.discovery_views import ViewWithTruth
from veracausa.audit.settings import checked_options
from veracausa.events import ProgressCallback

BLIND = ("best own attribute", "random guess", "own columns and known rows")


@dataclass(frozen=True)
class Reached:
    """One attack over all attackers and victims."""

    mean: float
    """Mean |correlation| over all attributes attacked."""
    most: float
    """Of the attribute that was read best."""
    read: float
    """The share of attributes read with a |correlation| of 0.99 or more."""
    views: int
    """How many views it had something to work on."""

    def told(self) -> dict[str, float]:
        return {"mean": self.mean, "most": self.most, "read": self.read, "views": self.views}


def pooled(scores: Sequence[ColumnScore]) -> Reached:
    """All views' attributes together."""
    values = [value for score in scores for value in score.by_attribute]
    whole = ColumnScore(tuple(values))
    return Reached(whole.mean, whole.most, whole.read, len(scores))


def attacked(views: Sequence[ViewWithTruth], attack: ColumnAttack) -> Reached | None:
    """The attack on every view; None where none of them gives it anything to work on."""
    scores, nothing = [], 0
    for each in views:
        guess = attack.read(each.view)
        if guess is None:
            nothing += 1
            scores.append(ColumnScore((0.0,) * each.view.columns))
            continue
        scores.append(scored(guess, each.truth if guess.rows == "training" else each.held_out))
    return None if nothing == len(scores) else pooled(scores)


def blind(views: Sequence[ViewWithTruth]) -> dict[str, Reached]:
    """What the same parties reach without any feature."""
    found: dict[str, list[ColumnScore]] = {name: [] for name in BLIND}
    for each in views:
        view, truth = each.view, each.truth
        found["best own attribute"].append(best_own(view.own, truth))
        found["random guess"].append(random_guess(truth, view.rng))
        if view.known is not None:
            at, values = view.known
            own = directions(view.own, view.own.shape[1])
            rows = regressed(own[at], values, own)
            found["own columns and known rows"].append(
                ColumnScore(tuple(float(abs(np.corrcoef(a, b)[0, 1])) for a, b in zip(rows.T, truth.T, strict=True)))
            )
    return {name: pooled(scores) for name, scores in found.items() if scores}


def linear(views: Sequence[ViewWithTruth]) -> dict[str, float]:
    """Mean R² of foreign attributes by a linear map: of the own columns, and of these and the features."""
    found: dict[str, list[float]] = {}
    for each in views:
        view, truth = each.view, each.truth
        features = {
            "own columns": view.own[:, :0],
            "and the last opening": directions(flat(view.last), view.columns),
            "and the mean over the refit": directions(flat(view.mean), view.columns),
            "and all epochs": directions(beside(view.history), view.columns),
        }
        for name, opened in features.items():
            values = explained(np.concatenate([view.own, opened], axis=1), truth)
            found.setdefault(name, []).extend(float(value) for value in values)
    return {name: float(np.mean(values)) for name, values in found.items()}


def measured(
    views: Sequence[ViewWithTruth],
    names: Sequence[str],
    options: Mapping[str, Any],
    tell: ProgressCallback = lambda share: None,
) -> dict[str, Any]:
    """All that some attackers reach, ready to be written down."""
    found: dict[str, Any] = {"blind": {name: reached.told() for name, reached in blind(views).items()}}
    found["linear_r2"] = linear(views)
    found["attacks"] = {}
    for number, name in enumerate(names):
        tell(number / len(names))
        reached = attacked(views, make_attack(name, options.get(name, {})))
        found["attacks"][name] = reached.told() if reached is not None else None
    return found


def make_attack(name: str, settings: Mapping[str, Any]) -> ColumnAttack:
    """The attack with its settings checked."""
    return column_attacks.get(name)(checked_options(name, settings, column_attacks))


def declared(names: Sequence[str], declaration: str) -> list[str]:
    """Those of these attacks that declare something of themselves, such as `colluding`."""
    return [name for name in names if getattr(column_attacks.get(name), declaration)]


EXACT = 0.99
"""From this correlation on a column counts as read."""


@dataclass(frozen=True)
class ColumnScore:
    """|correlation| with the true columns."""

    by_attribute: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_attribute))

    @property
    def most(self) -> float:
        """Of the attribute that is read best."""
        return float(np.max(self.by_attribute))

    @property
    def read(self) -> float:
        """The share of attributes that are read."""
        return float(np.mean(np.array(self.by_attribute) >= EXACT))


def correlations(a: Array, b: Array) -> Array:
    """(columns of a, columns of b): |correlation|; 0 for what does not vary, or is no number."""
    a, b = (np.asarray(columns - columns.mean(0)) for columns in (a, b))
    lengths = np.sqrt(np.square(a).sum(0))[:, None] * np.sqrt(np.square(b).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.abs(a.T @ b) / lengths
    return np.asarray(np.nan_to_num(found, nan=0.0, posinf=0.0))


def scored(guess: ColumnGuess, truth: Array) -> ColumnScore:
    """Of an ordered guess column by column; else of the matching that adds up to the most (the Hungarian method)."""
    found = correlations(guess.values, truth)
    if guess.ordered:
        return ColumnScore(tuple(float(value) for value in np.diag(found)))
    return ColumnScore(matched(found))


def matched(found: Array) -> tuple[float, ...]:
    """Each true column's |correlation| in the best matching of guesses to columns; 0 where guesses are too few."""
    from scipy.optimize import linear_sum_assignment

    best = np.zeros(found.shape[1])
    guesses, columns = linear_sum_assignment(found, maximize=True)
    best[columns] = found[guesses, columns]
    return tuple(float(value) for value in best)


def random_guess(truth: Array, rng: np.random.Generator, draws: int = 20) -> ColumnScore:
    """Normal numbers, matched like any other guess; the mean over a few draws."""
    drawn = [matched(correlations(rng.standard_normal(truth.shape), truth)) for _ in range(draws)]
    return ColumnScore(tuple(float(value) for value in np.mean(drawn, axis=0)))


def best_own(own: Array, truth: Array) -> ColumnScore:
    """Every true column beside the attacker's own column that is most like it: nothing was opened for that.

    Which column that is, the attacker does not know; it is told here, so this is more than a blind guess.
    """
    return ColumnScore(tuple(float(value) for value in correlations(own, truth).max(0)))
