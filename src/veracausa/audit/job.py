"""From a job to an audited run: train it and its undefended twin, attack both, write the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from veracausa.attacks import attacks as registered
from veracausa.attacks.labels.returned import GradientsReturned
from veracausa.audit.run import audit_run
from veracausa.audit.settings import REMEMBERING, SNAPSHOTS, attack_options, check_grants, quick_overrides
from veracausa.audit.twin import check_twin, defended_by, undefended
from veracausa.config import Job, load_job
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.models import require_allowed
from veracausa.models.runner import choose_device
from veracausa.report.audit_twin import FOLDER
from veracausa.runs.folder import Run
from veracausa.training.train import train

_WIDTH = 256
"""Of what is kept of a gradient: half the usual, which tells directions apart as well and lies on disk by default."""


def audit_job(
    job: str | Path | dict[str, Any] | Job,
    attacks: Sequence[str] | None = None,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    overrides: Sequence[str] = (),
    auxiliary: int = 4000,
    victims: int = 2000,
    parties: Sequence[str] | None = None,
    double: bool = False,
    quick: bool = False,
    twin: str | Path | Run | None = None,
    labels: bool = True,
    observer: Observer = lambda event: None,
    allow_model: str | None = None,
) -> Run:
    """Train a job and its undefended twin, attack both, and measure what leaked. Returns the run, its report written.

    job: a job file, a mapping, or a `Job`.
    attacks: their names. Default: `inverse`, with a GPU or `quick` also `unsplit`.
    out: the run's folder. Default: `runs/NAME`, numbered if it is taken.
    resume: keep what an earlier audit of the same job in `out` finished.
    overrides: settings of the job (`training.epochs=5`) and of attacks (`inverse.epochs=20`).
    auxiliary: how many test rows the attacker learns from, at most half of them.
    victims: how many training rows to reconstruct, and as many test rows.
    parties: whose payloads to attack. Default: all passive parties.
    double: also train attackers with twice the epochs, until that hardly changes the figure.
    quick: weaker attackers, for a look at tiny data.
    twin: a finished undefended run of the same job, so that audits of several defenses share one. Default: one is
    trained, in the run's folder `twin/`.
    labels: also ask what passive parties learn of the labels from the gradients they get back.
    observer: hears every `veracausa.events.Event`.
    allow_model: the `package.module:factory` that may run.

    >>> run = veracausa.audit("job.toml", ["inverse"], "runs/mine")
    >>> run.summary["verdict"]
    """
    of_attacks = [override for override in overrides if _of_attack(override)]
    settings = load_job(job, [override for override in overrides if override not in of_attacks], allow_model)
    require_allowed(settings.model)
    names = list(attacks) if attacks else default_attacks(settings, of_attacks, quick)
    # Everything that can be refused is refused before the training.
    of_attacks = [*(quick_overrides(names) if quick else ()), *of_attacks]
    check_grants(attack_options(names, of_attacks))
    for party in parties or ():
        if party not in settings.parties.passive:
            raise InputError(f"{party!r} is no passive party (they are: {', '.join(settings.parties.passive)})")
    shared = twin if twin is None or isinstance(twin, Run) else Run(twin, settings.model.allowed)
    if shared is not None and defended_by(settings):
        check_twin(settings, shared)
    if not settings.checkpoints.moments:
        checkpoints = settings.checkpoints.model_copy(update={"moments": SNAPSHOTS})
        settings = settings.model_copy(update={"checkpoints": checkpoints})
    if set(names) & set(REMEMBERING):
        recorded = settings.transcript.model_copy(update={"record": True})
        settings = settings.model_copy(update={"transcript": recorded})
    gradients = GradientsReturned(parties, _WIDTH, epochs=settings.training.epochs) if labels else None
    run = _trained(settings, out, resume, observer, gradients, twin=False)
    run.report()  # an audit may take long, and the training has its page whatever becomes of it
    if defended_by(settings) and shared is None:
        _trained(undefended(settings), run.path / FOLDER, True, observer, gradients, twin=True)
    audit_run(run, names, auxiliary, victims, of_attacks, parties, double, observer, resume, shared, labels)
    run.report()
    return run


def default_attacks(job: Job, overrides: Sequence[str] = (), quick: bool = False) -> list[str]:
    """The inverse network; UnSplit too where it takes minutes at most; and every attack that a setting is given for."""
    names = ["inverse"]
    if quick or choose_device(job.runtime.device).type == "cuda":
        names.append("unsplit")
    return list(dict.fromkeys([*names, *(override.partition(".")[0].strip() for override in overrides)]))


def _of_attack(override: str) -> bool:
    return override.partition("=")[0].partition(".")[0].strip() in registered.names()


def _trained(
    job: Job,
    out: str | Path | None,
    resume: bool,
    observer: Observer,
    gradients: GradientsReturned | None,
    twin: bool,
) -> Run:
    def heard(event: Event) -> None:
        observer({**event, "twin": twin})

    # A resume of an audit that never got this far begins it.
    begun = any(_in(out, "config.toml"))
    if begun and any(_in(out, "parties/*/checkpoints/*")) and not any(_in(out, "parties/*/gradients")):
        gradients = None  # nobody recorded before, and the rest alone is no record
    watchers = (gradients,) if gradients is not None else ()
    return train(job, out, resume and (begun or out is None), observer=heard, watchers=watchers)


def _in(folder: str | Path | None, pattern: str) -> Iterator[Path]:
    return iter(()) if folder is None else Path(folder).glob(pattern)
