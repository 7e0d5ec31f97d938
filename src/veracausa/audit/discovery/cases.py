"""What an audit compares: the discovery as its job has it, the validator's other mode, and each counter-measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.countermeasures import widest
from veracausa.errors import InputError
from veracausa.registry import Options, did_you_mean

AS_RUN = "as run"
STRONG = "strong mode"


class AuditOptions(Options):
    """What may be chosen about an audit of a discovery."""

    name: str = "audit"
    known_rows: int = Field(15, ge=2)
    """Rows of the others that attackers know where an attack is granted some."""
    cases: tuple[str, ...] = ()
    """By name; none: all that make sense for the job."""
    row_noise: tuple[float, ...] = (0.5, 2.0)
    strong_epochs: int = Field(2, ge=1)
    """Of the search and of the refit in the strong mode: what it opens is the same in every epoch, and it is slow."""
    seed: int = 0


@dataclass(frozen=True)
class AuditCase:
    """One training of the job with some settings changed, and why."""

    name: str
    says: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def cases_of(
    settings: Settings, given: Mapping[str, Any], sizes: Sequence[int], options: AuditOptions
) -> list[AuditCase]:
    """The cases for a job with these settings; `sizes` are the parties' numbers of attributes."""
    found = [AuditCase(AS_RUN, "the job as it is")]
    if len(sizes) > 2:
        found.append(
            AuditCase(
                "each part opened", "a target opens each source's part, not their sum", {"reveal_per_source": True}
            )
            if not settings.reveal_per_source
            else AuditCase(
                "only sums opened", "a target opens the sum of all sources' parts", {"reveal_per_source": False}
            )
        )
    if given.get("validator", "M2") == "M2":
        found.append(AuditCase("validator M1", "the validator is sent all weights", {"validator": "M1"}))
    else:
        found.append(AuditCase("validator M2", "the validator is sent norms only", {"validator": "M2"}))
    if settings.threshold == "held_out_graphs":
        found.append(AuditCase("opened once", "rows kept apart are opened under one graph", {"threshold": "held_out"}))
    elif settings.held_out:
        says = "rows kept apart are opened under every candidate graph"
        found.append(AuditCase("every graph", says, {"threshold": "held_out_graphs"}))
    narrow = min(widest(size, sum(sizes) - size) for size in sizes)
    if narrow >= 1 and settings.bottleneck is None:
        numbers = min(narrow, settings.width)
        says = f"numbers opened of a target attribute and row: {numbers}"
        found.append(AuditCase("bottleneck", says, {"bottleneck": numbers}))
    if not settings.row_noise:
        for deviation in options.row_noise:
            says = f"noise of deviation {deviation:g} on every number that is opened"
            found.append(AuditCase(f"row noise {deviation:g}", says, {"row_noise": deviation}))
    if not settings.row_noise and settings.bottleneck is None and settings.sparsity == "group_lasso":
        found.append(
            AuditCase(STRONG, "everything stays on shares; of a batch one sum an attribute is opened to its party")
        )
    if not options.cases:
        return found
    names = {case.name: case for case in found}
    for name in options.cases:
        if name not in names:
            raise InputError(f"--set audit.cases: no case of this job is named {name!r}{did_you_mean(name, names)}")
    return [names[name] for name in options.cases]
