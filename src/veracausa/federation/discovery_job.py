"""The agreed job of a discovery across organisations: what it means where a setting is left out, what is refused."""

from __future__ import annotations

from pathlib import Path

from veracausa.discovery.discover import make_method, resolved
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.job import DiscoveryJob, read_job
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.errors import InputError

ENCRYPTION = "bfv"
"""Taken between organisations where a job names none; in one place a discovery is a simulation, and takes none."""


def read_agreed(path: Path) -> tuple[DiscoveryJob, VFedCD]:
    """The job with all its settings, and its method; what can not be done across sites is refused.

    Every member reads the same bytes, so every member comes to the same encryption.
    """
    job = read_job(path)
    if "files" in job.data:
        raise InputError(f"{path}: data.files: where a party's file lies is its own; name the parties alone")
    if not job.parties:
        raise InputError(f"{path}: parties: is missing; say which parties hold which columns")
    if len(job.parties) < 2:
        raise InputError(f"{path}: parties: name two at least; an empty list of columns stands for all that one has")
    if job.method == "vfedcd" and "encryption" not in job.settings and not job.settings.get("strong"):
        job = job.model_copy(update={"settings": {**job.settings, "encryption": ENCRYPTION}})
    method = make_method(job)
    if not isinstance(method, VFedCD):
        raise InputError(f"{path}: method = {job.method!r}: needs all columns in one place; use vfedcd")
    if method.engine == "floating":
        raise InputError(f"{path}: settings.engine = 'floating' is for one place; leave it out")
    if method.encryption == "paillier" and not method.strong:
        raise InputError(
            f"{path}: settings.encryption = 'paillier' is for one machine: nothing proves that a partner's modulus is "
            "well formed, and one that is not need not hide what is computed under it; use bfv"
        )
    if method.bootstrap:
        raise InputError(f"{path}: settings.bootstrap: resamples are not trained across sites; set it to 0")
    if method.encryption == "none" and not method.strong and not job.simulation:
        raise InputError(
            f"{path}: settings.encryption = 'none': every partner would be sent the columns themselves; leave it out, "
            f"and {ENCRYPTION} is taken, or say simulation = true where no column is real"
        )
    method.engine_for(len(job.parties), given=True)
    return resolved(job, method), method


def own_discovery(folder: Path, me: str) -> tuple[DiscoveryJob, VFedCD]:
    """The agreed job as the member `me` of this folder runs it."""
    path = folder / "job.toml"
    job, method = read_agreed(path)
    if me not in (*job.parties, VALIDATOR):
        raise InputError(f"{path}: {me!r} has no part in this job")
    if me != VALIDATOR and not method.strong:
        from veracausa.crypto.backends import encryption_class

        encryption_class(method.encryption)  # its library may be missing, which is said before anybody is dialled
    return job, method
