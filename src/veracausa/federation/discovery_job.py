"""The agreed job of a discovery across organisations: what it means where a setting is left out, what is refused."""

from __future__ import annotations

from pathlib import Path

from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.discover import make_method, resolved
from veracausa.discovery.engines.literal.protocol import UNSOUND
from veracausa.discovery.engines.mpc.servers import named_servers
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.job import DiscoveryJob, read_job
from veracausa.discovery.methods import methods
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.errors import InputError

METHOD = "moments"
"""Taken between organisations where a job names no method, or `auto`: of rows only sums are opened."""
ENCRYPTION = "bfv"
"""Taken between organisations where a job names none; in one place a discovery is a simulation, and takes none."""


def read_agreed(path: Path) -> tuple[DiscoveryJob, CausalDiscovery]:
    """The job with all its settings, and its method; what can not be done across sites is refused.

    Every member reads the same bytes, so every member comes to the same method and encryption.
    """
    job = read_job(path)
    if "files" in job.data:
        raise InputError(f"{path}: data.files: where a party's file lies is its own; name the parties alone")
    if not job.parties:
        raise InputError(f"{path}: parties: is missing; say which parties hold which columns")
    if len(job.parties) < 2:
        raise InputError(f"{path}: parties: name two at least; an empty list of columns stands for all that one has")
    if job.method == "auto" or "method" not in job.model_fields_set:
        _refuse_of_networks(path, job)
        job = job.model_copy(update={"method": METHOD})
    if job.method not in ("moments", "vfedcd"):
        raise InputError(f"{path}: method = {job.method!r}: needs all columns in one place; use moments or vfedcd")
    if (
        "encryption" not in job.settings
        and not job.settings.get("strong")
        and "encryption" in methods.options(job.method).model_fields
    ):
        job = job.model_copy(update={"settings": {**job.settings, "encryption": ENCRYPTION}})
    method = make_method(job)
    if isinstance(method, VFedCD):
        _check_vfedcd(path, job, method)
    elif isinstance(method, MomentSearch):
        _check_moments(path, job, method.settings())
    return resolved(job, method), method


def members_of(job: DiscoveryJob, method: CausalDiscovery) -> tuple[str, ...]:
    """The parties, and the validator unless the parties open everything themselves."""
    if isinstance(method, MomentSearch) and method.settings().receiver == "all":
        return tuple(job.parties)
    return (*job.parties, VALIDATOR)


def drops_rows(method: CausalDiscovery) -> bool:
    """Whether rows that lack a value take no part. Sums are over the rows in which both columns have one."""
    return isinstance(method, VFedCD) and method.missing == "drop"


def _refuse_of_networks(path: Path, job: DiscoveryJob) -> None:
    """A job of before may name VFedCD's settings and no method: it must not become another one unseen."""
    theirs = set(VFedCD.job_options()) - set(MomentSearch.job_options())
    if "networks" in job.settings or (odd := sorted(set(job.settings) & theirs)):
        first = "networks" if "networks" in job.settings else odd[0]
        raise InputError(
            f"{path}: settings.{first}: is VFedCD's, and between organisations a job that does not name it is searched "
            'from sums alone; leave it out, or write method = "vfedcd", by which partners can solve for columns'
        )


def _check_vfedcd(path: Path, job: DiscoveryJob, method: VFedCD) -> None:
    if method.engine == "floating":
        raise InputError(f"{path}: settings.engine = 'floating' is for one place; leave it out")
    if method.protocol == "literal":
        raise InputError(f"{path}: settings.{UNSOUND}")
    if method.encryption == "paillier" and not method.strong:
        raise InputError(
            f"{path}: settings.encryption = 'paillier' is for one machine: nothing proves that a partner's modulus is "
            "well formed, and one that is not need not hide what is computed under it; use bfv"
        )
    if method.bootstrap:
        raise InputError(f"{path}: settings.bootstrap: resamples are not trained across sites; set it to 0")
    if method.strong == "replicated":
        named_servers(method.settings().servers, tuple(job.parties))
    if method.start != "empty":
        raise InputError(f"{path}: settings.start = {method.start!r}: no sums are opened beforehand here; leave it out")
    if method.likelihood == "tested":
        raise InputError(f"{path}: settings.likelihood = 'tested' is for one place; name the likelihood")
    if method.encryption == "none" and not method.strong:
        _refuse_unencrypted(path, job, "the columns themselves")
    method.engine_for(len(job.parties), given=True)


def _check_moments(path: Path, job: DiscoveryJob, settings: SumsSettings) -> None:
    if settings.encryption == "none":
        _refuse_unencrypted(path, job, "functions of the columns, row by row")
    if settings.bootstrap and settings.resampling_between == "rows" and settings.epsilon is None:
        raise InputError(
            f"{path}: settings.resampling = 'rows': each resample is another exact release of the same rows, and that "
            "tells rows; leave it out, and the sums themselves are resampled, or set epsilon"
        )


def _refuse_unencrypted(path: Path, job: DiscoveryJob, what: str) -> None:
    if not job.simulation:
        raise InputError(
            f"{path}: settings.encryption = 'none': every partner would be sent {what}; leave it out, "
            f"and {ENCRYPTION} is taken, or say simulation = true where no column is real"
        )


def own_discovery(folder: Path, me: str) -> tuple[DiscoveryJob, CausalDiscovery]:
    """The agreed job as the member `me` of this folder runs it."""
    path = folder / "job.toml"
    job, method = read_agreed(path)
    if me not in members_of(job, method):
        raise InputError(f"{path}: {me!r} has no part in this job")
    if me != VALIDATOR and not getattr(method, "strong", False):
        from veracausa.crypto.backends import encryption_class

        # Its library may be missing, which is said before anybody is dialled.
        encryption_class(str(getattr(method, "encryption", ENCRYPTION)))
    return job, method
