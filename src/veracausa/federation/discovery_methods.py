"""The methods of discovery that run across organisations, by the name that a job says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from veracausa.federation.discovery_job import own_discovery
from veracausa.federation.discovery_site import DiscoverySite

_SITES = {
    "moments": ("veracausa.federation.moments_site", "MomentsSite"),
    "vfedcd": ("veracausa.federation.vfedcd_site", "VFedCDSite"),
}
"""Module and class of each, imported when asked for."""


def discovery_program(folder: Path, me: str, secret: bool) -> DiscoverySite:
    """The member `me` of the agreed discovery, as its method has it."""
    job, method = own_discovery(folder, me)
    module, name = _SITES[job.method]
    made: DiscoverySite = getattr(import_module(module), name)(folder, me, secret, job, method)
    return made
