"""A passive party audits itself at home: of a run across organisations it has its own half, and nobody else's."""

from __future__ import annotations

from dataclasses import replace

from veracausa.config import Job
from veracausa.data.load import load
from veracausa.data.vertical import SPLITS, Part, PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.runs.folder import Run


def parties_here(run: Run, job: Job) -> list[str]:
    """The passive parties whose trained half lies in the run's folder."""
    parties = [name for name in job.parties.passive if (run.path / "parties" / name / "model.safetensors").is_file()]
    if not parties:
        raise InputError(f"{run.path}: no passive party's model is there; audit where a passive party ran")
    return parties


def is_own_site(run: Run, job: Job) -> bool:
    """Whether the folder is one organisation's part of a run across several."""
    return (run.path.parent / "federation.toml").is_file() and len(_folders(run)) < 1 + len(job.parties.passive)


def _folders(run: Run) -> list[str]:
    return [path.name for path in sorted((run.path / "parties").iterdir()) if (path / "party.toml").is_file()]


def data_of(run: Run, job: Job) -> VerticalDataset:
    """The data of a run: of all parties, or at one's own site of one, and an active party of whom nothing is known."""
    if not is_own_site(run, job):
        return load(job)
    from veracausa.federation.training_site import SplitSite

    (me,) = _folders(run)
    dataset = SplitSite(run.path.parent, me, secret=False, allow_model=run.allow_model).data_here()
    own = dataset.parties[me]
    nothing = {split: Part(len(own.part(split))) for split in SPLITS}
    unknown = PartyData(job.parties.active, (), nothing["train"], nothing["validation"], nothing["test"])
    return replace(dataset, parties={unknown.name: unknown, me: own})
