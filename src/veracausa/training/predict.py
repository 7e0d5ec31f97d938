"""Joint inference with a trained run: the same parties, their saved models, new rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veracausa.atomic import atomic_write, safe
from veracausa.config import Job
from veracausa.data.load import load, load_new
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.escaping import escaped
from veracausa.events import Observer
from veracausa.models import require_allowed
from veracausa.models.runner import choose_device
from veracausa.runs.folder import Run
from veracausa.training.checkpoints import check_shape, saved_model
from veracausa.training.evaluate import evaluate
from veracausa.training.protocols import protocol_of
from veracausa.training.split.program import Schema
from veracausa.wire.launch import Launch, Program
from veracausa.wire.link import Link

NAMED_ROWS = 1 << 16
"""Streamed rows that are read at a time for their ids and labels."""


@dataclass(frozen=True)
class Predictions:
    """The active party's outputs, a row an id."""

    ids: tuple[str, ...]
    classes: tuple[str, ...]
    outputs: Tensor
    """(rows, classes) probabilities, or (rows,) values for regression."""
    scores: dict[str, float]
    """Metrics, where the rows came with labels."""

    @property
    def labels(self) -> list[str]:
        """The predicted class of every row."""
        return [self.classes[i] for i in self.outputs.argmax(1).tolist()]

    def __repr__(self) -> str:
        what = f"{len(self.classes)} classes" if self.classes else "values"
        scores = "".join(f", {name} {value:.4g}" for name, value in self.scores.items())
        return escaped(f"Predictions({len(self.ids)} rows, {what}{scores})")

    def _repr_html_(self) -> str:
        from veracausa.report.notebook import predictions_html

        return predictions_html(self)

    def to_csv(self, path: Path, raw: bool = False) -> None:
        """Write id, prediction and, for classes, the probability of each.

        A text that a spreadsheet would run as a formula gets an apostrophe before it, unless `raw`.
        """
        cell: Callable[[str], str] = str if raw else safe
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if self.classes:
            rows.writerow(["id", "prediction", *(f"p_{name}" for name in self.classes)])
            for id_, label, values in zip(self.ids, self.labels, self.outputs.tolist(), strict=True):
                rows.writerow([cell(id_), cell(label), *(f"{value:.6f}" for value in values)])
        else:
            rows.writerow(["id", "prediction"])
            rows.writerows(zip(map(cell, self.ids), (f"{value:.6g}" for value in self.outputs.tolist()), strict=True))
        atomic_write(path, text.getvalue().encode())


@dataclass
class Serving:
    """One party that answers for new rows with its saved model."""

    run: Run
    job: Job
    data: PartyData
    schema: Schema
    model: Mapping[str, Any]
    results: dict[str, Tensor]

    def __call__(self, link: Link, notify: Observer) -> None:
        data = replace(self.data, train=self.data.train.none())  # it answers as it was trained: they are of no use
        served = protocol_of(self.job).serve(self.run.path, self.job, data, self.schema, self.model, link)
        if served is not None:
            self.results["outputs"] = served


def predict(
    run: Run | str | Path,
    data: Any = None,
    out: str | Path | None = None,
    raw: bool = False,
    allow_model: str | None = None,
) -> Predictions:
    """Joint predictions of a trained run: every party runs its own saved model on its own columns.

    run: a run, or the path of its folder.
    data: new rows, as one file or frame for all parties, or party -> its file, frame or array. Default: the run's own
    test rows.
    out: a CSV file to write them into.
    raw: write ids as they are, also where a spreadsheet would run one as a formula.
    allow_model: the `package.module:factory` that may run, where `run` is a path.

    >>> found = veracausa.predict("runs/mine", {"bank": "bank_new.csv", "clinic": "clinic_new.csv"})
    >>> found.ids, found.labels
    """
    run = run if isinstance(run, Run) else Run(run, allow_model)
    out = None if out is None else Path(out)
    if out is not None and not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder to write the predictions into; make it")
    job = run.job
    require_allowed(job.model)
    models = {name: saved_model(run, name) for name in (job.parties.active, *job.parties.passive)}
    dataset = load(job) if data is None else _new_rows(job, data, models)
    for name, party in dataset.parties.items():
        check_shape(name, party, models[name])
    schema = Schema.of(dataset)
    results: dict[str, Tensor] = {}
    order = sorted(dataset.parties, key=lambda name: name == dataset.active)
    programs: dict[str, Program] = {
        name: Serving(run, job, dataset.parties[name], schema, models[name], results) for name in order
    }
    # As many threads as in training, where the job says: a defense that adapts amplifies the rounding of a sum.
    threads = dict.fromkeys(order, job.runtime.cpu_threads) if job.runtime.cpu_threads else None
    device = str(choose_device(job.runtime.device))
    Launch("threads", job.runtime.timeout, device=device, cpu_threads=threads).run(programs)
    predictions = named(dataset, results["outputs"])
    if out is not None:
        predictions.to_csv(out, raw)
    return predictions


def _new_rows(job: Job, data: Any, models: Mapping[str, Mapping[str, Any]]) -> VerticalDataset:
    preprocessing = {name: model["preprocessing"] for name, model in models.items() if model["preprocessing"]}
    return load_new(job, data, preprocessing, tuple(models[job.parties.active]["classes"]))


def _known(part: Part) -> tuple[tuple[str, ...] | None, Tensor | None]:
    """Ids and labels of the rows, also where they are streamed."""
    if part.stream is None:
        return part.ids, part.labels
    ids: list[str] = []
    labels: list[Tensor] = []
    for block in part.blocks(NAMED_ROWS):
        ids += block.ids or ()
        labels += [] if block.labels is None else [block.labels]
    return tuple(ids), torch.cat(labels) if labels else None


def named(dataset: VerticalDataset, outputs: Tensor) -> Predictions:
    """The outputs for the test rows with what the active party calls rows and classes."""
    part = dataset.parties[dataset.active].test
    ids, labels = _known(part)
    ids = ids or next((p.test.ids for p in dataset.parties.values() if p.test.ids), None)
    ids = ids or tuple(str(i) for i in range(len(part)))
    scores = {} if labels is None else evaluate(dataset.task, outputs, labels)
    values = outputs.softmax(1) if dataset.task == "classification" else outputs.squeeze(1)
    return Predictions(ids, dataset.classes, torch.as_tensor(values), scores)
