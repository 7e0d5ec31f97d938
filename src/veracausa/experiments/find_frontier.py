"""From a job and the names of defenses to the frontier: checked, swept, and written into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veracausa.config import Job, load_job
from veracausa.defenses import defenses as registered
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.experiments.advice import SCORES, Constraint, Frontier
from veracausa.experiments.frontier_page import write_frontier
from veracausa.experiments.schedule import Budget, read_seconds
from veracausa.experiments.sweep import sweep
from veracausa.experiments.trial import QUICK, QUICK_SNAPSHOTS, Attackers
from veracausa.models import require_allowed


def frontier(
    job: str | Path | dict[str, Any] | Job,
    defenses: Sequence[str],
    budget: str = "20m",
    *,
    accuracy: float | None = None,
    leakage: float | None = None,
    at_least: float | None = None,
    score: str | None = None,
    cuts: Sequence[int] = (),
    seeds: int = 1,
    auxiliary: int = 4000,
    victims: int = 2000,
    parties: Sequence[str] = (),
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    quick: bool = False,
    observer: Observer = lambda event: None,
    allow_model: str | None = None,
) -> Frontier:
    """Sweep defenses and their settings, and say which one to take for a wanted accuracy or leakage.

    Tables of the figures and `frontier.html` are written into the folder `out`.

    job: a job file, a mapping, or a `Job`, of split training.
    defenses: which to try; the job without a defense is always tried.
    budget: when to stop, such as `20m`, `90s` or `1h30m`.
    accuracy, leakage, at_least: what is wanted: at least this accuracy, at most this leakage, or at least this score.
    Give one of them, or none for the least leakage within two points of the undefended job.
    score: what counts: `accuracy`, `balanced_accuracy` or `auc`. Default: accuracy where the classes are balanced.
    cuts: cuts to try. Default: the job's.
    seeds: how often every setting is tried.
    auxiliary, victims: rows that the attacker learns from, and rows to reconstruct.
    parties: whose payloads to attack. Default: those of all passive parties.
    overrides: settings laid over the job.
    out: the folder. Default: `frontiers/NAME`.
    resume: keep the trials that are there, and do the rest.
    quick: weaker attackers, for a first look.
    observer: hears every `veracausa.events.Event`.
    allow_model: the `package.module:factory` that may run.

    >>> found = veracausa.frontier("job.toml", ["laplace", "causshield"], "10m", accuracy=0.9)
    >>> found.recommendation.sentence
    >>> found.snippet                      # what to write into the job
    """
    if sum(wanted is not None for wanted in (accuracy, leakage, at_least)) > 1:
        raise InputError("--accuracy, --at-least and --leakage: ask for one of them, the other is what is found out")
    if score is not None and score not in SCORES:
        raise InputError(f"--score {score}: no such score (there are: {', '.join(SCORES)})")
    if accuracy is not None and score not in (None, "accuracy"):
        raise InputError(f"--accuracy asks for an accuracy, and --score for {score}: use --at-least")
    if accuracy is not None:
        score = "accuracy"
    names = list(dict.fromkeys([defenses] if isinstance(defenses, str) else defenses))
    if not names:
        raise InputError(f"--defenses: name at least one (there are: {', '.join(registered.names())})")
    for name in names:
        registered.get(name)
    if any(cut < 1 for cut in cuts):
        raise InputError(f"--cuts {','.join(map(str, cuts))}: write numbers of units from 1 on, as 3,6")
    clock = Budget(_seconds(budget))
    wanted = load_job(job, overrides, allow_model)
    require_allowed(wanted.model)
    if wanted.training.protocol == "blind":
        where = job if isinstance(job, str | Path) else "job"
        raise InputError(
            f'{where}: blind training sends no payload to defend; set training.protocol = "split" for this'
        )
    for party in parties:
        if party not in wanted.parties.passive:
            raise InputError(
                f"--parties: {party!r} is no passive party (they are: {', '.join(wanted.parties.passive)})"
            )
    folder = default_folder(wanted, out)
    if not resume and (folder / "trials").is_dir():
        raise InputError(f"{folder}: has trials already; go on with --resume, or name another folder with --out")
    attackers = Attackers(auxiliary, victims, tuple(parties))
    if quick:
        attackers = Attackers(auxiliary, victims, tuple(parties), QUICK, QUICK_SNAPSHOTS)
    observer({"event": "folder", "path": str(folder)})
    swept = sweep(
        wanted,
        names,
        folder,
        clock,
        cuts=tuple(dict.fromkeys(cuts)),
        seeds=seeds,
        attackers=attackers,
        score=score,
        observer=observer,
    )
    least = accuracy if accuracy is not None else at_least
    asked = least is not None or leakage is not None
    found = Frontier(swept, Constraint(least, leakage, score=swept.score) if asked else None, quick)
    write_frontier(found, folder)
    return found


def default_folder(job: Job, out: str | Path | None) -> Path:
    """Where a sweep of the job is written."""
    return Path(out) if out is not None else Path("frontiers") / job.name


def _seconds(text: str) -> float:
    seconds = read_seconds(text)
    if seconds is None:
        raise InputError(f"--budget {text}: write it as 20m, 90s or 1h30m")
    if seconds <= 0:
        raise InputError(f"--budget {text}: must be more than nothing")
    return seconds
