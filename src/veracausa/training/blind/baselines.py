"""What blind training is measured against: the same maps and head in one place, and the active party alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.config import Job
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.features.base import FitLabels
from veracausa.training.baselines import prior
from veracausa.training.blind.active_block import ActiveBlock
from veracausa.training.blind.head import fit_head
from veracausa.training.blind.label_columns import LabelColumns
from veracausa.training.blind.rows import OwnColumns, fit_columns
from veracausa.training.evaluate import evaluate
from veracausa.training.split.program import Schema


@dataclass(frozen=True)
class PlainSums:
    """Sums of columns that lie in one place, in floating point."""

    rows: int
    slices: Mapping[str, slice]
    gram: Array
    noise: float = 0.0


def joint_scores(job: Job, dataset: VerticalDataset, names: Sequence[str]) -> dict[str, float]:
    """Test scores of the head on these parties' columns: in one place, without encryption, rounding, noise or dither.

    The active party is always among them. Labels are told as the job says, so that maps learn from the same ones.
    """
    active, schema = dataset.parties[dataset.active], Schema.of(dataset)
    targets = LabelColumns.of(job, active, schema)
    told = _told(job, dataset, targets)
    columns: dict[str, OwnColumns] = {}
    for name in names:
        data = dataset.parties[name]
        if data.train.has_features:
            key = seeding.derive_key(job.seed, name, "labels")
            labels = targets.own_labels(key) if name == dataset.active else _held(told, data.train.index)
            rng = seeding.generator(job.seed, name, "features")
            columns[name] = fit_columns(job, data, rng, labels, lambda share: None)
    order = [dataset.active, *(name for name in columns if name != dataset.active)]
    widths = {name: columns[name].width if name in columns else 0 for name in order}
    own = widths[dataset.active]
    widths[dataset.active] += 1 + targets.width
    ends = np.cumsum([widths[name] for name in order]).tolist()
    slices = {name: slice(end - widths[name], end) for name, end in zip(order, ends, strict=True)}
    block = ActiveBlock(job, active.train, columns.get(dataset.active), targets)
    block = block.without_heavy_rows(seeding.derive_key(job.seed, dataset.active, "left out"))
    sums = PlainSums(len(active.train), slices, _gram(job, dataset, columns, block, order))
    label = slice(own + 1, own + 1 + targets.width)
    head = fit_head(
        sums,
        slice(0, own),
        label,
        dataset.task,
        schema.outputs,
        job.blind.ridge,
        job.training.class_weights,
        targets.scale,
        answer_noise=0.0,
    )
    outputs, known = [], []
    parts = {name: dataset.parties[name].test.blocks(job.blind.block_rows) for name in order}
    for together in zip(*parts.values(), strict=True):
        blocks = dict(zip(parts, together, strict=True))
        scores = np.zeros((len(together[0]), head.scores_width))
        for name, fitted in columns.items():
            features = blocks[name].features
            assert features is not None
            scores += head.part(name, fitted.of(features))
        outputs.append(head.outputs(scores))
        labels = blocks[dataset.active].labels
        assert labels is not None
        known.append(labels)
    return evaluate(dataset.task, torch.cat(outputs), torch.cat(known))


def _gram(
    job: Job, dataset: VerticalDataset, columns: Mapping[str, OwnColumns], own: ActiveBlock, order: Sequence[str]
) -> Array:
    rows = job.blind.block_rows
    streams = {
        name: columns[name].training_blocks(dataset.parties[name].train, rows)
        for name in order
        if name != dataset.active
    }
    total = np.zeros((0, 0))
    for block in own.blocks():
        whole = np.concatenate([block, *(next(stream) for stream in streams.values())], axis=1)
        total = total + whole.T @ whole if total.size else whole.T @ whole
    return total


def _told(job: Job, dataset: VerticalDataset, targets: LabelColumns) -> FitLabels | None:
    if job.blind.labels == "none":
        return None
    told, classes, transition, _ = targets.told(seeding.derive_key(job.seed, dataset.active, "labels"))
    return FitLabels(torch.from_numpy(told), classes, transition)


def _held(labels: FitLabels | None, index: torch.Tensor | None) -> FitLabels | None:
    if labels is None or index is None:
        return labels
    held = index >= 0
    chances = labels.transition
    if chances is not None and chances.ndim == 3:
        chances = chances[held.numpy()]
    return FitLabels(labels.values[held], labels.classes, chances)


def check_baselines(job: Job, dataset: VerticalDataset) -> None:
    """Refuse what blind training has no baseline for."""
    if "unsplit" in job.training.baselines:
        raise InputError(
            'training.baselines: "unsplit" is the uncut network of split training; take "joint" or "active_only"'
        )
    if dataset.parties[dataset.active].test.labels is None and dataset.parties[dataset.active].test.stream is None:
        raise InputError("training.baselines: there are no test labels to score them on; leave them out")


def run_baselines(job: Job, dataset: VerticalDataset, observer: Observer) -> dict[str, dict[str, Any]]:
    """Train the baselines that the job asks for and score them on the test rows."""
    results: dict[str, dict[str, Any]] = {}
    for name in job.training.baselines:
        observer({"event": "baseline", "name": name})
        started = time.perf_counter()
        if name == "active_only" and not dataset.parties[dataset.active].train.has_features:
            results[name] = prior(dataset)
            continue
        names = list(dataset.parties) if name == "joint" else [dataset.active]
        results[name] = {**joint_scores(job, dataset, names), "seconds": time.perf_counter() - started}
    return results
