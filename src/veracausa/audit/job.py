"""The audit of a trained model: train a job and its undefended baseline, or take a finished run, and attack both.

`audit_job` begins with a job, `audit_run` with a finished run. Of a run across organisations a passive party can audit
its own half at home.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veracausa.attacks import attacks as registered
from veracausa.attacks import blind_attacks, label_attacks
from veracausa.attacks.base import Grant
from veracausa.audit.baseline import FOLDER, baseline_of, check_baseline, defended_by, point_at_baseline, undefended
from veracausa.audit.blind import BlindAuditSettings
from veracausa.audit.blind_record import audit_blind_run, is_blind
from veracausa.audit.classifier import PictureClassifier
from veracausa.audit.evaluation import AttackEvaluation, AttackOutcome
from veracausa.audit.labels import attack_labels, parties_to_attack
from veracausa.audit.live import attacked_live
from veracausa.audit.numbered import Numbered
from veracausa.audit.record import finished_attack, gather, write_attack
from veracausa.audit.sample import choose
from veracausa.audit.settings import RENAMED, SNAPSHOTS, AuditSettings, default_attacks
from veracausa.audit.usefulness import measure_usefulness
from veracausa.audit.victim import Victim
from veracausa.config import Job, load_job
from veracausa.data.load import load
from veracausa.data.vertical import SPLITS, Part, PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.models import require_allowed
from veracausa.models.runner import choose_device
from veracausa.registry import Options, Registry
from veracausa.runs.folder import Run, how_it_ended, locked, set_status
from veracausa.runs.store import Store
from veracausa.training.given_rows import GivenRows
from veracausa.training.recorders import GradientsReturned
from veracausa.training.split.program import Schema
from veracausa.training.train import train_given

_WIDTH = 256
"""Of what is kept of a gradient: half the usual, which tells directions apart as well and lies on disk by default."""


def audit_job(
    job: str | Path | dict[str, Any] | Job,
    attacks: Sequence[str] | None = None,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    baseline: str | Path | Run | None = None,
    observer: Observer = lambda event: None,
    allow_model: str | None = None,
    data: Any = None,
    label: Any = None,
    id: str | Mapping[str, str] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    **settings: Any,
) -> Run:
    """Train a job and its undefended baseline, attack both, measure what leaked; gives the run, its report written.

    Parameters
    ----------
    job
        A job file, its settings as a mapping, or a `Job`.
    attacks
        Attacks by name; None: those that run by default, and each that a setting is given for.
    out
        The run's folder. The baseline lies in it, as `twin/`.
    overrides
        Settings of the job (`training.epochs=5`) and of attacks (`inverse.epochs=20`).
    resume
        Keep what an earlier audit of the same job in `out` finished.
    baseline
        A finished undefended run of the same job to compare with, so that audits of several defenses share one.
    observer
        Is told every event of the trainings and attacks.
    allow_model
        A model of one's own runs only if this names the same `package.module:factory`.
    data, label, id, columns
        Rows from Python, as `veracausa.train` takes them.
    settings
        Fields of `AuditSettings`: `auxiliary`, `victims`, `parties`, `until_converged`, `quick`, `labels`.

    Examples
    --------
    >>> run = veracausa.audit("job.toml", ["inverse"], "runs/mine", victims=500)  # doctest: +SKIP
    >>> run.summary["verdict"]  # doctest: +SKIP
    """
    settings = {RENAMED.get(name, name): value for name, value in settings.items()}
    baseline = settings.pop("baseline", baseline)
    of_attacks = [override for override in overrides if _of_attack(override)]
    of_attacks += [override for override in overrides if _of_attack(override, blind_attacks)]
    given = GivenRows.if_any(data, label, id, columns)
    of_job = [override for override in overrides if override not in of_attacks]
    trained = (load_job if given is None else given.job)(job, of_job, allow_model)
    require_allowed(trained.model)
    if is_blind(trained):
        return _audit_blind_job(
            trained, given, blind_settings(attacks or (), of_attacks, baseline, settings), out, resume, observer
        )
    quick = bool(settings.get("quick"))
    names = list(attacks) if attacks else default_attacks(quick or on_gpu(trained), of_attacks)
    asked = AuditSettings(names, of_attacks, **settings)
    # Everything that can be refused is refused before the training.
    asked.options()
    for party in asked.parties or ():
        if party not in trained.parties.passive:
            raise InputError(f"{party!r} is no passive party (they are: {', '.join(trained.parties.passive)})")
    shared = baseline if baseline is None or isinstance(baseline, Run) else Run(baseline, trained.model.allowed)
    if shared is not None and defended_by(trained):
        check_baseline(trained, shared)
    trained = _recorded(trained, names)
    gradients = GradientsReturned(asked.parties, _WIDTH, epochs=trained.training.epochs) if asked.labels else None
    run = _trained(trained, given, out, resume, observer, gradients, baseline=False)
    if given is not None:
        trained = run.job  # its rows are where the run keeps them
    run.report()  # an audit may take long, and the training has its page whatever becomes of it
    if defended_by(trained) and shared is None:
        _trained(undefended(trained), None, run.path / FOLDER, True, observer, gradients, baseline=True)
    audit_run(run, asked, baseline=shared, resume=resume, observer=observer)
    run.report()
    return run


def audit_run(
    run: Run,
    settings: AuditSettings | None = None,
    *,
    baseline: Run | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
) -> dict[str, Any]:
    """Attack the passive parties of a finished run; gives what it adds to the run's `summary.json`.

    The attacker is the active party: it knows all labels, and the columns it holds itself. An attack that must be there
    while the victim trains gets a training of its own, under `live/`. An undefended baseline in the run's folder is
    attacked first, in the same way. With `resume`, an attack that the run has already, just as it is asked for, is not
    repeated. `baseline` is another run to compare with, now and later: many runs can share one, whose finished attacks
    are never repeated. An undefended run is its own baseline. Of a run across organisations a passive party can audit
    its own half at home; its attacker then knows no labels.
    """
    if is_blind(run.job):
        raise InputError(f"{run.path}: a blind run is audited by `veracausa audit`, or by `audit_blind_run`")
    settings = settings or AuditSettings()
    options = settings.options()
    if run.status.get("state") != "done" or not run.summary:
        raise InputError(f"{run.path}: the run is not finished; {run.to_finish}, then audit it")
    job = run.job
    require_allowed(job.model)
    alone = is_own_site(run, job)
    parties = settings.parties_of(job, parties_here(run, job) if alone and not settings.parties else None)
    plan = _Plan(settings, options, parties, data_of(run, job), alone)
    if baseline is not None and defended_by(job):
        check_baseline(job, baseline)
        point_at_baseline(run.path, baseline.path)
    beside = baseline_of(run)
    with locked(run.path), _told(run, list(options)):
        beside = None if beside is None or beside.path == run.path else beside
        shared = resume or baseline is not None
        of_baseline = 0 if beside is None else plan.attacks_left_of_baseline(beside, shared)
        hear = Numbered(observer, of_baseline + plan.attacks_left(run, resume))
        if beside is not None and of_baseline:
            plan.attack_baseline(beside, shared, lambda event: hear({**event, "baseline": True}))
        plan.attack(run, resume, lambda event: hear({**event, "baseline": False}))
        return gather(run)


def _audit_blind_job(
    job: Job,
    given: GivenRows | None,
    asked: BlindAuditSettings,
    out: str | Path | None,
    resume: bool,
    observer: Observer,
) -> Run:
    """Train blindly, then attack; protections are switched off by the audit itself, so there is no baseline."""
    asked.options()
    run = _trained(job, given, out, resume, observer, None, baseline=False)
    run.report()
    audit_blind_run(run, asked, resume=resume, observer=lambda event: observer({**event, "baseline": False}))
    run.report()
    return run


def blind_settings(
    names: Sequence[str], overrides: Sequence[str], baseline: Any, settings: Mapping[str, Any]
) -> BlindAuditSettings:
    """The settings of an audit of blind training; what is for split training alone is refused."""
    given = {name: value for name, value in settings.items() if value is not None}
    if baseline is not None or given.pop("until_converged", False):
        raise InputError("--baseline and --until-converged are for split training; a blind run is its own baseline")
    for name in ("known", "from_training", "classify"):
        if name in given:
            raise InputError(f"--{name.replace('_', '-')} is for split training; leave it out for a blind run")
    return BlindAuditSettings(tuple(names), tuple(overrides), **given)


def strength_check(run: Run, attack: str = "inverse", **settings: Any) -> dict[str, list[dict[str, float]]]:
    """Party by party, the epochs tried and the leakage each gave: whether the attack is as strong as it must be."""
    found = audit_run(run, AuditSettings((attack,), until_converged=True, **settings))
    return {party: entry["strength"] for party, entry in found["attacks"][attack]["parties"].items()}


@dataclass(frozen=True)
class _Plan:
    """What is attacked and how: the same for a run and its baseline."""

    settings: AuditSettings
    options: Mapping[str, Options]
    parties: list[str]
    dataset: VerticalDataset
    alone: bool
    """At one party's own site nobody has the labels, nor the other half of the model."""

    def attack_baseline(self, run: Run, resume: bool, observer: Observer) -> None:
        with locked(run.path):
            replace(self, alone=False).attack(run, resume, observer)
            gather(run)

    def attacks_left_of_baseline(self, run: Run, resume: bool) -> int:
        """0 if another audit attacked it: then it is not even locked, so that several can look at it."""
        if resume and all(finished_attack(run, name, self.asked(own)) for name, own in self.options.items()):
            return 0
        return replace(self, alone=False).attacks_left(run, resume)

    def attacks_left(self, run: Run, resume: bool) -> int:
        """How many attacks there are to do, one for each party and moment."""
        left = 0
        for name, options in self.options.items():
            if not (resume and finished_attack(run, name, self.asked(options))):
                attack = registered.get(name)
                several = attack.snapshots and not attack.live
                left += sum(len(_snapshots(run, party)) if several else 1 for party in self.parties)
        if self.settings.labels and not self.alone:
            left += len(label_attacks.names()) * len(parties_to_attack(run, self.dataset, self.parties, resume))
        return left

    def attack(self, run: Run, resume: bool, observer: Observer) -> None:
        for name, options in self.options.items():
            asked = self.asked(options)
            if resume and finished_attack(run, name, asked):
                continue
            write_attack(run, options, asked, list(self._outcomes(run, options, observer)))
            gather(run)  # what is finished stays, whatever happens to the next
        if self.settings.labels and not self.alone:
            attack_labels(run, self.dataset, self.parties, observer, resume)
        if not self.alone:
            measure_usefulness(run, self.dataset, resume)

    def asked(self, options: Options) -> dict[str, Any]:
        """What tells whether the same is asked for again."""
        settings = self.settings
        known = {"known": settings.known} if Grant.KNOWN_ROWS in registered.get(options.name).needs else {}
        more = {name: True for name in ("from_training", "classify") if getattr(settings, name)}
        return {
            **known,
            **more,
            "auxiliary": settings.auxiliary,
            "victims": settings.victims,
            "parties": self.parties,
            "double": settings.until_converged,
            "settings": options.model_dump(mode="json"),
        }

    def _outcomes(self, run: Run, options: Options, observer: Observer) -> Iterator[AttackOutcome]:
        job, schema, settings = run.job, Schema.of(self.dataset), self.settings
        attack, sizes = registered.get(options.name), (settings.auxiliary, settings.victims)
        known = settings.known if Grant.KNOWN_ROWS in attack.needs else 0
        for party in self.parties:
            if attack.live:
                yield attacked_live(run, self.dataset, options, party, *sizes, observer)
                continue
            data = self.dataset.parties[party]
            sample = choose(data, job.seed, *sizes, known, settings.from_training)
            judge: PictureClassifier | None = None
            if settings.classify:
                active = self.dataset.parties[self.dataset.active]
                judge = PictureClassifier.of(Victim(run, data, schema), active, sample, job.seed)
            for share, step in _snapshots(run, party) if attack.snapshots else [(1.0, None)]:
                victim = Victim(run, data, schema, step)
                evaluation = AttackEvaluation(job, self.dataset, victim, sample, share, judge)
                yield evaluation.attacked(options, observer, settings.until_converged and step is None)


def _snapshots(run: Run, party: str) -> list[tuple[float, int | None]]:
    """The shares of the training at which the run kept the party's model, and their steps; the trained model last."""
    steps = int(run.summary.get("rounds", 0))
    kept = Store(run.path, party).moment_steps() if steps else []
    return [*((step / steps, step) for step in kept if step < steps), (1.0, None)]


def on_gpu(job: Job) -> bool:
    """Whether the job runs on a GPU here."""
    return choose_device(job.runtime.device).type == "cuda"


def _of_attack(override: str, registry: Registry[Any] = registered) -> bool:
    return override.partition("=")[0].partition(".")[0].strip() in registry.names()


def _recorded(job: Job, names: Sequence[str]) -> Job:
    """The job that keeps what these attacks will want: snapshots, and a transcript where one reads it."""
    if not job.checkpoints.moments:
        job = job.model_copy(update={"checkpoints": job.checkpoints.model_copy(update={"moments": SNAPSHOTS})})
    if any(registered.get(name).uses_transcript for name in names):
        job = job.model_copy(update={"transcript": job.transcript.model_copy(update={"record": True})})
    return job


def _trained(
    job: Job,
    given: GivenRows | None,
    out: str | Path | None,
    resume: bool,
    observer: Observer,
    gradients: GradientsReturned | None,
    baseline: bool,
) -> Run:
    def heard(event: Event) -> None:
        observer({**event, "baseline": baseline})

    # A resume of an audit that never got this far begins it.
    begun = any(_in(out, "config.toml"))
    if begun and any(_in(out, "parties/*/checkpoints/*")) and not any(_in(out, "parties/*/gradients")):
        gradients = None  # nobody recorded before, and the rest alone is no record
    watchers = (gradients,) if gradients is not None else ()
    return train_given(job, given, out, resume and (begun or out is None), heard, watchers)


def _in(folder: str | Path | None, pattern: str) -> Iterator[Path]:
    return iter(()) if folder is None else Path(folder).glob(pattern)


@contextmanager
def _told(run: Run, names: Sequence[str]) -> Iterator[None]:
    """Say in the run's status how the audit stands: a reader of a page must know that some of it is missing."""
    set_status(run.path, audit={"state": "running", "attacks": list(names), "error": None})
    try:
        yield
    except BaseException as error:
        state, message = how_it_ended(error)
        set_status(run.path, audit={"state": state, "attacks": list(names), "error": message})
        raise
    set_status(run.path, audit={"state": "done", "attacks": list(names), "error": None})


def parties_here(run: Run, job: Job) -> list[str]:
    """The passive parties whose trained half lies in the run's folder."""
    parties = [name for name in job.parties.passive if (run.path / "parties" / name / "model.safetensors").is_file()]
    if not parties:
        raise InputError(f"{run.path}: no passive party's model is there; audit where a passive party ran")
    return parties


def is_own_site(run: Run, job: Job) -> bool:
    """Whether the folder is one organisation's part of a run across several."""
    return (run.path.parent / "federation.toml").is_file() and len(_folders(run)) < 1 + len(job.parties.passive)


def _folders(run: Run) -> list[str]:
    return [path.name for path in sorted((run.path / "parties").iterdir()) if (path / "party.toml").is_file()]


def data_of(run: Run, job: Job) -> VerticalDataset:
    """The data of a run: of all parties, or at one's own site of one, and an active party of whom nothing is known."""
    if not is_own_site(run, job):
        return load(job)
    from veracausa.federation.training_site import SplitSite

    (me,) = _folders(run)
    dataset = SplitSite(run.path.parent, me, secret=False, allow_model=run.allow_model).data_here()
    own = dataset.parties[me]
    nothing = {split: Part(len(own.part(split))) for split in SPLITS}
    unknown = PartyData(job.parties.active, (), nothing["train"], nothing["validation"], nothing["test"])
    return replace(dataset, parties={unknown.name: unknown, me: own})
