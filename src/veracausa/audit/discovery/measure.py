"""What all attacks reach in one recorded discovery, beside what somebody reaches who opened nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import FeatureAttack
from veracausa.attacks.columns.subspace import beside, directions, explained, flat, regressed
from veracausa.audit.discovery.score import ColumnScore, best_own, random_guess, scored
from veracausa.audit.discovery.views import DiscoveryViews
from veracausa.errors import InputError
from veracausa.events import ProgressCallback

BLIND = ("best own attribute", "random guess", "own columns and known rows")
TOGETHER = ("unsplit", "ica", "norm_aware", "single_parent", "known_rows")
"""What colluding parties try on their features side by side."""


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


def attacked(scenes: Sequence[DiscoveryViews], attack: FeatureAttack) -> Reached | None:
    """The attack on every scene; None where none of them gives it anything to work on."""
    scores, nothing = [], 0
    for scene in scenes:
        guess = attack.read(scene.view)
        if guess is None:
            nothing += 1
            scores.append(ColumnScore((0.0,) * scene.view.columns))
            continue
        scores.append(scored(guess, scene.truth if guess.rows == "training" else scene.kept_apart))
    return None if nothing == len(scores) else pooled(scores)


def blind(scenes: Sequence[DiscoveryViews]) -> dict[str, Reached]:
    """What the same parties reach without any feature."""
    found: dict[str, list[ColumnScore]] = {name: [] for name in BLIND}
    for scene in scenes:
        view, truth = scene.view, scene.truth
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


def linear(scenes: Sequence[DiscoveryViews]) -> dict[str, float]:
    """Mean R² of foreign attributes by a linear map: of the own columns, and of these and the features."""
    found: dict[str, list[float]] = {}
    for scene in scenes:
        view, truth = scene.view, scene.truth
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
    scenes: Sequence[DiscoveryViews],
    names: Sequence[str],
    options: Mapping[str, Any],
    tell: ProgressCallback = lambda share: None,
) -> dict[str, Any]:
    """Everything about some scenes, ready to be written down."""
    found: dict[str, Any] = {"blind": {name: reached.told() for name, reached in blind(scenes).items()}}
    found["linear_r2"] = linear(scenes)
    found["attacks"] = {}
    for number, name in enumerate(names):
        tell(number / len(names))
        reached = attacked(scenes, make_attack(name, options.get(name, {})))
        found["attacks"][name] = reached.told() if reached is not None else None
    return found


def make_attack(name: str, settings: Mapping[str, Any]) -> FeatureAttack:
    """The attack with its settings checked."""
    try:
        options = feature_attacks.options(name).model_validate({"name": name, **settings})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"--set {name}.{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    made: FeatureAttack = feature_attacks.get(name)(options)
    return made
