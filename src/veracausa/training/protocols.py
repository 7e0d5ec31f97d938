"""The ways to train together, by the name that a job's `training.protocol` says."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from veracausa.config import Job
from veracausa.data.vertical import PartyData, VerticalDataset
from veracausa.events import Observer
from veracausa.wire.link import Link

if TYPE_CHECKING:
    from veracausa.training.hooks import ActivePartyHook
    from veracausa.training.split.program import Party, Schema


class TrainingProtocol(Protocol):
    """What differs between the protocols; everything else of a run is the same for all."""

    def check(self, job: Job, dataset: VerticalDataset) -> dict[str, int]:
        """How many cores each party computes with, once everything was built that can be: what does not fit is known
        before anything is written."""

    def epochs(self, job: Job) -> int:
        """How many epochs a run has."""

    def make_party(
        self,
        job: Job,
        data: PartyData,
        schema: Schema,
        notify: Observer,
        watcher: ActivePartyHook | None,
        secret: bool,
    ) -> Party:
        """The party that holds `data`. `secret`: what hides its numbers comes from the system, not from the seed."""

    def serve(
        self, run: Path, job: Job, data: PartyData, schema: Schema, model: Mapping[str, Any], link: Link
    ) -> Tensor | None:
        """Take part in the prediction of the test rows of `data`: outputs at the active party, None at the others."""

    def check_model(self, job: Job, party: str, model: Mapping[str, Any]) -> None:
        """Try a saved model that came from elsewhere; `KeyError`, `ValueError` or `InputError` where it is none."""

    def described(self, job: Job, parties: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """What the summary says of the model and of the protocol; `parties` is what each said of itself."""

    def check_baselines(self, job: Job, dataset: VerticalDataset) -> None:
        """Refuse baselines that cannot be trained; they come last, and a run should not fail at its end."""

    def run_baselines(self, job: Job, dataset: VerticalDataset, observer: Observer) -> dict[str, dict[str, Any]]:
        """The scores of the baselines that the job asks for, on the test rows."""


_PROTOCOLS = {
    "split": ("veracausa.training.split.training", "SplitTraining"),
    "blind": ("veracausa.training.blind.program", "BlindTraining"),
}
"""Module and class of each, imported when asked for."""


def protocol_of(job: Job) -> TrainingProtocol:
    """The protocol that the job trains by."""
    module, name = _PROTOCOLS[job.training.protocol]
    made: TrainingProtocol = getattr(import_module(module), name)()
    return made
