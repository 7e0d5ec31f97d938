"""The other half of an audit: what passive parties learn about the labels, its score, and the verdict on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa import seeding
from veracausa.attacks import label_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.gradient_record import GradientRecord
from veracausa.attacks.labels import LabelGuess, PassiveView, best_naming
from veracausa.audit.numbered import tell_share
from veracausa.audit.verdict import percent
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.models.runner import eval_mode, fetch_rows, threads_for
from veracausa.registry import Options
from veracausa.runs.folder import Run, write_json
from veracausa.training.checkpoints import restore_passive
from veracausa.training.evaluate import area_under_roc
from veracausa.training.recorders import gradients_folder
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema

_FILE = "label_attacks.json"
KNOWN = 5
"""Labels of every class that a party is given beforehand."""
_LARGEST_MAP = 4
MORE = 0.01
"""An attack learnt something if it is right this much more often than without it: less could be chance."""


def attack_labels(
    run: Run, dataset: VerticalDataset, parties: Sequence[str], observer: Observer, resume: bool = False
) -> None:
    """Attack the labels from the seat of each party whose gradients the run kept, and write down what it learnt."""
    found = _kept(run) if resume else {}
    for party in parties_to_attack(run, dataset, parties, resume):

        def heard(event: Event) -> None:
            observer({**event, "event": "attack", "attack": f"{event['attack']} (labels)"})

        with threads_for(run.job.runtime, dataset.parties[party].shape):
            found[party] = infer_labels(run, party, known=KNOWN, dataset=dataset, observer=heard)
        write_json(run.path / _FILE, found)


def parties_to_attack(run: Run, dataset: VerticalDataset, parties: Sequence[str], resume: bool = False) -> list[str]:
    """The parties whose gradients the run kept, less those that an earlier audit attacked, with `resume`."""
    if dataset.task != "classification" or dataset.parties[dataset.active].train.labels is None:
        return []
    kept = _kept(run) if resume else {}
    return [
        party for party in parties if party not in kept and any(gradients_folder(run.path, party).glob("*.safetensors"))
    ]


def label_entries(run: Run, baseline: Run | None) -> dict[str, Any]:
    """What a summary says of each attack on the labels: the party that learnt most, all parties, and the baseline's."""
    found, without = _kept(run), _kept(baseline) if baseline is not None else {}
    entries: dict[str, Any] = {}
    for name in dict.fromkeys(name for own in found.values() for name in own):
        by_party = {party: own[name] for party, own in found.items() if name in own}
        able = {party: own for party, own in by_party.items() if "accuracy" in own}
        if not able:
            entries[name] = next(iter(by_party.values()))
            continue
        worst = max(able, key=lambda party: learnt(able[party]))
        entries[name] = {**able[worst], "party": worst, "parties": by_party}
        beside = without.get(worst, {}).get(name, {})
        if "accuracy" in beside:
            entries[name]["undefended"] = {key: beside[key] for key in ("accuracy", "rows_alone") if key in beside}
    return entries


def learnt(entry: Mapping[str, Any]) -> float:
    """How much more often an attack is right than what its party knew before: the prior, or its own bare rows."""
    return float(entry["accuracy"]) - max(float(entry["prior"]), float(entry.get("rows_alone", 0.0)))


def label_verdict(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """What a passive party learns about the labels, in one sentence; empty where nothing could be tried."""
    able = {name: entry for name, entry in entries.items() if "accuracy" in entry}
    if not able:
        return ""
    strongest = max(able, key=lambda name: learnt(able[name]))
    entry = able[strongest]
    given = int(entry.get("known_labels", 0))
    knowing = f", though it was given {given} of them" if given else ""
    if learnt(entry) < MORE:
        return (
            "In the other direction no passive party tells the labels better than it could without the training"
            f"{knowing}; other attacks are not ruled out."
        )
    named = ", its groups given their best names" if entry.get("up_to_permutation") else ""
    before = "its own rows alone give" if "rows_alone" in entry else "always naming the commonest class gives"
    known = max(float(entry["prior"]), float(entry.get("rows_alone", 0.0)))
    right = percent(float(entry["accuracy"]))
    return (
        f"In the other direction {entry['party']} tells {right} of the labels by {strongest}"
        f"{named}{f', given {given} of them' if given else ''}; {before} {percent(known)}."
    )


def _kept(run: Run) -> dict[str, Any]:
    try:
        found = json.loads((run.path / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def infer_labels(
    run: Run,
    party: str,
    attacks: Sequence[str | Options] = (),
    known: int = KNOWN,
    dataset: VerticalDataset | None = None,
    observer: Observer = lambda event: None,
) -> dict[str, dict[str, Any]]:
    """What each attack (all, if none is named) learns of the labels of the party's training rows, by its name.

    `known` labels of every class are given to the party beforehand, and are not counted. An attack that cannot work
    here has an `unavailable` with the reason: gradients must have been kept in training (`GradientsReturned`). Where an
    attack learns from payloads, `rows_alone` is the accuracy it has from the party's bare rows: what the party knew
    before the federation, and what the attack must beat for the training to have told it anything.
    """
    dataset = load(run.job) if dataset is None else dataset
    labels = dataset.parties[dataset.active].train.labels
    if dataset.task != "classification" or labels is None:
        raise InputError(f"{run.path}: label inference needs a task with classes")
    restored = restore_passive(run, party, dataset.parties[party], Schema.of(dataset))
    everyone = torch.arange(len(labels))
    held = everyone[dataset.parties[party].train.present(everyone)]
    labels = labels.cpu()
    given = _drawn(held, labels, known, seeding.generator(run.job.seed, "label inference", party))
    counted = held[~torch.isin(held, given)]
    if not len(counted):
        raise InputError(f"{run.path}: {party!r} has no training row left whose label it would not know")
    seen: dict[str, Any] = {"payloads": _features(restored, held, len(everyone))}
    if any(gradients_folder(run.path, party).glob("*.safetensors")):
        seen["gradients"] = GradientRecord(gradients_folder(run.path, party))
    rows = torch.zeros(len(everyone), *dataset.parties[party].shape)
    rows[held] = dataset.parties[party].train.take(held).cpu()
    found: dict[str, dict[str, Any]] = {}
    for wanted in attacks or label_attacks.names():
        options = label_attacks.options(wanted)(name=wanted) if isinstance(wanted, str) else wanted
        attack = label_attacks.get(options.name)(options)
        event: Event = {"event": "label_attack", "attack": options.name, "party": party}
        observer({**event, "share": 0.0})
        view = PassiveView(
            grants=Grant.LABELLED_AUXILIARY if len(given) else Grant.NONE,
            party=party,
            classes=len(dataset.classes),
            rng=seeding.generator(run.job.seed, "label inference", options.name, party),
            device=restored.device,
            known_ids=given,
            known_labels=labels[given],
            progress=partial(tell_share, observer, event),
            **seen,
        )
        try:
            attack.begin(view.limited_to(attack.needs | attack.uses))
        except InputError as error:
            found[options.name] = {"unavailable": str(error)}
            continue
        score = score_labels(attack.infer(counted), labels[counted], view.classes)
        found[options.name] = {
            **vars(score),
            "granted": list(view.grants.words),
            "known_labels": len(given),
            "samples": len(counted),
            **attack.notes(),
        }
        if attack.learns_from_rows:
            attack.begin(view.replaced(payloads=rows, progress=lambda share: None))
            alone = score_labels(attack.infer(counted), labels[counted], view.classes)
            found[options.name]["rows_alone"] = alone.accuracy
    return found


def _drawn(held: Tensor, labels: Tensor, each: int, rng: torch.Generator) -> Tensor:
    """So many of the party's rows of every class."""
    shuffled = held[torch.randperm(len(held), generator=rng)]
    of_class = [shuffled[labels[shuffled] == label][:each] for label in torch.unique(labels)]
    return torch.cat(of_class).sort().values


def _features(party: PassiveParty, held: Tensor, count: int) -> Tensor:
    """By position, what the party's bottom model makes of its rows; zeros where it has none.

    Its own undefended output: nobody defends itself against itself. Large maps are pooled to bound the memory.
    """
    parts = []
    with eval_mode(party.bottom), torch.no_grad():
        for ids in torch.split(held, party.job.training.batch_size):
            output = party.bottom(fetch_rows(party.parts["train"], ids, party.job.runtime)).float()
            if output.ndim == 4:
                height, width = (min(side, _LARGEST_MAP) for side in output.shape[2:])
                output = F.adaptive_avg_pool2d(output, (height, width))
            parts.append(output.flatten(1).cpu())
    rows = torch.cat(parts)
    features = torch.zeros(count, rows.shape[1])
    features[held] = rows
    return features


@dataclass(frozen=True)
class LabelScore:
    """One attack's accuracy on the labels."""

    accuracy: float
    prior: float
    """The accuracy of the commonest class."""
    advantage: float
    up_to_permutation: bool
    """Whether the groups were given their best names by the truth, which no attacker has."""
    auc: float | None = None
    """For a binary task that the attack ranks: the chance that a row of class 1 stands above one of class 0."""


def score_labels(guess: LabelGuess, labels: Tensor, classes: int) -> LabelScore:
    """Score an attack's guess; one that knows only the groups is scored at the groups' best naming."""
    labels, found = labels.cpu(), guess.classes.cpu()
    if len(labels) != len(found):
        raise ValueError(f"{len(found)} guesses for {len(labels)} labels")
    if guess.up_to_permutation:
        found = best_naming(found, labels, classes)[found]
    accuracy, prior = int((found == labels).sum()) / len(labels), majority_prior(labels)
    auc = None
    if guess.score is not None and classes == 2 and len(torch.unique(labels)) == 2:
        auc = area_under_roc(guess.score.cpu(), labels == 1)
    return LabelScore(accuracy, prior, advantage(accuracy, prior), guess.up_to_permutation, auc)


def majority_prior(labels: Tensor) -> float:
    """The share of the commonest class."""
    return int(torch.unique(labels, return_counts=True)[1].max()) / len(labels)


def advantage(accuracy: float, prior: float) -> float:
    """(accuracy − prior) / (1 − prior): 1 is all labels, 0 no more than the prior, below 0 less; 0 if all are equal."""
    return (accuracy - prior) / (1 - prior) if prior < 1 else 0.0
