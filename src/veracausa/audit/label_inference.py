"""Attack the labels of a finished run from the seat of one of its passive parties, and say what was learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa import seeding
from veracausa.attacks.base import Grant
from veracausa.attacks.labels import label_attacks
from veracausa.attacks.labels.base import LabelAttack, PassiveView
from veracausa.attacks.labels.gradient_record import GradientRecord
from veracausa.attacks.labels.returned import gradients_folder
from veracausa.audit.label_score import score_labels
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.models.runner import eval_mode, fetch_rows
from veracausa.registry import Options
from veracausa.runs.folder import Run
from veracausa.training.checkpoints import restore_passive
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema

KNOWN = 5
_LARGEST_MAP = 4


def _tell_share(observer: Observer, event: Event, share: float) -> None:
    observer({**event, "share": share})


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
        attack: LabelAttack = label_attacks.get(options.name)(options)
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
            progress=partial(_tell_share, observer, event),
            **seen,
        )
        try:
            attack.begin(view)
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
            attack.begin(replace(view, payloads=rows, progress=lambda share: None))
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
