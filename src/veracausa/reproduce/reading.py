"""One attack on one cell's training: who its victims are, what it read of them, and a few pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from veracausa.audit.live import attacked_live
from veracausa.audit.samples import Sample, choose
from veracausa.audit.scene import Outcome, Scene
from veracausa.audit.usefulness import kept_usefulness, measure_usefulness
from veracausa.audit.victim import Victim
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import RunError
from veracausa.reproduce.experiment import COSINE
from veracausa.reproduce.plan import Cell, Reading
from veracausa.runs import folder
from veracausa.runs.folder import Run
from veracausa.split.party import Schema

if TYPE_CHECKING:
    from veracausa.reproduce.cells import Cells

_SHOWN = 32
_EVERYBODY = 1 << 30


def read(cell: Cell, cells: Cells) -> tuple[dict[str, Any], bytes | None]:
    """The scores of the party that is read best, the guesses without payload beside them, and pictures of it."""
    reading = cell.reading
    assert reading is not None
    dataset = load(cell.job)
    run = _run(cell, cells)
    if reading.name == COSINE:
        measure_usefulness(run, dataset)
        kept = kept_usefulness(run)
        cosines = {name: {"mean": kept[name]} for name in ("centred", "uncentred", "to_clean") if name in kept}
        return {"scores": cosines, "notes": kept}, None
    by_party = []
    for party in reading.parties or cell.job.parties.passive:
        if reading.live:
            sizes = (reading.auxiliary, reading.victims)
            by_party.append([attacked_live(run, dataset, reading.options, party, *sizes, lambda event: None)])
        else:
            by_party.append(list(_outcomes(run, dataset, reading, party)))
    worst = max(by_party, key=lambda outcomes: fmean(outcome.leakage for outcome in outcomes))
    found = {
        "scores": _scores(worst),
        "trivial": _means([outcome.measured["train"].trivial for outcome in worst]),
        "victims": sum(len(outcome.victims["train"]) for outcome in worst),
        "party": worst[0].party,
        "notes": dict(worst[0].notes),
    }
    return found, _pictures(worst[0], dataset)


def _run(cell: Cell, cells: Cells) -> Run:
    if (training := cell.training) is not None:
        run = cells.trained(training)
        if run is None:
            raise RunError(f"{cells.work(training)}: the training that this attack reads is not finished")
        return run
    path = cells.work(cell)
    if not (path / "config.toml").is_file():
        folder.create(path, cell.job, {})
    return Run(path)


def _outcomes(run: Run, dataset: VerticalDataset, reading: Reading, party: str) -> Iterator[Outcome]:
    job, data, schema = run.job, dataset.parties[party], Schema.of(dataset)
    victim = Victim(run, data, schema)
    count = _EVERYBODY if reading.per_class else reading.victims
    sample = choose(data, job.seed, reading.auxiliary, count)
    options = reading.options
    for chosen in _sets(sample, _labels(dataset), reading):
        # UnSplit takes what it is given in one batch, so a large set comes in several.
        most = getattr(options, "batch_size", None) if reading.sets else None
        for positions in torch.split(chosen.victims["train"], most or max(1, len(chosen.victims["train"]))):
            given = replace(chosen, victims={**chosen.victims, "train": positions})
            yield Scene(job, dataset, victim, given).attacked(options, lambda event: None)


def _sets(sample: Sample, labels: Tensor | None, reading: Reading) -> list[Sample]:
    if reading.per_class is None or labels is None:
        return [sample]
    train = sample.victims["train"]
    of_class = labels[train]
    parts = [train[of_class == label][: reading.per_class] for label in torch.unique(of_class)]
    victims = parts if reading.sets else [torch.cat(parts)]
    return [replace(sample, victims={"train": positions}) for positions in victims]


def _labels(dataset: VerticalDataset) -> Tensor | None:
    labels = dataset.parties[dataset.active].train.labels
    return None if labels is None or labels.is_floating_point() else labels


def _scores(outcomes: list[Outcome]) -> dict[str, dict[str, float]]:
    """Score -> mean, and its spread over images; over sets, where several were attacked."""
    if len(outcomes) > 1:
        each = [_scores([outcome]) for outcome in outcomes]
        return {
            name: {"mean": fmean(values), "spread": stdev(values)}
            for name in each[0]
            if len(values := [scores[name]["mean"] for scores in each if name in scores]) > 1
        }
    measured = outcomes[0].measured["train"]
    found: dict[str, dict[str, float]] = {name: {"mean": value} for name, value in measured.scores.items()}
    for name, each_image in measured.samples.items():
        taken = each_image[each_image.isfinite()].double()
        if len(taken) > 1:
            found[name]["spread"] = float(taken.std())
    for name, rates in measured.others.get("success", {}).items():
        found[f"success_{name}"] = {"mean": rates["attack"]}
        found[f"success_{name}_grey"] = {"mean": rates["grey"]}
    identified = measured.others.get("identified", {})
    found |= {f"identified_{name}": {"mean": identified[name]} for name in ("top_1", "top_5") if name in identified}
    if "test" in outcomes[0].measured:
        found["test_leakage"] = {"mean": outcomes[0].measured["test"].scores["leakage"]}
    return found


def _means(tables: list[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(table[name] for table in tables) for name in tables[0]}


def _pictures(outcome: Outcome, dataset: VerticalDataset) -> bytes | None:
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
