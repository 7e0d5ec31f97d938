"""Vertical federated learning that can be trusted.

Several parties hold different columns or pixels of the same people. veracausa trains one model across them, learns one
causal graph over their columns, and measures what a curious partner could reconstruct from what it receives.

    import veracausa

    run = veracausa.train("job.toml")              # one model across all parties of a job
    run = veracausa.train(job, data={"bank": frame, "shop": other}, label="default", id="customer")
    run.summary["test"]["accuracy"]
    run = veracausa.audit("job.toml")              # train it, attack it, say what leaked
    run.predict("new.csv").labels                  # joint predictions for new rows
    found = veracausa.discover(frame, {"lab": ["crp", "ldl"], "clinic": ["age", "dose"]})
    found.edges                                    # one causal graph over both parties' columns

Functions: `align` (tables in one order), `train`, `predict`, `audit` (also called `audit_job`), `frontier` (which
defense to take), `discover`, `report` (pages), `track` (TensorBoard, MLflow), `load_job`.
Classes: `Job` (what to train), `Run` and `DiscoveryRun` (the folders of what was done), `CausShield` (the defense, for
a training loop of one's own), `VFedCD` (the causal discovery, as an estimator with `fit`).
Errors: `VeracausaError`, and below it `InputError` (what was given cannot be used) and `RunError` (a run failed).

These names are public, and so are `veracausa.testing` and the names that a room's `__init__` exports for plug-ins.
Everything else may change.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from veracausa.alignment.align import align as align
    from veracausa.audit.job import audit_job as audit
    from veracausa.audit.job import audit_job as audit_job
    from veracausa.config import Job as Job
    from veracausa.config import load_job as load_job
    from veracausa.defenses.causshield import CausShield as CausShield
    from veracausa.discovery.discover import DiscoveryRun as DiscoveryRun
    from veracausa.discovery.discover import discover as discover
    from veracausa.discovery.methods.vfedcd.estimator import VFedCD as VFedCD
    from veracausa.errors import InputError as InputError
    from veracausa.errors import RunError as RunError
    from veracausa.errors import VeracausaError as VeracausaError
    from veracausa.experiments.find_frontier import frontier as frontier
    from veracausa.report.report import report as report
    from veracausa.report.tracking import track as track
    from veracausa.runs.folder import Run as Run
    from veracausa.training.predict import predict as predict
    from veracausa.training.train import train as train

_HOMES = {
    "CausShield": "veracausa.defenses.causshield",
    "DiscoveryRun": "veracausa.discovery.discover",
    "InputError": "veracausa.errors",
    "Job": "veracausa.config",
    "Run": "veracausa.runs.folder",
    "RunError": "veracausa.errors",
    "VFedCD": "veracausa.discovery.methods.vfedcd.estimator",
    "VeracausaError": "veracausa.errors",
    "align": "veracausa.alignment.align",
    "audit": "veracausa.audit.job",
    "audit_job": "veracausa.audit.job",
    "discover": "veracausa.discovery.discover",
    "frontier": "veracausa.experiments.find_frontier",
    "load_job": "veracausa.config",
    "predict": "veracausa.training.predict",
    "report": "veracausa.report.report",
    "track": "veracausa.report.tracking",
    "train": "veracausa.training.train",
}
"""Where each public name is defined."""
_BOTH = {"audit": "audit_job", "report": "report"}
"""Functions with a package of the same name, and what they are called where they are defined."""

__all__ = [
    "CausShield",
    "DiscoveryRun",
    "InputError",
    "Job",
    "Run",
    "RunError",
    "VFedCD",
    "VeracausaError",
    "__version__",
    "align",
    "audit",
    "audit_job",
    "discover",
    "frontier",
    "load_job",
    "predict",
    "report",
    "track",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `veracausa --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'veracausa' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), _BOTH.get(name, name))
    if name in _BOTH:
        found.__dict__ = vars(import_module(f"veracausa.{name}"))  # see _Package
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `veracausa.audit` and `veracausa.report` the functions, although packages have the same names.

    Whenever somebody imports from such a package, the import system sets it as an attribute here. That assignment is
    passed over. The function shares the package's namespace, so that `veracausa.audit.job` is found by either way of
    import. The package itself stays in `sys.modules`, where `from veracausa.audit.job import …` looks for it.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _BOTH and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
