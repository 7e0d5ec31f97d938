"""Attacks that must be there while the victim trains: each is a federation of its own, then read like any other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veracausa.attacks import attacks
from veracausa.attacks.base import Grant, LiveAttack
from veracausa.audit.attacker import AdversaryKnowledge, AttackHookFactory, AttackState
from veracausa.audit.evaluation import AttackEvaluation, AttackOutcome
from veracausa.audit.sample import choose
from veracausa.audit.victim import Victim
from veracausa.config import Job, load_job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.models import require_allowed
from veracausa.registry import Options
from veracausa.runs import folder
from veracausa.runs.folder import Run, write_json
from veracausa.training.checkpoints import first_difference
from veracausa.training.split.program import Schema
from veracausa.training.train import check_models, train


def attacked_live(
    run: Run,
    dataset: VerticalDataset,
    options: Options,
    party: str,
    auxiliary: int,
    victims: int,
    observer: Observer,
) -> AttackOutcome:
    """What the attack read of `party` in a training of the run's job that it sat in on, kept under `live/`.

    Such a training is resumed where it broke off, and not repeated where it is finished.
    """
    job = run.job
    # Nobody measures the risk or looks at moments there: it is the attack's own training.
    quiet = job.model_copy(
        update={
            "risk": job.risk.model_copy(update={"every": 0}),
            "checkpoints": job.checkpoints.model_copy(update={"moments": ()}),
            "transcript": job.transcript.model_copy(update={"record": False}),
            "training": job.training.model_copy(update={"baselines": ()}),
        }
    )
    place = run.path / "live" / f"{options.name}-{party}"
    begun = (place / "config.toml").is_file()
    watched = run_live(quiet, options, party, place, begun, observer, auxiliary, victims)
    attack = restored(watched, options.name, party)
    data = dataset.parties[party]
    sample = choose(data, job.seed, auxiliary, victims)
    evaluation = AttackEvaluation(job, dataset, Victim(watched, data, Schema.of(dataset)), sample)
    outcome = evaluation.read(attack, observer)
    # It learnt while the victim trained, so that is its time, too.
    return replace(outcome, seconds=outcome.seconds + float(watched.summary.get("seconds", 0.0)))


_SETTINGS, _PREPARED, _STATE = "live.json", "prepared.safetensors", "state.safetensors"


def run_live(
    job: str | Path | dict[str, Any] | Job,
    attack_options: Options | Sequence[Options],
    victim: str,
    out: str | Path,
    resume: bool = False,
    observer: Observer = lambda event: None,
    auxiliary: int = 4000,
    victims: int = 2000,
) -> Run:
    """Train the job with these attacks at the active party's side, and return its run; `restored` brings them back.

    Attacks that only watch leave the training as it is to the last bit, so several may share a run. One that tampers
    makes the run its own: its accuracy says nothing of an honest training.
    """
    settings, path = load_job(job), Path(out)
    require_allowed(settings.model)
    chosen = [attack_options] if isinstance(attack_options, Options) else list(attack_options)
    _check(chosen)
    if not resume:
        folder.check_free(path)
    dataset = load(settings)
    knowledge = AdversaryKnowledge.of(settings, dataset, victim, auxiliary, victims)
    makers = [AttackHookFactory(knowledge, options, path.absolute() / "attacks" / options.name) for options in chosen]
    for maker in makers:  # refused before anything is written, if at all
        maker.attack(None)
    if not (path / "config.toml").exists():
        check_models(settings, dataset)
        folder.create(path, settings, _roles(dataset))
    for maker in makers:
        about = {
            "options": maker.options.model_dump(mode="json"),
            "victim": victim,
            "auxiliary": auxiliary,
            "victims": victims,
        }
        _remember(maker.folder / _SETTINGS, about)
        _prepare(maker, observer)
    run = train(settings, path, resume=True, observer=observer, watchers=makers)
    for maker in makers:
        _conclude(maker, observer)
    return run


def restored(run: Run, attack_name: str, victim: str) -> LiveAttack:
    """The attack of a finished live run as the training left it, ready to `reconstruct`."""
    place = run.path / "attacks" / attack_name
    if not (place / _SETTINGS).is_file():
        raise InputError(f"{run.path}: attack {attack_name!r} did not watch this training; run it as a live attack")
    about = json.loads((place / _SETTINGS).read_text(encoding="utf-8"))
    if about["victim"] != victim:
        raise InputError(f"{run.path}: attack {attack_name!r} watched {about['victim']!r}, not {victim!r}")
    if not (place / _STATE).is_file():
        raise InputError(f"{run.path}: the training that {attack_name!r} watched is not finished; resume it")
    options = attacks.options(attack_name).model_validate(about["options"])
    job = run.job
    knowledge = AdversaryKnowledge.of(job, load(job), victim, about["auxiliary"], about["victims"])
    carried = AttackHookFactory(knowledge, options, place).attack(None)
    carried.load(place / _STATE)
    return carried.attack


def _check(chosen: Sequence[Options]) -> None:
    if not chosen:
        raise InputError("name at least one attack to run live")
    if len({options.name for options in chosen}) < len(chosen):
        raise InputError("each attack can watch a training only once; run it again elsewhere with other settings")
    for options in chosen:
        attack = attacks.get(options.name)
        if not attack.live:
            raise InputError(f"attack {options.name!r} needs no live run: audit a finished one with it")
        if Grant.TAMPER in attack.needs and len(chosen) > 1:
            raise InputError(f"attack {options.name!r} tampers with the training: it needs a run of its own")


def _remember(path: Path, about: dict[str, Any]) -> None:
    """What the attack was started with; a resume with anything else is refused."""
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        if difference := first_difference(before, about):
            raise InputError(f"{path}: this attack was started otherwise: {difference}; use a new folder")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, about)


def _prepare(maker: AttackHookFactory, observer: Observer) -> None:
    """What comes before the first exchange, once, here: the parties' time-out must not run meanwhile."""
    if (maker.folder / _PREPARED).is_file():
        return
    carried = maker.attack(None, lambda share: observer(_event(maker, share)))
    carried.attack.pretrain()
    carried.save(maker.folder / _PREPARED)


def _conclude(maker: AttackHookFactory, observer: Observer) -> None:
    carried: AttackState = maker.attack(None, lambda share: observer(_event(maker, share)))
    if carried.load(maker.folder / _STATE)["concluded"]:
        return
    carried.attack.conclude()
    carried.save(maker.folder / _STATE, concluded=True)
    notes = {**carried.attack.notes(), "history": [list(epoch) for epoch in carried.attack.history]}
    write_json(maker.folder / "notes.json", notes)


def _event(maker: AttackHookFactory, share: float) -> Event:
    return {"event": "attack", "attack": maker.options.name, "party": maker.knowledge.victim, "share": share}


def _roles(dataset: VerticalDataset) -> dict[str, str]:
    return {name: "active" if name == dataset.active else "passive" for name in dataset.parties}
