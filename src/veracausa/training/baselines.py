"""What a federation is measured against: the same graph in one process, the model unsplit, the active party alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.config import Job
from veracausa.data.vertical import PartyData, Split, VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Event, Observer, ProgressCallback
from veracausa.models.cut import build_bottom, build_top, build_whole, join, payload_shape
from veracausa.models.runner import choose_device, fetch_rows, precision_context, to_device
from veracausa.training.evaluate import evaluate, loss_function
from veracausa.training.optimization import BatchOrder, learning_rate, make_optimizer, set_learning_rate
from veracausa.training.split.active import EVALUATION_ROWS
from veracausa.training.split.program import Schema

TOLD = 100
"""How often a training says how far it is."""


class Centralised:
    """Plain training in one process: no parties, no messages, one optimiser over everything."""

    def __init__(self, job: Job, dataset: VerticalDataset, model: nn.Module, holders: Sequence[PartyData]) -> None:
        self.job, self.dataset, self.schema = job, dataset, Schema.of(dataset)
        self.device = choose_device(job.runtime.device)
        self.model = to_device(model, job.runtime, self.device)
        self.holders = [
            {split: holder.part(split).to(self.device) for split in ("train", "validation", "test")}
            for holder in holders
        ]
        active = dataset.parties[dataset.active]
        self.labels = {split: active.part(split).labels for split in ("train", "validation", "test")}
        labels = self.labels["train"]
        if labels is None:
            raise InputError("there are no training labels")
        self.target = labels.to(self.device)
        weights = job.training.class_weights
        self.loss = loss_function(self.schema.task, labels, self.schema.outputs, weights).to(self.device)
        self.optimizer = make_optimizer(self.model.parameters(), job.training.optimizer)
        self.precision = precision_context(job.runtime, self.device)
        self.positions = common_rows(holders)
        self.order = BatchOrder(self.positions, job.training.batch_size, job.seed)
        self.steps = job.training.epochs * self.order.per_epoch
        self.step = 0

    def rows(self, split: Split, ids: Tensor) -> list[Tensor]:
        return [fetch_rows(holder[split], ids, self.job.runtime) for holder in self.holders]

    def train_step(self) -> Tensor:
        """One step of ordinary back-propagation through the whole graph."""
        ids = self.order.batch(self.step)
        options = self.job.training
        rate = learning_rate(self.step, self.steps, options.optimizer.lr, options.schedule)
        set_learning_rate(self.optimizer, rate)
        with self.precision():
            output = self.model(self.rows("train", ids))
        loss: Tensor = self.loss(output.float(), self.target[ids.to(self.device)])
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def train(self, tell: ProgressCallback = lambda share: None) -> None:
        self.model.train()
        while self.step < self.steps:
            self.train_step()
            if self.step * TOLD // self.steps > (self.step - 1) * TOLD // self.steps:
                tell(self.step / self.steps)

    def outputs_of(self, split: Split) -> Tensor:
        self.model.eval()
        batches = torch.split(torch.arange(len(self.holders[0][split])), EVALUATION_ROWS)
        with torch.no_grad(), self.precision():
            outputs = torch.cat([self.model(self.rows(split, ids)).float() for ids in batches])
        self.model.train()
        return outputs

    def scores(self, split: Split = "test") -> dict[str, float]:
        labels = self.labels[split]
        assert labels is not None
        return evaluate(self.schema.task, self.outputs_of(split), labels)


def common_rows(holders: Sequence[PartyData]) -> Tensor:
    """The training positions that all of these parties hold."""
    everyone = torch.arange(len(holders[0].train))
    return everyone[torch.stack([holder.train.present(everyone) for holder in holders]).all(0)]


class JointGraph(nn.Module):
    """All bottoms and the top as one module, with the very weights the federation starts from."""

    def __init__(self, job: Job, dataset: VerticalDataset) -> None:
        super().__init__()
        schema = Schema.of(dataset)
        self.join_axis = dataset.join
        rngs = {name: seeding.generator(job.seed, name, "model") for name in dataset.parties}
        holders = {name: data for name, data in dataset.parties.items() if data.shape}
        bottoms = {
            name: build_bottom(
                job.model, data.shape, schema.outputs, rngs[name], None if name == dataset.active else data.columns
            )
            for name, data in holders.items()
        }
        shapes = [payload_shape(bottoms[name], data.shape) for name, data in holders.items()]
        self.bottoms = nn.ModuleDict(bottoms)
        self.top = build_top(job.model, shapes, dataset.join, schema.outputs, rngs[dataset.active])

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        payloads = [bottom(x) for bottom, x in zip(self.bottoms.values(), rows, strict=True)]
        output: Tensor = self.top(join(payloads, self.join_axis))
        return output


class WholeModel(nn.Module):
    """The ordinary model on the joined features, uncut."""

    def __init__(self, job: Job, dataset: VerticalDataset, holders: Sequence[PartyData]) -> None:
        super().__init__()
        self.join_axis = dataset.join
        shape = join([torch.zeros(1, *holder.shape) for holder in holders], dataset.join).shape[1:]
        rng = seeding.generator(job.seed, "unsplit", "model")
        self.model = build_whole(job.model, tuple(shape), Schema.of(dataset).outputs, rng)

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        output: Tensor = self.model(join(rows, self.join_axis))
        return output


def joint(job: Job, dataset: VerticalDataset) -> Centralised:
    """The federation's graph in one process."""
    holders = [data for data in dataset.parties.values() if data.shape]
    return Centralised(job, dataset, JointGraph(job, dataset), holders)


def unsplit(job: Job, dataset: VerticalDataset) -> Centralised:
    """The ordinary, uncut model on everybody's features."""
    holders = [data for data in dataset.parties.values() if data.shape]
    return Centralised(job, dataset, WholeModel(job, dataset, holders), holders)


def active_only(job: Job, dataset: VerticalDataset) -> Centralised | None:
    """The same model on the active party's own features; None where it has none."""
    active = dataset.parties[dataset.active]
    if not active.shape:
        return None
    alone = replace(dataset, parties={active.name: active})
    return Centralised(job, alone, WholeModel(job, alone, [active]), [active])


def check_baselines(job: Job, dataset: VerticalDataset) -> None:
    """Refuse baselines that cannot be trained; they come last, and a run should not fail at its end."""
    everybody = list(dataset.parties)
    holders = {"unsplit": everybody, "joint": everybody, "active_only": [dataset.active]}
    for name in job.training.baselines:
        features = [dataset.parties[party] for party in holders[name] if dataset.parties[party].shape]
        if features and not len(common_rows(features)):
            raise InputError(
                f"training.baselines: {name}: no training row is held by all parties, so there is no common table; "
                "leave it out, active_only needs none"
            )
        if features and name != "joint":
            try:
                WholeModel(job, dataset, features)
            except InputError as error:
                raise InputError(f"training.baselines: {name}: {error}") from error


def run_baselines(
    job: Job, dataset: VerticalDataset, observer: Observer = lambda event: None, threads: int | None = None
) -> dict[str, dict[str, Any]]:
    """Train the baselines that the job asks for and score them on the test rows.

    threads: with how many cores; default: all. Steps of small models wait for more threads longer than these compute.
    """
    makers: dict[str, Callable[[Job, VerticalDataset], Centralised | None]] = {
        "joint": joint,
        "unsplit": unsplit,
        "active_only": active_only,
    }
    before = torch.get_num_threads()
    torch.set_num_threads(job.runtime.cpu_threads or threads or before)
    try:
        return {name: _result(makers[name], name, job, dataset, observer) for name in job.training.baselines}
    finally:
        torch.set_num_threads(before)


def _result(
    make: Callable[[Job, VerticalDataset], Centralised | None],
    name: str,
    job: Job,
    dataset: VerticalDataset,
    observer: Observer,
) -> dict[str, Any]:
    about: Event = {"event": "baseline", "name": name}
    observer({**about, "share": 0.0})
    started = time.perf_counter()
    trained = make(job, dataset)
    if trained is None:
        return prior(dataset)
    trained.train(lambda share: observer({**about, "share": share}))
    result = {**trained.scores(), "seconds": time.perf_counter() - started}
    rows, of = len(trained.positions), len(trained.holders[0]["train"])
    return result if rows == of else {**result, "note": f"trained on the {rows} of {of} rows that all parties hold"}


def prior(dataset: VerticalDataset) -> dict[str, Any]:
    """What labels alone give: always the commonest class, or the mean."""
    active = dataset.parties[dataset.active]
    labels, test = active.train.labels, active.test.labels
    assert labels is not None
    assert test is not None
    if dataset.task == "classification":
        counts = torch.bincount(labels, minlength=len(dataset.classes)).float()
        output = (counts / counts.sum()).clamp(min=1e-12).log().repeat(len(test), 1)
    else:
        output = labels.mean().repeat(len(test), 1)
    return {**evaluate(dataset.task, output, test), "note": "no features: the labels' prior"}
