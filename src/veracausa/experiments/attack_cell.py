"""A cell that attacks a training: who its victims are, what it read of them, and a few pictures."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import Grant
from veracausa.audit.classifier import PictureClassifier
from veracausa.audit.evaluation import AttackEvaluation, AttackOutcome
from veracausa.audit.live import attacked_live
from veracausa.audit.sample import Sample, choose
from veracausa.audit.settings import AuditSettings
from veracausa.audit.snapshots import headline_of
from veracausa.audit.usefulness import kept_usefulness, measure_usefulness
from veracausa.audit.victim import Victim
from veracausa.config import Job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import RunError
from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.experiment import COSINE
from veracausa.experiments.training_cell import TrainingCell, about_job, free_memory, job_settings
from veracausa.metrics.advantage import Advantage
from veracausa.registry import Options
from veracausa.runs import folder
from veracausa.runs.folder import Run
from veracausa.runs.store import Store
from veracausa.training.split.program import Schema

_SHOWN = 32
_EVERYBODY = 1 << 30


@dataclass(frozen=True)
class ResolvedAttack:
    """An attack as it is asked for, every setting resolved."""

    name: str
    settings: Mapping[str, Any]
    auxiliary: int
    victims: int
    parties: tuple[str, ...]
    per_class: int | None
    sets: bool
    snapshots: tuple[float, ...] = ()
    """Shares of the training before its end at which it reads, too."""
    from_training: bool = False
    until_converged: bool = False
    classify: bool = False

    @property
    def live(self) -> bool:
        """Whether it sits in on a training of its own, so that it needs no other."""
        return self.name != COSINE and bool(getattr(attacks.get(self.name), "live", False))

    @property
    def options(self) -> Options:
        return attacks.options(self.name).model_validate(dict(self.settings))


@dataclass(frozen=True)
class AttackCell(Cell):
    """One attack on a training."""

    job: Job
    attack: ResolvedAttack

    @cached_property
    def settings(self) -> dict[str, Any]:
        attack = dict(vars(self.attack))
        for name in ("snapshots", "from_training", "until_converged", "classify"):
            if not attack[name]:
                del attack[name]  # what does not ask for it is known by the same settings as ever
        return {"job": job_settings(self.job), "reading": attack}

    @property
    def about(self) -> str:
        return about_job(f"{self.attack.name} on {self.job.defense.name}", self.job)

    @property
    def needs(self) -> TrainingCell | None:
        """The training it reads; None for an attack that sits in on one of its own."""
        return None if self.attack.live else TrainingCell(self.job)

    def run(self, store: CellStore, observer: Observer) -> None:
        started = time.perf_counter()
        free_memory(self.job)
        training = self.needs
        if training is not None and training.trained(store) is None:
            with store.lock(training):
                if training.trained(store) is None:  # only its results came along: the model is needed again
                    training.run(store, observer)
        found, pictures = read(self, store)
        store.keep(self, {**found, "seconds": time.perf_counter() - started}, pictures)
        shutil.rmtree(store.work(self), ignore_errors=True)  # what an attack's own training left is of no more use


def read(cell: AttackCell, store: CellStore) -> tuple[dict[str, Any], bytes | None]:
    """The scores of the party and snapshot read best, the guesses without payload beside them, and pictures of it."""
    attack, dataset = cell.attack, load(cell.job)
    run = _run(cell, store)
    if attack.name == COSINE:
        measure_usefulness(run, dataset)
        kept = kept_usefulness(run)
        cosines = {name: {"mean": kept[name]} for name in ("centred", "uncentred", "to_clean") if name in kept}
        return {"scores": cosines, "notes": kept}, None
    read_at: list[list[AttackOutcome]] = []
    """Of every party at every snapshot the outcomes, one a set of victims."""
    for party in attack.parties or cell.job.parties.passive:
        if attack.live:
            sizes = (attack.auxiliary, attack.victims)
            read_at.append([attacked_live(run, dataset, attack.options, party, *sizes, lambda event: None)])
            continue
        read_at += [list(_outcomes(run, dataset, attack, party, *when)) for when in _snapshots(run, attack, party)]
    worst = max(read_at, key=leaked)
    parties = _parties(read_at)
    headline = headline_of(parties)
    scores = _scores(worst)
    scores["end_leakage"] = {"mean": headline["end"]["leakage"]}
    found = {
        "scores": scores,
        "advantage": {**vars(advantage_of(worst)), "chances": len(read_at)},
        "trivial": _means([outcome.measured["train"].trivial for outcome in worst]),
        "victims": sum(len(outcome.victims["train"]) for outcome in worst),
        **{name: headline[name] for name in ("party", "moment", "at", "coverage")},
        "parties": parties,
        "notes": dict(worst[0].notes),
    }
    return found, _pictures(worst[0], dataset)


def _snapshots(run: Run, attack: ResolvedAttack, party: str) -> list[tuple[float, int | None]]:
    """The wanted shares of the training as (share, step), where the run kept the model; the end last."""
    steps = int(run.summary.get("rounds", 0))
    wanted = {max(1, round(share * steps)) for share in attack.snapshots}
    kept = [step for step in Store(run.path, party).moment_steps() if step in wanted and step < steps]
    return [*((step / steps, step) for step in kept), (1.0, None)]


def leaked(outcomes: list[AttackOutcome]) -> float:
    """The leakage of several sets of victims: their errors are added up, and the sum is clipped at 0."""
    return outcomes[0].leakage if len(outcomes) == 1 else max(0.0, advantage_of(outcomes).share)


def advantage_of(outcomes: list[AttackOutcome]) -> Advantage:
    """The advantage over the blind guess of several sets of victims as of one."""
    told = [Advantage(**outcome.measured["train"].others["advantage"]) for outcome in outcomes]
    if len(told) == 1:
        return told[0]
    weights = [
        one.rows * outcome.measured["train"].scores["blind_mse"] for one, outcome in zip(told, outcomes, strict=True)
    ]
    whole = sum(weights) or 1.0
    share = sum(weight * one.share for weight, one in zip(weights, told, strict=True)) / whole
    errors = [
        None if one.error is None else weight * one.error / whole for weight, one in zip(weights, told, strict=True)
    ]
    known = [error for error in errors if error is not None]
    return Advantage(share, math.hypot(*known) if len(known) == len(errors) else None, sum(one.rows for one in told))


def _parties(read_at: list[list[AttackOutcome]]) -> dict[str, dict[str, Any]]:
    """By party what was read at the end, and at every snapshot where there are several."""
    parties: dict[str, dict[str, Any]] = {}
    for outcomes in read_at:
        first, own = outcomes[0], parties.setdefault(outcomes[0].party, {})
        if first.moment == 1:
            own["train"] = {"leakage": leaked(outcomes)}
        else:
            moment = {"moment": first.moment, "step": first.step, "train": leaked(outcomes)}
            own.setdefault("moments", []).append(moment)
    return parties


def _run(cell: AttackCell, store: CellStore) -> Run:
    if (training := cell.needs) is not None:
        run = training.trained(store)
        if run is None:
            raise RunError(f"{store.work(training)}: the training that this attack reads is not finished")
        return run
    path = store.work(cell)
    if not (path / "config.toml").is_file():
        folder.create(path, cell.job, {})
    return Run(path)


def _outcomes(
    run: Run, dataset: VerticalDataset, attack: ResolvedAttack, party: str, moment: float, step: int | None
) -> Iterator[AttackOutcome]:
    job, data, schema = run.job, dataset.parties[party], Schema.of(dataset)
    victim = Victim(run, data, schema, step)
    count = _EVERYBODY if attack.per_class else attack.victims
    options = attack.options
    known = AuditSettings.known if Grant.KNOWN_ROWS in attacks.get(options.name).needs else 0
    sample = choose(data, job.seed, attack.auxiliary, count, known, attack.from_training)
    for chosen in _sets(sample, _labels(dataset), attack):
        # UnSplit takes what it is given in one batch, so a large set comes in several.
        most = attacks.get(options.name)(options).most_victims if attack.sets else None
        for positions in torch.split(chosen.victims["train"], most or max(1, len(chosen.victims["train"]))):
            given = replace(chosen, victims={**chosen.victims, "train": positions})
            converged = attack.until_converged and step is None
            judge = None
            if attack.classify:
                judge = PictureClassifier.of(victim, dataset.parties[dataset.active], given, job.seed)
            evaluation = AttackEvaluation(job, dataset, victim, given, moment, judge)
            yield evaluation.attacked(options, lambda event: None, converged)


def _sets(sample: Sample, labels: Tensor | None, attack: ResolvedAttack) -> list[Sample]:
    if attack.per_class is None or labels is None:
        return [sample]
    train = sample.victims["train"]
    of_class = labels[train]
    parts = [train[of_class == label][: attack.per_class] for label in torch.unique(of_class)]
    victims = parts if attack.sets else [torch.cat(parts)]
    return [replace(sample, victims={"train": positions}) for positions in victims]


def _labels(dataset: VerticalDataset) -> Tensor | None:
    labels = dataset.parties[dataset.active].train.labels
    return None if labels is None or labels.is_floating_point() else labels


def _scores(outcomes: list[AttackOutcome]) -> dict[str, dict[str, float]]:
    """Score -> mean, and its spread over images; over sets, where several were attacked."""
    if len(outcomes) > 1:
        each = [_scores([outcome]) for outcome in outcomes]
        over_sets = {
            name: {"mean": fmean(values), "spread": stdev(values)}
            for name in each[0]
            if len(values := [scores[name]["mean"] for scores in each if name in scores]) > 1
        }
        # A mean of leakages that were clipped set by set would make one lucky set a leak.
        over_sets["leakage"]["mean"] = leaked(outcomes)
        return over_sets
    measured = outcomes[0].measured["train"]
    found: dict[str, dict[str, float]] = {name: {"mean": value} for name, value in measured.scores.items()}
    for name, each_image in measured.samples.items():
        taken = each_image[each_image.isfinite()].double()
        if len(taken) > 1:
            found[name]["spread"] = float(taken.std())
    for name, rates in measured.others.get("success", {}).items():
        found[f"success_{name}"] = {"mean": rates["attack"]}
        found[f"success_{name}_grey"] = {"mean": rates["grey"]}
        for beside in rates.keys() & {"no_payload", "originals"}:
            found[f"success_{name}_{beside}"] = {"mean": rates[beside]}
    identified = measured.others.get("identified", {})
    found |= {f"identified_{name}": {"mean": identified[name]} for name in ("top_1", "top_5") if name in identified}
    for told in measured.others.get("attributes", ()):
        found[f"r2_{told['attribute']}"] = {"mean": told["r2"]}
        found[f"r2_{told['attribute']}_blind"] = {"mean": told["blind"]}
    if "test" in outcomes[0].measured:
        found["test_leakage"] = {"mean": outcomes[0].measured["test"].scores["leakage"]}
    return found


def _means(tables: list[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(table[name] for table in tables) for name in tables[0]}


def _pictures(outcome: AttackOutcome, dataset: VerticalDataset) -> bytes | None:
    """Some victims with their classes, what was made of them, and the blind guess."""
    from safetensors.torch import save

    gallery = outcome.gallery
    if gallery is None:
        return None
    labels = _labels(dataset)
    kept = {
        name: getattr(gallery, name)[:_SHOWN].contiguous() for name in ("positions", "truth", "guess", "blind", "mse")
    }
    if labels is not None:
        kept["labels"] = labels[kept["positions"]].contiguous()
    return bytes(save(kept))


"""The name of a place's training among its cells; every other cell is an attack by its own name."""
