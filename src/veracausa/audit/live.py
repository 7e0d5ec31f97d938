"""Attacks that must be there while the victim trains: each is a federation of its own, then read like any other."""

from __future__ import annotations

from dataclasses import replace

from veracausa.audit.live_training import restored, run_live
from veracausa.audit.samples import choose
from veracausa.audit.scene import AttackEvaluation, AttackOutcome
from veracausa.audit.victim import Victim
from veracausa.data.vertical import VerticalDataset
from veracausa.events import Observer
from veracausa.registry import Options
from veracausa.runs.folder import Run
from veracausa.training.split.program import Schema


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
    scene = AttackEvaluation(job, dataset, Victim(watched, data, Schema.of(dataset)), sample)
    outcome = scene.read(attack, options, observer)
    # It learnt while the victim trained, so that is its time, too.
    return replace(outcome, seconds=outcome.seconds + float(watched.summary.get("seconds", 0.0)))
