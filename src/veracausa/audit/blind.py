"""The audit of a blind training: every attack in its situations, scored beside a blind guess, and written down.

The active party opened sums over rows and a few numbers of each predicted row. A passive party saw ciphertexts, and
labels as far as they were let out. The audit plays both, as the job ran and with single protections off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindAttack, BlindReading, BlindView
from veracausa.attacks.row_readers import KnownBeside, fit_reader
from veracausa.audit.blind_labels import LabelSituations
from veracausa.audit.blind_situations import RowSituations, Situation
from veracausa.audit.blind_system import BlindSample, BlindSystem
from veracausa.audit.evaluation import column_groups, column_titles
from veracausa.audit.measure import Gallery, Measured, example_rows, measure
from veracausa.audit.settings import attack_options
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.metrics.advantage import lower_bound
from veracausa.metrics.blind_bounds import membership_bound, score_membership
from veracausa.metrics.leakage import blind_guesses, blind_mse
from veracausa.models.runner import threads_for
from veracausa.registry import Options

AUXILIARY = 10_000
"""Rows that the attacker learns from: as many of the test rows as are no targets, up to this."""
WORKS_FROM = 0.01


@dataclass(frozen=True)
class BlindOutcome:
    """What one attack read in one situation."""

    attack: str
    situation: Situation
    victim: str
    scores: Mapping[str, Any]
    """By surface: leakage and errors, membership, or accuracy on labels."""
    notes: Mapping[str, float]
    seconds: float
    measured: Measured | None = None
    gallery: Gallery | None = None
    rows: Mapping[str, Any] | None = None
    """Of a table, a few rows as they were read."""

    def entry(self) -> dict[str, Any]:
        """As the record has it."""
        situation = self.situation
        return {
            "attack": self.attack,
            "situation": situation.name,
            "says": situation.says,
            "victim": self.victim,
            "seat": situation.view.seat,
            "as_run": situation.as_run,
            "off": situation.off,
            **self.scores,
            "notes": dict(self.notes),
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True)
class BlindAuditSettings:
    """How a blind training is attacked."""

    attacks: Sequence[str] = ()
    """By name; none: all."""
    overrides: Sequence[str] = ()
    auxiliary: int = AUXILIARY
    victims: int = 2000
    parties: Sequence[str] | None = None
    quick: bool = False
    labels: bool = True
    what_if: bool = True
    """Also what would be read with protections off or broken; without it nothing shows that an attack works."""
    without: bool = True
    """Also what the same readers say without any number opened, as the job ran; it doubles the time."""
    situations: Sequence[str] = field(default=())
    """Only these; none: all that an attack declares."""

    def options(self) -> dict[str, Options]:
        """The settings of each attack, checked, in the order of a table."""
        names = [blind_attacks.canonical(name) for name in self.attacks] or blind_attacks.names()
        names = [name for name in names if self.labels or blind_attacks.get(name).surface != "labels"]
        weaker = {name: blind_attacks.get(name).quick for name in names} if self.quick else {}
        quick = [f"{name}.{key}={value}" for name, settings in weaker.items() for key, value in settings.items()]
        names = sorted(names, key=lambda name: (blind_attacks.get(name).order, name))
        return attack_options(names, [*quick, *self.overrides], blind_attacks)


class BlindAudit:
    """All attacks on one system; go through `outcomes`, each is there when it is done."""

    def __init__(self, system: BlindSystem, settings: BlindAuditSettings, observer: Observer = lambda e: None) -> None:
        self.system, self.settings, self.observer = system, settings, observer
        self.options = settings.options()
        for name in settings.parties or ():
            if name not in system.passive:
                raise InputError(f"{name!r} is no passive party of this run (they are: {', '.join(system.passive)})")
        self.parties = list(settings.parties or system.passive)
        self.sample: BlindSample = system.choose(settings.auxiliary, settings.victims)
        self._rows_of = {party: RowSituations(system, self.sample, party) for party in self.parties}
        labelled = system.dataset.task == "classification"
        self._labels = {party: LabelSituations(system, party) for party in self.parties} if labelled else {}

    def outcomes(self, names: Sequence[str] | None = None) -> Iterator[BlindOutcome]:
        """What the attacks read, attack by attack; situations that the job does not have are passed over."""
        for name in names or self.options:
            for party, wanted in self.planned(name).items():
                place, labels = self._place(name, party), self._labels.get(party)
                shape = self.system.dataset.parties[party].shape
                for situation in _made(place, wanted):
                    with threads_for(self.system.job.runtime, shape):
                        outcome = self._outcome(name, situation, party, labels)
                    yield outcome

    def planned(self, name: str) -> dict[str, list[str]]:
        """In which situations an attack is tried: as the job ran, of every party; otherwise, of the first one."""
        attack, chosen = blind_attacks.get(name), self.settings.situations
        found: dict[str, list[str]] = {}
        for number, party in enumerate(self.parties):
            if attack.surface == "labels" and party not in self._labels:
                continue
            place = self._place(name, party)
            names = attack.situations or place.names(attack.surface)
            what_if = self.settings.what_if and number == 0
            found[party] = [
                each for each in names if (not chosen or each in chosen) and (what_if or each in place.as_run)
            ]
        return found

    def _place(self, name: str, party: str) -> RowSituations | LabelSituations:
        return self._labels[party] if blind_attacks.get(name).surface == "labels" else self._rows_of[party]

    def _outcome(self, name: str, situation: Situation, party: str, labels: LabelSituations | None) -> BlindOutcome:
        options = self.options[name]
        known = {key: value for key, value in situation.settings.items() if key in type(options).model_fields}
        attack = blind_attacks.get(name)(options.model_copy(update=known))
        event: Event = {"event": "attack", "attack": f"{name} ({situation.name})", "party": party, "moment": 1.0}
        self.observer({**event, "share": 0.0})
        started = time.perf_counter()
        view = situation.view.replaced(progress=lambda share: self.observer({**event, "share": max(1e-6, share)}))
        reading = attack.read(view)
        outcome = self._scored(name, attack, situation, view, party, reading, labels, started)
        self.observer({**event, "share": 1.0})
        return outcome

    def _scored(
        self,
        name: str,
        attack: BlindAttack,
        situation: Situation,
        view: BlindView,
        party: str,
        reading: BlindReading,
        labels: LabelSituations | None,
        started: float,
    ) -> BlindOutcome:
        measured, gallery, examples = None, None, None
        if attack.surface == "membership":
            scores = self._membership(situation, reading, party)
        elif attack.surface == "labels":
            assert labels is not None
            scores = labels.scored(situation, reading)
        else:
            assert reading.rows is not None
            measured, best = self._rows(situation, view, party, reading.rows)
            truth = self.system.rows(party, situation.split, situation.positions)
            scores = row_scores(measured, len(truth), len(view.auxiliary))
            if self.settings.without and situation.as_run and situation.split == "test":
                scores["without_numbers"] = self._without(attack, view, party, situation)
            if view.pixels:
                gallery = Gallery.of(situation.positions, truth, reading.rows, best, measured.samples["mse"])
            else:
                fitted = self.system.dataset.parties[party].preprocessing
                errors = measured.samples["mse"]
                examples = example_rows(fitted, situation.positions, truth, reading.rows, errors)
        taken = time.perf_counter() - started
        return BlindOutcome(name, situation, party, scores, attack.notes(), taken, measured, gallery, examples)

    def _rows(self, situation: Situation, view: BlindView, party: str, guess: Tensor) -> tuple[Measured, Tensor]:
        data = self.system.dataset.parties[party]
        truth = self.system.rows(party, situation.split, situation.positions)
        guesses = self._blind(view, len(truth))
        fitted = None if view.pixels else data.preprocessing
        found = measure(guess, truth, guesses, view.pixels, column_groups(fitted), column_titles(fitted))
        return found, guesses[blind_mse(guesses, truth)[1]]

    def _blind(self, view: BlindView, count: int) -> dict[str, Tensor]:
        own = (view.own_auxiliary, view.own) if hasattr(view, "own") else (None, None)
        return blind_guesses(
            view.auxiliary,
            count,
            auxiliary_labels=view.auxiliary_labels,
            labels=view.labels,
            own_auxiliary=own[0],
            own=own[1],
            pixels=view.pixels,
        )

    def _without(self, attack: BlindAttack, view: BlindView, party: str, situation: Situation) -> float:
        """The leakage of the same readers that are given no numbers at all: what they owe to labels and own columns."""
        from veracausa.attacks.row_readers import ReaderOptions

        options = attack.options
        if not isinstance(options, ReaderOptions):
            return 0.0
        beside = KnownBeside(view, labelled=True)
        known = beside.of_auxiliary(view)
        nothing = torch.zeros(len(known), 1, dtype=torch.float64)
        fresh = view.replaced(rng=torch.Generator().manual_seed(view.rng.initial_seed()))
        reader = fit_reader(nothing, known, view.classes if beside.labelled else 0, fresh, options)
        count = len(situation.positions)
        guess = reader(torch.zeros(count, 1, dtype=torch.float64), beside.of_targets(view, count))
        return float(self._rows(situation, view, party, guess)[0].scores["leakage"])

    def _membership(self, situation: Situation, reading: BlindReading, party: str) -> dict[str, Any]:
        assert reading.membership is not None
        assert situation.member is not None
        found = {name: score_membership(values, situation.member) for name, values in reading.membership.items()}
        best = max(found, key=lambda name: found[name].auc)
        blind = self.system.job.blind
        noisy = situation.view.release.noise if hasattr(situation.view, "release") else 0.0
        bound = None
        if noisy:
            epsilon = 1.0 if situation.name.endswith("epsilon = 1") else float(blind.epsilon or 0.0)
            bound = membership_bound(epsilon, blind.delta)
        return {
            "statistic": best,
            "advantage": found[best].advantage,
            "auc": found[best].auc,
            "true_positives": found[best].true_positives,
            "chance": 0.0,
            "bound": bound,
            "samples": found[best].rows,
            "statistics": {name: {"auc": each.auc, "advantage": each.advantage} for name, each in found.items()},
        }


def _made(place: RowSituations | LabelSituations, names: Sequence[str]) -> Iterator[Situation]:
    for name in names:
        try:
            yield place.makers[name]()
        except InputError:  # this job has no such thing, for instance too few rows for a class
            continue


def row_scores(measured: Measured, samples: int, auxiliary: int) -> dict[str, Any]:
    """One situation's scores as the record of a split audit has them."""
    return {
        **measured.scores,
        "blind": measured.blind,
        "samples": samples,
        "auxiliary": auxiliary,
        "trivial": dict(measured.trivial),
        **measured.others,
    }


def works(scores: Mapping[str, Any]) -> bool:
    """Whether an attack did better than without anything opened, by a margin outside its own spread."""
    if "accuracy" in scores:
        return float(scores["accuracy"]) > max(float(scores["prior"]), float(scores["rows_alone"])) + WORKS_FROM
    if "auc" in scores and "statistic" in scores:
        return float(scores["advantage"]) > 2 / math.sqrt(float(scores["samples"]))
    told = scores["advantage"]
    lowest: float = lower_bound(told["share"], told["error"], told["rows"])
    return lowest > 0 and float(scores["leakage"]) >= WORKS_FROM


def granted_words(attack: type[BlindAttack], view: BlindView) -> list[str]:
    """What the attack was given: all that it needs, and what it makes use of where it is there."""
    given: Grant = attack.needs | (attack.uses & view.grants)
    return list(given.words)
