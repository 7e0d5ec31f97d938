"""Attack every passive party of a finished run, and write down what was read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, Attack, Grant
from veracausa.audit.measure import Measured, measure
from veracausa.audit.record import write_audit
from veracausa.audit.samples import Sample, choose, column_groups
from veracausa.audit.settings import attack_options
from veracausa.audit.victim import Pool, Victim
from veracausa.config import Job
from veracausa.data.load import load
from veracausa.data.vertical import PartyData, Split, VerticalDataset
from veracausa.errors import InputError
from veracausa.metrics.leakage import blind_guesses
from veracausa.registry import Options, did_you_mean
from veracausa.runs.folder import Run, locked
from veracausa.split.party import Schema

Observer = Callable[[Mapping[str, Any]], None]
MOST_DRAWS, MOST_DRAWS_BY_BATCH = 32, 4
ENOUGH = 0.02
"""Twice the epochs may move the leakage by less than this, or the attack was too weak (Appendix H)."""
MOST_DOUBLINGS = 3
_SHOWN = 12
_GRANTED = (
    Grant.ARCHITECTURE | Grant.LABELS | Grant.AUXILIARY | Grant.LABELLED_AUXILIARY | Grant.DEFENSE | Grant.WEIGHTS
)


@dataclass(frozen=True)
class Outcome:
    """What one attack read from one party."""

    party: str
    sample: Sample
    measured: Mapping[Split, Measured]
    pictures: tuple[Tensor, Tensor] | None
    """Some training victims, the best read first: truth and guess."""
    seconds: float
    draws: int
    notes: Mapping[str, float]
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


def audit_run(
    run: Run,
    attacks: Sequence[str] = ("inverse",),
    auxiliary: int = 4000,
    victims: int = 2000,
    overrides: Sequence[str] = (),
    parties: Sequence[str] | None = None,
    double: bool = False,
    observer: Observer = lambda event: None,
) -> dict[str, Any]:
    """Run these attacks on the passive parties of a finished run; gives what it adds to the run's `summary.json`.

    The attacker is the active party: it knows all labels, and the columns it holds itself. `auxiliary` rows come from
    the test split, `victims` from the training split and as many from the rest of the test split. With `double`, an
    attack that trains is trained again with twice the epochs, until that moves the leakage by less than two points.
    """
    options = attack_options(attacks, overrides)
    if auxiliary < 4 or victims < 1:
        raise InputError("an audit needs at least 4 auxiliary rows and 1 victim")
    if run.status.get("state") != "done" or not run.summary:
        raise InputError(f"{run.path}: the run is not finished; finish it with --resume, then audit it")
    job = run.job
    chosen = _parties(job, parties)
    dataset = load(job)
    schema = Schema.of(dataset)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in options}
    with locked(run.path):
        for party in chosen:
            victim = Victim(run, dataset.parties[party], schema)
            scene = _Scene(job, dataset, victim, choose(victim.data, job.seed, auxiliary, victims))
            for name, own in options.items():
                outcomes[name].append(scene.attacked(own, observer, double))
        return write_audit(run, options, outcomes)


def strength_check(run: Run, attack: str = "inverse", **settings: Any) -> dict[str, list[dict[str, float]]]:
    """Party by party, the epochs tried and the leakage each gave: whether the attack is as strong as it must be."""
    found = audit_run(run, (attack,), double=True, **settings)
    return {party: entry["strength"] for party, entry in found["attacks"][attack]["parties"].items()}


class _Scene:
    """One victim, its rows, and what an attacker can say of them without payloads."""

    def __init__(self, job: Job, dataset: VerticalDataset, victim: Victim, sample: Sample) -> None:
        self.job, self.victim, self.sample = job, victim, sample
        self.active = dataset.parties[dataset.active]
        self.auxiliary = victim.rows("test", sample.auxiliary)
        self.truth = {split: victim.rows(split, positions) for split, positions in sample.victims.items()}
        self.groups = None if victim.pixels else column_groups(victim.data.preprocessing)
        self.blind = {split: self._blind(split, positions) for split, positions in sample.victims.items()}

    def attacked(self, options: Options, observer: Observer, double: bool) -> Outcome:
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
        return Outcome(**{**vars(best), "strength": strength})

    def _once(self, options: Options, observer: Observer) -> Outcome:
        started = time.perf_counter()
        victim, sample = self.victim, self.sample
        event = {"event": "attack", "attack": options.name, "party": victim.name}
        observer({**event, "share": 0.0})
        draws = self._draws(options)
        rng = seeding.generator(self.job.seed, "audit", "batches", victim.name)
        oracle: Callable[[], Tensor] = partial(victim.payloads, "test", sample.auxiliary, draws, rng)
        if victim.by_batch:
            oracle = Pool(victim, "test", sample.auxiliary, draws, rng)
        attack: Attack = attacks.get(options.name)(options)
        attack.begin(
            AdversaryView(
                grants=_GRANTED,
                victim=victim.name,
                payload_shape=victim.payload_shape,
                row_shape=victim.data.shape,
                pixels=victim.pixels,
                rng=seeding.generator(self.job.seed, "audit", options.name, victim.name),
                device=victim.device,
                auxiliary=self.auxiliary,
                auxiliary_labels=_labels(self.active, "test", sample.auxiliary),
                oracle=oracle,
                fresh=victim.random or victim.by_batch,
                progress=lambda share: observer({**event, "share": share}),
            )
        )
        measured: dict[Split, Measured] = {}
        pictures = None
        for split, positions in sample.victims.items():
            if not len(positions):
                continue
            guess = attack.reconstruct(victim.payloads(split, positions, draws, rng), positions)
            truth = self.truth[split]
            measured[split] = measure(guess, truth, self.blind[split], victim.pixels, self.groups)
            if split == "train" and victim.pixels:
                # From the best read to the worst, evenly: the first alone would flatter the attack.
                order = measured[split].samples["mse"].argsort()
                shown = order[torch.linspace(0, len(order) - 1, min(_SHOWN, len(order))).round().long()]
                pictures = (truth[shown].cpu(), guess[shown].cpu())
        seconds = time.perf_counter() - started
        return Outcome(victim.name, sample, measured, pictures, seconds, draws, attack.notes())

    def _draws(self, options: Options) -> int:
        """How many payloads of an id the attacker averages: those it saw, one an epoch."""
        if not (self.victim.random or self.victim.by_batch):
            return 1
        most = MOST_DRAWS_BY_BATCH if self.victim.by_batch else MOST_DRAWS
        return getattr(options, "average", None) or min(most, self.job.training.epochs)

    def _blind(self, split: Split, positions: Tensor) -> dict[str, Tensor]:
        if not len(positions):
            return {}
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


def _labels(active: PartyData, split: Split, positions: Tensor) -> Tensor | None:
    labels = active.part(split).labels
    return None if labels is None else labels[positions.to(labels.device)]


def _own(active: PartyData, split: Split, positions: Tensor) -> Tensor | None:
    """What the attacker holds of these people itself, if it holds something of all of them."""
    part = active.part(split)
    if part.features is None or not active.shape or not part.present(positions).all():
        return None
    return part.take(positions)


def _parties(job: Job, wanted: Sequence[str] | None) -> list[str]:
    passive = list(job.parties.passive)
    for name in wanted or ():
        if name not in passive:
            raise InputError(f"{name!r} is no passive party of this run{did_you_mean(name, passive)}")
    return list(wanted) if wanted else passive
