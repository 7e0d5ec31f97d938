"""Attack every passive party of a finished run, and its undefended twin where it has one; write down what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from veracausa.audit.labels import attack_labels
from veracausa.audit.live import attacked_live
from veracausa.audit.own_site import data_of, is_own_site, parties_here
from veracausa.audit.record import finished_attack, gather, write_attack
from veracausa.audit.samples import choose
from veracausa.audit.scene import AttackEvaluation, AttackOutcome
from veracausa.audit.settings import OVER_TRAINING, attack_class, attack_options, check_grants
from veracausa.audit.twin import check_twin, defended_by, twin_of
from veracausa.audit.usefulness import measure_usefulness
from veracausa.audit.victim import Victim
from veracausa.config import Job
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.models import require_allowed
from veracausa.registry import Options, did_you_mean
from veracausa.report.audit_twin import point_at_twin
from veracausa.runs.folder import Run, how_it_ended, locked, set_status
from veracausa.runs.store import Store
from veracausa.training.split.program import Schema


def audit_run(
    run: Run,
    attacks: Sequence[str] = ("inverse",),
    auxiliary: int = 4000,
    victims: int = 2000,
    overrides: Sequence[str] = (),
    parties: Sequence[str] | None = None,
    double: bool = False,
    observer: Observer = lambda event: None,
    resume: bool = False,
    twin: Run | None = None,
    labels: bool = True,
) -> dict[str, Any]:
    """Run these attacks on the passive parties of a finished run; gives what it adds to the run's `summary.json`.

    The attacker is the active party: it knows all labels, and the columns it holds itself. `auxiliary` rows come from
    the test split, `victims` from the training split and as many from the rest of the test split. With `double`, an
    attack that trains is trained again with twice the epochs, until that moves the leakage by less than two points.
    An attack that must be there while the victim trains gets a training of its own, under `live/`.
    An undefended twin in the run's folder is attacked first, in the same way. With `resume`, an attack that the run
    has already, just as it is asked for, is not repeated. `twin` is another run to take as the twin, now and later:
    many runs can share one, whose finished attacks are never repeated. An undefended run is its own twin. With
    `labels`, the attacks of passive parties on the labels are run, too, where the run kept the gradients it returned.
    Of a run across organisations a passive party can audit its own half at home; its attacker then knows no labels.
    """
    options = attack_options(attacks, overrides)
    check_grants(options)
    if auxiliary < 4 or victims < 1:
        raise InputError("an audit needs at least 4 auxiliary rows and 1 victim")
    if run.status.get("state") != "done" or not run.summary:
        raise InputError(f"{run.path}: the run is not finished; {run.to_finish}, then audit it")
    job = run.job
    require_allowed(job.model)
    alone = is_own_site(run, job)
    chosen = _parties(job, parties or (parties_here(run, job) if alone else None))
    dataset = data_of(run, job)
    asked = {"auxiliary": auxiliary, "victims": victims, "parties": chosen, "double": double}
    if twin is not None and defended_by(job):
        check_twin(job, twin)
        point_at_twin(run.path, twin.path)
    beside = twin_of(run)
    with locked(run.path), _told(run, list(options)):
        if beside is not None and beside.path != run.path:
            _attack_twin(beside, dataset, options, asked, observer, resume or twin is not None, labels)
        # At one party's own site nobody has the labels, nor the other half of the model.
        _attack_all(
            run, dataset, options, asked, lambda event: observer({**event, "twin": False}), resume, labels, alone
        )
        return gather(run)


def _attack_twin(
    twin: Run,
    dataset: VerticalDataset,
    options: Mapping[str, Options],
    asked: Mapping[str, Any],
    observer: Observer,
    resume: bool,
    labels: bool,
) -> None:
    """Attack the twin, unless another audit did: then it is not even locked, so that several can look at it."""
    if resume and all(finished_attack(twin, name, _wanted(asked, own)) for name, own in options.items()):
        return
    with locked(twin.path):
        _attack_all(twin, dataset, options, asked, lambda event: observer({**event, "twin": True}), resume, labels)
        gather(twin)


def _attack_all(
    run: Run,
    dataset: VerticalDataset,
    options: Mapping[str, Options],
    asked: Mapping[str, Any],
    observer: Observer,
    resume: bool,
    labels: bool,
    alone: bool = False,
) -> None:
    job, schema = run.job, Schema.of(dataset)
    for name, own in options.items():
        wanted = _wanted(asked, own)
        if resume and finished_attack(run, name, wanted):
            continue
        outcomes: list[AttackOutcome] = []
        for party in asked["parties"]:
            if attack_class(name).live:
                outcomes.append(attacked_live(run, dataset, own, party, asked["auxiliary"], asked["victims"], observer))
                continue
            data = dataset.parties[party]
            sample = choose(data, job.seed, asked["auxiliary"], asked["victims"])
            for moment, step in _moments(run, party, name):
                scene = AttackEvaluation(job, dataset, Victim(run, data, schema, step), sample, moment)
                outcomes.append(scene.attacked(own, observer, asked["double"] and step is None))
        write_attack(run, own, wanted, outcomes)
        gather(run)  # what is finished stays, whatever happens to the next
    if labels and not alone:
        attack_labels(run, dataset, asked["parties"], observer, resume)
    if not alone:
        measure_usefulness(run, dataset, resume)


def _wanted(asked: Mapping[str, Any], options: Options) -> dict[str, Any]:
    return {**asked, "settings": options.model_dump(mode="json")}


def _moments(run: Run, party: str, attack: str) -> list[tuple[float, int | None]]:
    """At which shares of the training to attack, and after which steps; the end is the trained model."""
    found: list[tuple[float, int | None]] = []
    steps = int(run.summary.get("rounds", 0))
    if attack in OVER_TRAINING and steps:
        found = [(step / steps, step) for step in Store(run.path, party).moment_steps() if step < steps]
    return [*found, (1.0, None)]


def strength_check(run: Run, attack: str = "inverse", **settings: Any) -> dict[str, list[dict[str, float]]]:
    """Party by party, the epochs tried and the leakage each gave: whether the attack is as strong as it must be."""
    found = audit_run(run, (attack,), double=True, **settings)
    return {party: entry["strength"] for party, entry in found["attacks"][attack]["parties"].items()}


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


def _parties(job: Job, wanted: Sequence[str] | None) -> list[str]:
    passive = list(job.parties.passive)
    for name in wanted or ():
        if name not in passive:
            raise InputError(f"{name!r} is no passive party of this run{did_you_mean(name, passive)}")
    return list(wanted) if wanted else passive
