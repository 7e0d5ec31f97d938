"""The undefended baseline of a job: the same in everything, but nobody defends. Where it lies, and what it leaked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.data.kept_rows import without_place
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.runs.folder import Run, write_json
from veracausa.runs.record import mapping, numbers

if TYPE_CHECKING:
    from veracausa.config import Job

FOLDER = "twin"
"""Of the baseline, in the run's own folder."""
_POINTER = "twin.json"
_FREE: dict[str, Any] = {
    "name": True,
    "risk": True,
    "checkpoints": True,
    "transcript": True,
    "runtime": True,
    "training": {"baselines", "evaluate_every"},
}
"""What a baseline may have otherwise: it changes neither the models nor the rows."""


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


def baseline_of(run: Run) -> Run | None:
    """The finished undefended baseline of a run; the run itself if it is undefended; None if there is neither."""
    if not defended_by(run.job):
        return run
    path = baseline_folder(run.path)
    return Run(path, run.allow_model) if path is not None and _finished(Run(path)) else None


def check_baseline(job: Job, baseline: Run) -> None:
    """Refuse a run as the baseline if it is not finished, defends, or differs in what could change a figure."""

    if not _finished(baseline):
        raise InputError(f"{baseline.path}: the baseline is not finished; finish it with --resume first")
    if on := defended_by(baseline.job):
        raise InputError(f"{baseline.path}: a baseline defends nowhere, and this run has {on}")
    from veracausa.training.checkpoints import first_difference  # it needs torch, a report does not

    if difference := first_difference(_what_counts(undefended(job)), _what_counts(undefended(baseline.job))):
        raise InputError(f"{baseline.path}: not the baseline of this job: {difference}")


def _finished(run: Run) -> bool:
    return run.status.get("state") == "done" and bool(run.summary)


def _what_counts(job: Job) -> dict[str, Any]:
    tree: dict[str, Any] = job.model_dump(mode="json", exclude=_FREE)
    # A party with nothing of its own is as good as one that is not named.
    tree["party"] = {name: own for name, own in tree["party"].items() if any(own.values())}
    without_place(tree)
    return tree


def baseline_folder(run: Path) -> Path | None:
    """The baseline's run folder; None where there is none."""
    path = run / FOLDER
    with suppress(OSError, ValueError, KeyError, TypeError):  # nobody pointed at another one
        path = run / json.loads((run / _POINTER).read_text(encoding="utf-8"))["path"]
    return path if (path / "config.toml").is_file() else None


def point_at_baseline(run: Path, baseline: Path) -> None:
    """Let the run be compared with this baseline from now on; the path is relative, so that both can move together."""
    write_json(run / _POINTER, {"path": os.path.relpath(baseline.resolve(), run.resolve())})


def undefended_leakage(entry: Mapping[str, Any], party: str, split: str) -> float | None:
    """The most this attack reads of the same party's rows in the baseline at any snapshot; None where nobody tried."""
    by_party = mapping(mapping(entry.get("undefended")).get("parties"))
    return numbers(by_party.get(party)).get(split)
