"""Whether a job can run at all, without running it."""

from __future__ import annotations

from veracausa.config import Job
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError


def why_not(job: Job, dataset: VerticalDataset) -> str:
    """Why this job cannot run on this data; empty if it can. Builds every party's model once, trains nothing."""
    from veracausa.split.train import check_models

    try:
        check_models(job, dataset)
    except InputError as error:
        return str(error)
    return ""
