"""Split training as one of the protocols: how its parties are checked, built, served and measured against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.config import Job
from veracausa.data.preprocessing import column_count
from veracausa.data.vertical import PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.models.cut import build_adapter, build_bottom, build_top, payload_shape
from veracausa.training import baselines
from veracausa.training.checkpoints import passive_of
from veracausa.training.hooks import ActivePartyHook
from veracausa.training.split.active import ActiveParty
from veracausa.training.split.halves import build_defended, make_defense
from veracausa.training.split.program import Party, Schema, make_party
from veracausa.wire.link import Link


class SplitTraining:
    """Payloads of rows go to the active party, gradients come back."""

    def check(self, job: Job, dataset: VerticalDataset) -> dict[str, int]:
        return cpu_threads(job, _check_parts(job, dataset))

    def epochs(self, job: Job) -> int:
        return job.training.epochs

    def make_party(
        self,
        job: Job,
        data: PartyData,
        schema: Schema,
        notify: Observer,
        watcher: ActivePartyHook | None,
        secret: bool,
    ) -> Party:
        return make_party(job, data, schema, notify, watcher)

    def serve(
        self, run: Path, job: Job, data: PartyData, schema: Schema, model: Mapping[str, Any], link: Link
    ) -> Tensor | None:
        if data.name != job.parties.active:
            passive_of(run, job, data, schema, model).run(link)
            return None
        party = ActiveParty(job, data, schema.task, schema.outputs, schema.join)
        party.meet(link)
        party.load_weights(model)
        outputs = party.outputs_of(link, "test").cpu()
        party.finish(link)
        return outputs

    def check_model(self, job: Job, party: str, model: Mapping[str, Any]) -> None:
        if party == job.parties.active:
            _ = model["top"], model["classes"], model["preprocessing"]
            return
        outputs = len(model["classes"]) or 1
        shape = tuple(int(size) for size in model["shape"])
        columns = column_count(model["preprocessing"])
        built = build_defended(job, party, shape, outputs, torch.Generator(), columns=columns)
        built.module.load_state_dict(model["bottom"])

    def described(self, job: Job, parties: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {"model": job.model.name, "cut": job.model.cut}

    def check_baselines(self, job: Job, dataset: VerticalDataset) -> None:
        baselines.check_baselines(job, dataset)

    def run_baselines(self, job: Job, dataset: VerticalDataset, observer: Observer) -> dict[str, dict[str, Any]]:
        threads = cpu_threads(job, _check_parts(job, dataset))[dataset.active]
        return baselines.run_baselines(job, dataset, observer, threads)


def _check_parts(job: Job, dataset: VerticalDataset) -> nn.Module:
    """The top model, after every part was built once."""
    schema, shapes = Schema.of(dataset), []
    for name, data in dataset.parties.items():
        if data.shape:
            rng = seeding.generator(job.seed, name)
            if name == dataset.active:
                bottom = build_bottom(job.model, data.shape, schema.outputs, rng)
                shapes.append(payload_shape(bottom, data.shape))
            else:
                shapes.append(_check_passive(job, data, schema.outputs, rng))
    return build_top(job.model, shapes, dataset.join, schema.outputs, seeding.generator(job.seed))


def _check_passive(job: Job, data: PartyData, outputs: int, rng: torch.Generator) -> tuple[int, ...]:
    """The shape that the top expects of this party, after its bottom, its defense and an adapter were built once."""
    party = data.name
    defense = make_defense(job, party)
    try:
        defense.check(data.shape)
        built = build_defended(job, party, data.shape, outputs, rng, defense, columns=data.columns)
        if built.payload != built.expected:
            build_adapter(built.payload, built.expected, rng)
    except InputError as error:
        raise InputError(f"party {party!r}: {error}") from None
    return built.expected


def cpu_threads(job: Job, top: nn.Module) -> dict[str, int]:
    """How many cores each party computes with, unless the job says so.

    Passive parties work at the same time and share the cores. The active party works while they wait and takes all of
    them, unless its top model is so small that waking the others would cost more than they bring.
    """
    cores = torch.get_num_threads()
    share = max(1, cores // len(job.parties.passive))
    convolutional = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in top.modules())
    fixed = job.runtime.cpu_threads
    return {
        **dict.fromkeys(job.parties.passive, fixed or share),
        job.parties.active: fixed or (cores if convolutional else share),
    }
