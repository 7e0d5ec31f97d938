"""One attack on one victim: whose rows, what the attacker is given, what it read, and what guessing alone achieves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Beside, FeatureAttack, Grant, LiveAttack
from veracausa.attacks.transcript import Transcript
from veracausa.audit.classifier import PictureClassifier
from veracausa.audit.measure import Gallery, Measured, example_rows, mean_errors, measure, trivial_guesses
from veracausa.audit.sample import Sample, labels_at, labels_of, own_rows
from veracausa.audit.settings import GRANTED
from veracausa.audit.victim import Pool, StackedVictim, Victim
from veracausa.config import Job
from veracausa.data.vertical import Split, VerticalDataset
from veracausa.defenses.protocols import Stochastic
from veracausa.events import Event, Observer
from veracausa.metrics.attributes import attribute_scores
from veracausa.metrics.leakage import blind_guesses, blind_mse
from veracausa.models.runner import threads_for
from veracausa.registry import Options
from veracausa.runs.store import Store

MOST_DRAWS, MOST_DRAWS_BY_BATCH = 32, 4
ENOUGH = 0.02
"""Twice the epochs may move the leakage by less than this, or the attack was too weak."""
MOST_DOUBLINGS = 3
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

    def __init__(
        self,
        job: Job,
        dataset: VerticalDataset,
        victim: Victim,
        sample: Sample,
        moment: float = 1.0,
        judge: PictureClassifier | None = None,
    ) -> None:
        self.judge = judge
        self.job, self.dataset, self.victim, self.sample, self.moment = job, dataset, victim, sample, moment
        self.active = dataset.parties[dataset.active]
        self.auxiliary = torch.cat([victim.rows(split, positions) for split, positions in sample.learnt_from])
        fitted = None if victim.pixels else victim.data.preprocessing
        self.groups, self.columns = column_groups(fitted), column_titles(fitted)

    def attacked(self, options: Options, observer: Observer, until_converged: bool = False) -> AttackOutcome:
        """The attack at its settings; `until_converged`: again and again with twice the effort until it settles."""
        best = last = self._once(options, observer)
        setting = attacks.get(options.name).until_converged
        if not (until_converged and setting):
            return best
        epochs = getattr(options, setting)
        strength = [{"epochs": float(epochs), "leakage": best.leakage}]
        for _ in range(MOST_DOUBLINGS):
            epochs *= 2
            before, last = last, self._once(options.model_copy(update={setting: epochs}), observer)
            strength.append({"epochs": float(epochs), "leakage": last.leakage})
            best = max(best, last, key=lambda outcome: outcome.leakage)
            if abs(last.leakage - before.leakage) < ENOUGH:
                break
        return AttackOutcome(**{**vars(best), "strength": strength})

    def _once(self, options: Options, observer: Observer) -> AttackOutcome:
        attack = attacks.get(options.name)(options)
        return self._given(attack.beside).read(attack, observer, begin=True)

    def _given(self, beside: Beside) -> AttackEvaluation:
        """The same of a victim whose payloads come with what the attack reads beside them."""
        if not any(beside):
            return self
        run, schema = self.victim.run, self.victim.schema
        names = [self.victim.name]
        if beside.parties:
            there = {path.parent.name for path in run.path.glob("parties/*/model.safetensors")} & set(
                self.dataset.parties
            )
            names += [name for name in self.job.parties.passive if name in there and name != self.victim.name]
        last = self.victim.step or int(run.summary.get("rounds", 0))
        others = []
        for name in names:
            kept = [step for step in Store(run.path, name).moment_steps() if step < last] if beside.moments else []
            steps = [*kept, *([] if name == self.victim.name else [self.victim.step])]
            others += [Victim(run, self.dataset.parties[name], schema, step) for step in steps]
        stacked = StackedVictim(self.victim, others)
        return AttackEvaluation(self.job, self.dataset, stacked, self.sample, self.moment, self.judge)

    def read(self, attack: FeatureAttack, observer: Observer, begin: bool = False) -> AttackOutcome:
        """What the attack makes of its victims' payloads; one that has watched the training needs not `begin`."""
        with threads_for(self.job.runtime, self.victim.payload_shape, self.victim.data.shape):
            return self._read(attack, observer, begin)

    def _read(self, attack: FeatureAttack, observer: Observer, begin: bool) -> AttackOutcome:
        options = attack.options
        started = time.perf_counter()
        victim = self.victim
        event: Event = {"event": "attack", "attack": options.name, "party": victim.name, "moment": self.moment}
        if victim.step is not None:
            event["step"] = victim.step
        observer({**event, "share": 0.0})
        draws = self._draws(attack)
        rng = seeding.generator(self.job.seed, "audit", "batches", victim.name)
        # Some that sat in on the training learn to read only now, from the trained victim.
        late = attack.reads_with if isinstance(attack, LiveAttack) else Grant.NONE
        decodes = _DECODES in (attack.needs | late)
        positions_of = self.sample.first(attack.most_victims)
        work = _Work(observer, event)
        if begin:
            attack.begin(self._view(options, draws, rng, work.beginning).limited_to(attack.needs | attack.uses))
        elif late and isinstance(attack, LiveAttack):
            attack.read_with(self._view(options, draws, rng, work.beginning).limited_to(late))
        measured: dict[Split, Measured] = {}
        gallery, rows = None, None
        for number, (split, positions) in enumerate(positions_of.items()):
            if not len(positions) or split not in attack.splits:
                continue
            work.reconstructing(number, len(positions_of))
            payloads = victim.payloads(split, positions, draws, rng, as_sent=not decodes)
            # Only training rows have a history: a test row's position is no training id.
            ids = positions if split == "train" else torch.full_like(positions, -1)
            attack.told(labels_at(self.active, split, positions))
            guess = attack.reconstruct(payloads, ids).to(victim.device)
            truth, blind = victim.rows(split, positions), self._blind(split, positions)
            found = measure(guess, truth, blind, victim.pixels, self.groups, self.columns)
            if victim.pixels:
                trivial = mean_errors(trivial_guesses(self.auxiliary, len(positions)), truth)
                others = {**found.others, "attributes": self._attributes(split, positions, guess, truth)}
                if self.judge is not None:
                    rates = self.judge.rates(guess, truth, blind, self.active, split, positions)
                    others["success"] = {**found.others["success"], "class": rates}
                found = Measured(**{**vars(found), "trivial": {**found.trivial, **trivial}, "others": others})
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
            len(self.auxiliary),
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
        victim, labels = self.victim, self.active.train.labels
        transcript = victim.transcript(self.active.name)
        # At one party's own site nobody has labels.
        known: dict[str, Any] = {
            "labels": None if labels is None else labels.to(victim.device),
            "auxiliary_labels": labels_of(self.active, self.sample.learnt_from),
            "transcript": transcript,
            "oracle_at": None if transcript is None else self._oracles(transcript.head.moments, draws, rng),
            "partners": self._partners() or None,
        }
        if len(ids := self.sample.known):
            known |= {"known_ids": ids, "known": victim.rows("train", ids)}
        unknown = Grant.LABELS if known["labels"] is None else Grant.NONE
        unknown |= Grant.LABELLED_AUXILIARY if known["auxiliary_labels"] is None else Grant.NONE
        unknown |= Grant.NONE if "known" in known else Grant.KNOWN_ROWS
        return AdversaryView(
            grants=GRANTED & ~unknown,
            victim=victim.name,
            payload_shape=victim.payload_shape,
            row_shape=victim.data.shape,
            pixels=victim.pixels,
            rng=seeding.generator(self.job.seed, "audit", options.name, victim.name),
            device=victim.device,
            auxiliary=self.auxiliary,
            classes=len(victim.schema.classes) if victim.schema.task == "classification" else 0,
            bottom=victim.fresh_bottom,
            defense=victim.own_defense,
            epochs=max(1, round(self.moment * self.job.training.epochs)),
            batch_size=self.job.training.batch_size,
            transmit=victim.transmit,
            oracle=_Oracle(lambda: victim, self.sample.learnt_from, draws, rng, redrawn=True),
            **_stacking(victim),
            fresh=victim.random or victim.by_batch,
            redrawn=victim.noisy,
            progress=progress,
            **known,
        )

    def _partners(self) -> dict[str, Transcript]:
        """What crossed from the other passive parties, where the active party kept it."""
        kept = self.victim.run.path / "parties" / self.active.name / "transcript"
        names = [name for name in self.job.parties.passive if name != self.victim.name]
        return {name: Transcript(kept / name) for name in names if (kept / name).is_dir()}

    def _oracles(self, moments: Mapping[str, int], draws: int, rng: torch.Generator) -> dict[str, _Oracle]:
        """By their names in the transcript, the moments at which the victim's model was kept, and the model's now."""
        victim, found = self.victim, dict[str, _Oracle]()
        kept = Store(victim.run.path, victim.name).moment_steps()
        last = max(moments.values(), default=0)
        for name, step in sorted(moments.items(), key=lambda moment: moment[1]):
            if step == last:
                found[name] = _Oracle(lambda: victim, self.sample.learnt_from, draws, rng)
            elif step in kept:
                earlier = partial(Victim, victim.run, victim.data, victim.schema, step)
                found[name] = _Oracle(earlier, self.sample.learnt_from, draws, rng)
        return found

    def _draws(self, attack: FeatureAttack) -> int:
        """How many payloads of an id the attacker averages: those it saw, one an epoch."""
        if not (self.victim.random or self.victim.by_batch):
            return 1
        most = MOST_DRAWS_BY_BATCH if self.victim.by_batch else MOST_DRAWS
        exchanges = round(self.moment * self.job.training.epochs)
        defense = self.victim.party.defense
        seen = max(1, defense.distinct_payloads(exchanges) if isinstance(defense, Stochastic) else exchanges)
        return attack.draws(min(most, seen))

    def _attributes(self, split: Split, positions: Tensor, guess: Tensor, truth: Tensor) -> list[dict[str, Any]]:
        labels = labels_at(self.active, split, positions), labels_of(self.active, self.sample.learnt_from)
        known = all(each is not None and not each.is_floating_point() for each in labels)
        groups = (labels[1], labels[0]) if known else None
        return attribute_scores(guess, truth, self.auxiliary, groups)  # type: ignore[arg-type]

    def _blind(self, split: Split, positions: Tensor) -> dict[str, Tensor]:
        beside = [own_rows(self.active, *part) for part in self.sample.learnt_from]
        known = [rows for rows in beside if rows is not None]
        own = [torch.cat(known) if len(known) == len(beside) else None, own_rows(self.active, split, positions)]
        both = own if all(rows is not None for rows in own) else [None, None]
        guesses = blind_guesses(
            self.auxiliary.cpu(),
            len(positions),
            auxiliary_labels=labels_of(self.active, self.sample.learnt_from),
            labels=labels_at(self.active, split, positions),
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
        parts: Sequence[tuple[Split, Tensor]],
        draws: int,
        rng: torch.Generator,
        redrawn: bool = False,
    ) -> None:
        self.victim, self.parts, self.draws, self.rng, self.redrawn = victim, parts, draws, rng, redrawn

    def __call__(self) -> Tensor:
        return self._source()

    @cached_property
    def _source(self) -> Callable[[], Tensor]:
        victim = self.victim()

        def drawn(draws: int, redrawn: bool = False) -> Tensor:
            found = [victim.payloads(*part, draws, self.rng, redrawn=redrawn) for part in self.parts]
            return found[0] if len(found) == 1 else torch.cat(found)

        if victim.by_batch:
            return Pool(partial(drawn, 1), self.draws, self.rng)
        return partial(drawn, self.draws, self.redrawn)


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


def _stacking(victim: Victim) -> dict[str, Any]:
    if not isinstance(victim, StackedVictim):
        return {}
    return {"stacked": len(victim.members), "from_first": victim.from_first}


def column_groups(preprocessing: Mapping[str, Any] | None) -> tuple[int, ...] | None:
    """For each feature of a table the number of the column it came from; a number's flag for "missing" stands alone."""
    if not preprocessing:
        return None
    groups: list[int] = []
    for column in preprocessing["columns"]:
        number = max(groups, default=-1) + 1
        if column["kind"] == "numeric":
            groups += [number, number + 1] if column["missing"] else [number]
        else:
            groups += [number] * (len(column["values"]) + bool(column.get("other")) + bool(column["missing"]))
    return tuple(groups)


def column_titles(preprocessing: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names of the columns that `column_groups` numbers."""
    titles: list[str] = []
    for column in preprocessing["columns"] if preprocessing else ():
        flagged = column["kind"] == "numeric" and column["missing"]
        titles += [column["name"], f"{column['name']}: missing"] if flagged else [column["name"]]
    return tuple(titles)
