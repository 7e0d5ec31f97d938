"""One victim as an attack finds it: its payloads, what the attacker is given, and what guessing alone achieves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Attack, Grant
from veracausa.audit.gallery import Gallery
from veracausa.audit.measure import Measured, mean_errors, measure, trivial_guesses
from veracausa.audit.samples import Sample, column_groups, column_titles
from veracausa.audit.settings import most_victims
from veracausa.audit.table_rows import example_rows
from veracausa.audit.victim import Pool, Victim
from veracausa.config import Job
from veracausa.data.vertical import PartyData, Split, VerticalDataset
from veracausa.defenses.protocols import Stochastic
from veracausa.events import Event, Observer
from veracausa.metrics.leakage import blind_guesses, blind_mse
from veracausa.registry import Options
from veracausa.runs.store import Store

MOST_DRAWS, MOST_DRAWS_BY_BATCH = 32, 4
ENOUGH = 0.02
"""Twice the epochs may move the leakage by less than this, or the attack was too weak."""
MOST_DOUBLINGS = 3
GRANTED = Grant.ARCHITECTURE | Grant.LABELS | Grant.AUXILIARY | Grant.LABELLED_AUXILIARY | Grant.DEFENSE | Grant.WEIGHTS
"""What can be granted after the fact, by a run's folder; queries and tampering take a training of their own."""
_DECODES = Grant.AUXILIARY | Grant.WEIGHTS


@dataclass(frozen=True)
class AttackOutcome:
    """What one attack read from one party at one moment of its training."""

    party: str
    moment: float
    """Which share of the training was done; 1: the trained model."""
    victims: Mapping[Split, Tensor]
    auxiliary: int
    measured: Mapping[Split, Measured]
    gallery: Gallery | None
    seconds: float
    draws: int
    notes: Mapping[str, float]
    step: int | None = None
    """After which training step; None: after the last."""
    rows: Mapping[str, Any] | None = None
    """Of a table, a few rows as they were read."""
    strength: list[dict[str, float]] = field(default_factory=list)
    """Epochs and leakage of every training, where doubling was asked for."""

    @property
    def leakage(self) -> float:
        return self.measured["train"].scores["leakage"]

    @property
    def settled(self) -> bool | None:
        """Whether the last doubling hardly moved the figure; None where it was not tried."""
        if len(self.strength) < 2:
            return None
        return abs(self.strength[-1]["leakage"] - self.strength[-2]["leakage"]) < ENOUGH


class AttackEvaluation:
    """One victim, its rows, and what an attacker can say of them without payloads."""

    def __init__(self, job: Job, dataset: VerticalDataset, victim: Victim, sample: Sample, moment: float = 1.0) -> None:
        self.job, self.victim, self.sample, self.moment = job, victim, sample, moment
        self.active = dataset.parties[dataset.active]
        self.auxiliary = victim.rows("test", sample.auxiliary)
        fitted = None if victim.pixels else victim.data.preprocessing
        self.groups, self.columns = column_groups(fitted), column_titles(fitted)

    def attacked(self, options: Options, observer: Observer, double: bool = False) -> AttackOutcome:
        """The attack at its settings; with `double`, again and again with twice the epochs until it settles."""
        best = last = self._once(options, observer)
        epochs = getattr(options, "epochs", None)
        if not double or epochs is None:
            return best
        strength = [{"epochs": float(epochs), "leakage": best.leakage}]
        for _ in range(MOST_DOUBLINGS):
            epochs *= 2
            before, last = last, self._once(options.model_copy(update={"epochs": epochs}), observer)
            strength.append({"epochs": float(epochs), "leakage": last.leakage})
            best = max(best, last, key=lambda outcome: outcome.leakage)
            if abs(last.leakage - before.leakage) < ENOUGH:
                break
        return AttackOutcome(**{**vars(best), "strength": strength})

    def _once(self, options: Options, observer: Observer) -> AttackOutcome:
        attack: Attack = attacks.get(options.name)(options)
        return self.read(attack, options, observer, begin=True)

    def read(self, attack: Attack, options: Options, observer: Observer, begin: bool = False) -> AttackOutcome:
        """What the attack makes of its victims' payloads; one that has watched the training needs not `begin`."""
        started = time.perf_counter()
        victim = self.victim
        event: Event = {"event": "attack", "attack": options.name, "party": victim.name, "moment": self.moment}
        if victim.step is not None:
            event["step"] = victim.step
        observer({**event, "share": 0.0})
        draws = self._draws(options)
        rng = seeding.generator(self.job.seed, "audit", "batches", victim.name)
        # Some that sat in on the training learn to read only now, from the trained victim.
        read_with: Callable[[AdversaryView], None] | None = getattr(attack, "read_with", None)
        decodes = _DECODES in attack.needs or read_with is not None
        positions_of = self.sample.first(most_victims(options))
        work = _Work(observer, event)
        if begin or read_with is not None:
            (attack.begin if begin or read_with is None else read_with)(self._view(options, draws, rng, work.beginning))
        measured: dict[Split, Measured] = {}
        gallery, rows = None, None
        for number, (split, positions) in enumerate(positions_of.items()):
            if not len(positions):
                continue
            work.reconstructing(number, len(positions_of))
            payloads = victim.payloads(split, positions, draws, rng, as_sent=not decodes)
            # Only training rows have a history: a test row's position is no training id.
            ids = positions if split == "train" else torch.full_like(positions, -1)
            attack.told(_labels(self.active, split, positions))
            guess = attack.reconstruct(payloads, ids).to(victim.device)
            truth, blind = victim.rows(split, positions), self._blind(split, positions)
            found = measure(guess, truth, blind, victim.pixels, self.groups, self.columns)
            if victim.pixels:
                trivial = mean_errors(trivial_guesses(self.auxiliary, len(positions)), truth)
                found = Measured(**{**vars(found), "trivial": {**found.trivial, **trivial}})
                if split == "train":
                    best_guess = blind[blind_mse(blind, truth)[1]]
                    gallery = Gallery.of(positions, truth, guess, best_guess, found.samples["mse"])
            elif split == "train":
                rows = example_rows(victim.data.preprocessing, positions, truth, guess, found.samples["mse"])
            measured[split] = found
        return AttackOutcome(
            victim.name,
            self.moment,
            positions_of,
            len(self.sample.auxiliary),
            measured,
            gallery,
            time.perf_counter() - started,
            draws,
            attack.notes(),
            victim.step,
            rows,
        )

    def _view(
        self, options: Options, draws: int, rng: torch.Generator, progress: Callable[[float], None]
    ) -> AdversaryView:
        victim = self.victim
        labels = self.active.train.labels
        transcript = victim.transcript(self.active.name)
        return AdversaryView(
            grants=GRANTED,
            victim=victim.name,
            payload_shape=victim.payload_shape,
            row_shape=victim.data.shape,
            pixels=victim.pixels,
            rng=seeding.generator(self.job.seed, "audit", options.name, victim.name),
            device=victim.device,
            auxiliary=self.auxiliary,
            auxiliary_labels=_labels(self.active, "test", self.sample.auxiliary),
            labels=None if labels is None else labels.to(victim.device),
            classes=len(victim.schema.classes) if victim.schema.task == "classification" else 0,
            bottom=victim.fresh_bottom,
            defense=victim.own_defense,
            epochs=max(1, round(self.moment * self.job.training.epochs)),
            batch_size=self.job.training.batch_size,
            transmit=victim.transmit,
            transcript=transcript,
            oracle=_Oracle(lambda: victim, self.sample.auxiliary, draws, rng, redrawn=True),
            oracle_at=None if transcript is None else self._oracles(transcript.head.moments, draws, rng),
            fresh=victim.random or victim.by_batch,
            redrawn=victim.noisy,
            progress=progress,
        )

    def _oracles(self, moments: Mapping[str, int], draws: int, rng: torch.Generator) -> dict[str, _Oracle]:
        """By their names in the transcript, the moments at which the victim's model was kept, and the model's now."""
        victim, found = self.victim, dict[str, _Oracle]()
        kept = Store(victim.run.path, victim.name).moment_steps()
        last = max(moments.values(), default=0)
        for name, step in sorted(moments.items(), key=lambda moment: moment[1]):
            if step == last:
                found[name] = _Oracle(lambda: victim, self.sample.auxiliary, draws, rng)
            elif step in kept:
                earlier = partial(Victim, victim.run, victim.data, victim.schema, step)
                found[name] = _Oracle(earlier, self.sample.auxiliary, draws, rng)
        return found

    def _draws(self, options: Options) -> int:
        """How many payloads of an id the attacker averages: those it saw, one an epoch."""
        if not (self.victim.random or self.victim.by_batch):
            return 1
        most = MOST_DRAWS_BY_BATCH if self.victim.by_batch else MOST_DRAWS
        exchanges = round(self.moment * self.job.training.epochs)
        defense = self.victim.party.defense
        seen = max(1, defense.distinct_payloads(exchanges) if isinstance(defense, Stochastic) else exchanges)
        return getattr(options, "average", None) or min(most, seen)

    def _blind(self, split: Split, positions: Tensor) -> dict[str, Tensor]:
        own = [_own(self.active, "test", self.sample.auxiliary), _own(self.active, split, positions)]
        both = own if all(rows is not None for rows in own) else [None, None]
        guesses = blind_guesses(
            self.auxiliary.cpu(),
            len(positions),
            auxiliary_labels=_labels(self.active, "test", self.sample.auxiliary),
            labels=_labels(self.active, split, positions),
            own_auxiliary=both[0],
            own=both[1],
            pixels=self.victim.pixels,
        )
        return {name: guess.to(self.victim.device) for name, guess in guesses.items()}


class _Oracle:
    """The victim's own payloads of the auxiliary rows, drawn anew at each call; nothing is drawn before the first.

    Noise that belongs to a row only where it is `redrawn`; at moments of the training it must stay, and cancel.
    """

    def __init__(
        self,
        victim: Callable[[], Victim],
        positions: Tensor,
        draws: int,
        rng: torch.Generator,
        redrawn: bool = False,
    ) -> None:
        self.victim, self.positions, self.draws, self.rng, self.redrawn = victim, positions, draws, rng, redrawn

    def __call__(self) -> Tensor:
        return self._source()

    @cached_property
    def _source(self) -> Callable[[], Tensor]:
        victim = self.victim()
        if victim.by_batch:
            return Pool(victim, "test", self.positions, self.draws, self.rng)
        return partial(victim.payloads, "test", self.positions, self.draws, self.rng, redrawn=self.redrawn)


class _Work:
    """Turns an attack's own progress, of learning and then of each reconstruction, into shares of the whole."""

    def __init__(self, observer: Observer, event: Event) -> None:
        self.observer, self.event = observer, event
        self.start, self.length = 0.0, 1.0

    def beginning(self, share: float) -> None:
        """What `begin` is told to report to; attacks keep it and report their reconstructions to it, too."""
        self.observer({**self.event, "share": max(1e-6, self.start + self.length * share)})

    def reconstructing(self, number: int, parts: int) -> None:
        self.start, self.length = number / parts, 1 / parts


def _labels(active: PartyData, split: Split, positions: Tensor) -> Tensor | None:
    labels = active.part(split).labels
    return None if labels is None else labels[positions.to(labels.device)]


def _own(active: PartyData, split: Split, positions: Tensor) -> Tensor | None:
    """What the attacker holds of these people itself, if it holds something of all of them."""
    part = active.part(split)
    if part.features is None or not active.shape or not part.present(positions).all():
        return None
    return part.take(positions)
