"""Blind training as one of the protocols: how its parties are checked, built, served and measured against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veracausa.config import Job
from veracausa.crypto.backends import encryption_class
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.training.blind import baselines
from veracausa.training.blind.active import BlindActive
from veracausa.training.blind.label_columns import LabelColumns
from veracausa.training.blind.passive import BlindPassive
from veracausa.training.blind.rows import check_rows
from veracausa.training.hooks import ActivePartyHook
from veracausa.training.split.program import Party, Schema
from veracausa.wire.link import Link


class BlindTraining:
    """Only sums over rows go to the active party, and scores of the rows it predicts."""

    def check(self, job: Job, dataset: VerticalDataset) -> dict[str, int]:
        encryption_class(job.blind.encryption)
        schema = Schema.of(dataset)
        LabelColumns.of(job, dataset.parties[dataset.active], schema)
        for name, data in dataset.parties.items():
            if data.train.has_features:
                check_rows(job, data)
            elif name != dataset.active:
                raise InputError(f"party {name!r} holds no columns; give it some, or leave it out")
        if dataset.parties[dataset.active].train.present_count() < len(dataset.parties[dataset.active].train):
            raise InputError("the active party lacks features of some training rows; leave these rows out")
        cores = job.runtime.cpu_threads or max(1, torch.get_num_threads() // len(dataset.parties))
        return dict.fromkeys(dataset.parties, cores)

    def epochs(self, job: Job) -> int:
        return 1

    def make_party(
        self,
        job: Job,
        data: PartyData,
        schema: Schema,
        notify: Observer,
        watcher: ActivePartyHook | None,
        secret: bool,
    ) -> Party:
        if watcher is not None:
            raise InputError("watchers look at payloads and gradients, and blind training has none")
        made = BlindActive if data.name == job.parties.active else BlindPassive
        return made(job, data, schema, notify, secret)

    def serve(
        self, run: Path, job: Job, data: PartyData, schema: Schema, model: Mapping[str, Any], link: Link
    ) -> Tensor | None:
        if data.name == job.parties.active:
            active = BlindActive(job, data, schema)
            active.load_model(model)
            active.load_key(run / "parties" / data.name)
            return active.outputs(link)
        passive = BlindPassive(job, data, schema)
        passive.load_model(model)
        passive.serve(link, run)
        return None

    def check_model(self, job: Job, party: str, model: Mapping[str, Any]) -> None:
        classes = tuple(map(str, model["classes"]))
        schema = Schema("classification" if classes else "regression", classes, "features")
        empty = Part(0)
        shape = tuple(int(size) for size in model["shape"])
        data = PartyData(party, shape, empty, empty, empty, model["preprocessing"])
        made = BlindActive if party == job.parties.active else BlindPassive
        made(job, data, schema).load_model(model)

    def described(self, job: Job, parties: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        blind = job.blind
        told: dict[str, Any] = next(
            (party.pop("blind_training") for party in parties.values() if "blind_training" in party), {}
        )
        features = {
            name: {
                "name": party.get("feature_map", "none"),
                "width": party.get("features", 0),
                "notes": party.get("feature_notes", []),
            }
            for name, party in parties.items()
        }
        return {
            "model": "ridge on features made at home",
            "blind_training": {
                "summed": len(job.parties.passive) > 1,
                "releases": 1,
                "encryption": blind.encryption,
                "epsilon": blind.epsilon,
                "delta": blind.delta if blind.epsilon is not None else None,
                "labels": blind.labels,
                "ridge_by": "gcv" if blind.ridge == "gcv" else "job",
                "step": blind.step,
                **told,
                "features": features,
            },
        }

    def check_baselines(self, job: Job, dataset: VerticalDataset) -> None:
        baselines.check_baselines(job, dataset)

    def run_baselines(self, job: Job, dataset: VerticalDataset, observer: Observer) -> dict[str, dict[str, Any]]:
        return baselines.run_baselines(job, dataset, observer)
