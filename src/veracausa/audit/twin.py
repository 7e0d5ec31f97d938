"""The undefended twin of a job: the same in everything, but nobody defends."""

from __future__ import annotations

from veracausa.config import Job
from veracausa.registry import Options
from veracausa.runs.folder import Run

FOLDER = "twin"


def undefended(job: Job) -> Job:
    """The job with `defense = none` for every party, and without what only the job itself needs."""
    none = Options(name="none")
    party = {name: own.model_copy(update={"defense": None}) for name, own in job.party.items()}
    training = job.training.model_copy(update={"baselines": ()})
    return job.model_copy(update={"defense": none, "party": party, "training": training})


def defended_by(job: Job) -> str:
    """The names of the defenses that are on, in words; empty if there is none."""
    names = dict.fromkeys(job.defense_of(party).name for party in job.parties.passive)
    return " and ".join(name for name in names if name != "none")


def twin_of(run: Run) -> Run | None:
    """The finished undefended twin beside a run; the run itself if it is undefended; None if there is neither."""
    if not defended_by(run.job):
        return run
    path = run.path / FOLDER
    if not (path / "config.toml").is_file():
        return None
    twin = Run(path)
    return twin if twin.status.get("state") == "done" and twin.summary else None
