"""The audit: what attackers read of a trained model's parties, and of the parties of a discovery.

`job.audit_job` and `job.audit_run` audit a trained model, `discovery.audit_discovery` a discovery. Both record what was
asked and found, and end in a verdict. The package can be called: `veracausa.audit(job)` is `audit_job(job)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veracausa.runs.folder import Run


class _Callable(ModuleType):
    """A package that can be called: `veracausa.audit(job)` reads like `veracausa.train(job)`, and is this package."""

    def __call__(self, job: Any, *settings: Any, **named: Any) -> Run:
        """`audit_job` by its short name."""
        from veracausa.audit.job import audit_job

        return audit_job(job, *settings, **named)


sys.modules[__name__].__class__ = _Callable
