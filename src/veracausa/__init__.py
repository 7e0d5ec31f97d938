"""Vertical federated learning that can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from veracausa.audit.job import audit_job as audit_job
    from veracausa.config import Job as Job
    from veracausa.config import load_job as load_job
    from veracausa.defenses.causshield import CausShield as CausShield
    from veracausa.discovery.discover import discover as discover
    from veracausa.discovery.methods.vfedcd.estimator import VFedCD as VFedCD
    from veracausa.runs.folder import Run as Run
    from veracausa.training.train import train as train

_HOMES = {
    "CausShield": "veracausa.defenses.causshield",
    "Job": "veracausa.config",
    "Run": "veracausa.runs.folder",
    "VFedCD": "veracausa.discovery.methods.vfedcd.estimator",
    "audit_job": "veracausa.audit.job",
    "discover": "veracausa.discovery.discover",
    "load_job": "veracausa.config",
    "train": "veracausa.training.train",
}

__all__ = ["CausShield", "Job", "Run", "VFedCD", "__version__", "audit", "audit_job", "discover", "load_job", "train"]


def __getattr__(name: str) -> Any:
    """Names of the public interface, imported when first used: `veracausa --help` must not wait for torch."""
    if name == "audit":  # a package that can be called; once imported it is found without asking here
        from importlib import import_module

        return import_module("veracausa.audit")
    if name not in _HOMES:
        raise AttributeError(f"module 'veracausa' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
