"""What a passive party of a blind training learns of the labels, beside what its own columns tell, and the bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView, Surface
from veracausa.attacks.own_columns import own_model_chances
from veracausa.audit.blind_situations import Situation
from veracausa.audit.blind_system import BlindSystem
from veracausa.audit.labels import KNOWN, score_labels
from veracausa.errors import InputError
from veracausa.metrics.blind_bounds import posterior_bound
from veracausa.training.blind.active import BlindActive
from veracausa.training.blind.labels import response_matrix
from veracausa.training.split.program import Schema

MOST_ROWS = 8000
"""Training rows whose labels are attacked: enough for a model of the party's columns."""


@dataclass(frozen=True)
class ToldLabels:
    """What the party was told, and at which ε; none: nothing, or everything."""

    told: Tensor | None
    transition: Array | None
    epsilon: float | None
    """None with labels told: they are the true ones."""


class LabelSituations:
    """One passive party's seat: its own columns, a few labels it knows, and what it was told."""

    def __init__(self, system: BlindSystem, party: str) -> None:
        if system.dataset.task != "classification":
            raise InputError("labels of a regression are not attacked: there are no classes to guess")
        self.system, self.party = system, party
        self.positions = system.training[:MOST_ROWS]
        self.labels = system.labels("train", self.positions)
        self.makers: dict[str, Callable[[], Situation]] = {
            "labels as told": lambda: self._situation("labels as told", self._as_told(), as_run=True),
            "no labels": lambda: self._situation("no labels", ToldLabels(None, None, None)),
            "labels, epsilon = 1": lambda: self._situation("labels, epsilon = 1", self._drawn(1.0)),
            "labels, epsilon = 4": lambda: self._situation("labels, epsilon = 4", self._drawn(4.0)),
            "true labels": lambda: self._situation("true labels", ToldLabels(self.labels, None, None), off=True),
        }

    as_run = frozenset({"labels as told"})
    """The situations for which an attacker needs to break nothing of the job as it ran."""

    def names(self, surface: Surface) -> tuple[str, ...]:
        """What an attack is tried in that names no situation itself."""
        return tuple(self.as_run)

    @cached_property
    def features(self) -> Tensor:
        return self.system.features(self.party, "train", self.positions)

    @cached_property
    def known(self) -> Tensor:
        """Places of the targets whose labels the party knows anyway: a few of each class."""
        rng = seeding.generator(self.system.job.seed, "label inference", "known", self.party)
        order = torch.randperm(len(self.labels), generator=rng)
        chosen = [order[self.labels[order] == label][:KNOWN] for label in torch.unique(self.labels)]
        return torch.cat(chosen).sort().values

    @cached_property
    def own_chances(self) -> Tensor:
        """(n, classes): what a model of the party's own columns says, fitted on true labels of other rows.

        That is more than the party could learn alone: it is what the columns have in them for this kind of model.
        """
        rng = seeding.generator(self.system.job.seed, "label inference", "own columns", self.party)
        return own_model_chances(self.features, self.labels, self.system.classes, rng)

    @cached_property
    def own_columns(self) -> float:
        """The share of labels that such a model tells."""
        return float((self.own_chances.argmax(1) == self.labels)[self._counted].double().mean())

    @property
    def _counted(self) -> Tensor:
        counted = torch.ones(len(self.labels), dtype=torch.bool)
        counted[self.known] = False
        return counted

    def _as_told(self) -> ToldLabels:
        blind, system = self.system.job.blind, self.system
        if blind.labels == "none":
            return ToldLabels(None, None, None)
        if blind.labels == "shared":
            return ToldLabels(self.labels, None, None)
        active = BlindActive(system.job, system.active, Schema.of(system.dataset))
        told, _, transition, account = system.targets.told(active.lasting_key("labels"))
        if transition is not None and transition.ndim == 3:
            transition = transition[self.positions.numpy()]
        return ToldLabels(torch.from_numpy(told)[self.positions], transition, float(account["epsilon"]))

    def _drawn(self, epsilon: float) -> ToldLabels:
        """As if the job had let labels out at this ε."""
        transition = response_matrix(self.system.classes, epsilon)
        rng = np.random.default_rng(seeding.derive(self.system.job.seed, "audit", "told", epsilon_name(epsilon)))
        chances = np.cumsum(transition[self.labels.numpy()], axis=1)
        told = (rng.random((len(self.labels), 1)) >= chances).sum(1).clip(0, self.system.classes - 1)
        return ToldLabels(torch.from_numpy(told), transition, epsilon)

    def _situation(self, name: str, told: ToldLabels, as_run: bool = False, off: bool = False) -> Situation:
        system = self.system
        view = BlindView(
            grants=Grant.LABELLED_AUXILIARY,
            seat=self.party,
            victim=system.dataset.active,
            row_shape=(),
            pixels=False,
            classes=system.classes,
            numbers=system.numbers,
            rng=seeding.generator(system.job.seed, "audit", "blind labels", self.party),
            own=self.features,
            known_targets=self.known,
            known_labels=self.labels[self.known],
            **_some(
                told=told.told,
                transition=told.transition,
                own_chances=None if told.told is None else self.own_chances,
            ),
        )
        if told.told is None:
            says = "no label was let out; the party knows a few anyway"
        elif told.epsilon is None:
            says = "true labels were let out"
        else:
            says = f"labels were let out once, randomised with epsilon = {told.epsilon:g}"
        settings = {"epsilon": told.epsilon, "told": told.told is not None}
        return Situation(name, says, view, "train", self.positions, as_run, off, settings)

    def scored(self, situation: Situation, reading: BlindReading) -> dict[str, Any]:
        """Accuracy, prior, what own columns tell, and the bound that ε sets; known labels are not counted."""
        assert reading.labels is not None
        counted = self._counted
        score = reading.labels.score
        guess = type(reading.labels)(reading.labels.classes[counted], False, None if score is None else score[counted])
        found = score_labels(guess, self.labels[counted], self.system.classes)
        epsilon, told = situation.settings["epsilon"], situation.settings["told"]
        # With no label told there is nothing but the columns; with true ones, nothing left to guess.
        columns = max(self.own_columns, found.prior)
        bound = columns if not told else 1.0 if epsilon is None else posterior_bound(columns, float(epsilon))
        return {
            **vars(found),
            "rows_alone": self.own_columns,
            "gain": found.accuracy - columns,
            "epsilon": epsilon,
            "bound": bound,
            "known_labels": len(self.known),
            "samples": int(counted.sum()),
        }


def _some(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def epsilon_name(epsilon: float) -> str:
    """As a word, for seeds and names."""
    return f"{epsilon:g}"
