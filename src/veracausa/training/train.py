"""One federation, all parties here: from a job to a run folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veracausa.config import Job, load_job
from veracausa.data.kept_rows import kept_note
from veracausa.data.load import load
from veracausa.data.vertical import PartyData, VerticalDataset
from veracausa.errors import InputError, RunError, of_system
from veracausa.events import Event, Observer
from veracausa.models import require_allowed
from veracausa.models.runner import choose_device
from veracausa.runs import folder
from veracausa.runs.folder import Run
from veracausa.training.checkpoints import other_settings, rewind
from veracausa.training.evaluate import check_weights
from veracausa.training.given_rows import GivenRows
from veracausa.training.protocols import protocol_of
from veracausa.training.split.program import MakeWatcher, PartyProgram, Schema, share, unshare
from veracausa.wire.launch import Launch

GREETINGS = {"hello", "ready", "width"}
"""Kinds of messages that tell nothing of a row: who is there, and how many numbers it will send."""


def train(
    job: str | Path | dict[str, Any] | Job,
    out: str | Path | None = None,
    resume: bool = False,
    overrides: Sequence[str] = (),
    observer: Observer = lambda event: None,
    watchers: Sequence[MakeWatcher] = (),
    allow_model: str | None = None,
    *,
    data: Any = None,
    label: Any = None,
    id: str | Mapping[str, str] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> Run:
    """Train one federation with all parties here, and return its run.

    job: a job file, a mapping, or a `Job`.
    out: the run's folder. Default: `runs/NAME`, numbered if it is taken.
    resume: go on with the run in `out` from the newest checkpoint that all its parties hold.
    overrides: settings laid over the job, such as `training.epochs=5`.
    observer: hears every `veracausa.events.Event` of the run.
    watchers: hooks that sit with the active party.
    allow_model: the `package.module:factory` that may run. A job that names another model of one's own is refused.
    data: the rows, where the job names no files: party -> its pandas or polars frame or its array, or one frame of all.
    The run keeps them as Parquet in `rows/` of its folder.
    label: the column to predict, or its values. Whoever holds it is the active party, unless the job names another.
    id: the column that says whose row it is, of all frames, or party -> its column. Arrays are matched row by row.
    columns: party -> its columns. Needed for one frame of all, and else all columns of a party's frame are its own.

    >>> run = veracausa.train("job.toml", out="runs/mine", overrides=["training.epochs=5"])
    >>> run.summary["test"]["accuracy"]
    >>> blind = {"training": {"protocol": "blind"}}
    >>> run = veracausa.train(blind, data={"bank": accounts, "shop": baskets}, label="default", id="customer")
    """
    given = GivenRows.if_any(data, label, id, columns)
    settings = (load_job if given is None else given.job)(job, overrides, allow_model)
    return train_given(settings, given, out, resume, observer, watchers)


def train_given(
    settings: Job,
    given: GivenRows | None,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
    watchers: Sequence[MakeWatcher] = (),
) -> Run:
    """Train a job that was checked, on the rows `given` where they came from Python."""
    require_allowed(settings.model)
    path = Path(out) if out is not None else _default_folder(settings, resume)
    settings = settings if given is None else given.placed(settings, path)
    if resume:
        if difference := other_settings(path, settings):
            if given is not None and given.are_others(Run(path)):
                raise InputError(f"{path}: this run was started with other rows; give the same, or use a new --out")
            raise InputError(f"{path}: this run was started with another job: {difference}; use a new --out")
        if Run(path).status.get("state") == "done" and Run(path).summary:
            observer({"event": "done"})  # nothing is left to do
            return Run(path, settings.model.allowed)
    else:
        folder.check_free(path)
    choose_device(settings.runtime.device)  # refused before anything is written
    frames = None if given is None else given.by_path(path)
    dataset = load(settings, frames)
    threads = check_models(settings, dataset)
    parties = dict(dataset.parties)
    if settings.runtime.link == "processes":
        # From here on the shared copy is the only one: each process sees its own party's rows in it.
        parties = {name: share(data) for name, data in dataset.parties.items()}
        dataset = replace(dataset, parties={name: unshare(data) for name, data in parties.items()})
    roles = {name: "active" if name == dataset.active else "passive" for name in dataset.parties}
    made = False
    try:
        run = Run(path, settings.model.allowed) if resume else folder.create(path, settings, roles)
        made = not resume
        observer({"event": "folder", "path": str(path)})
        with folder.locked(path):
            if given is not None:
                given.keep(path)
            _train(run, settings, dataset, parties, threads, observer, [*recorders(settings, dataset), *watchers])
    except InputError:
        if made and _said_nothing(path):
            shutil.rmtree(path, ignore_errors=True)  # the same command may be given again, with what was wrong mended
        raise
    except OSError as error:
        said = of_system(error, path)
        if isinstance(said, InputError):
            raise said from error
        raise RunError(f"{path}: {error.strerror or error}; mend that, then go on with --resume") from error
    return run


def _said_nothing(path: Path) -> bool:
    """Whether all that parties of this run have said to each other is that they are there."""
    ledgers = path.glob("parties/*/ledger.jsonl")
    sent = [json.loads(line).get("kind") for ledger in ledgers for line in ledger.read_text("utf-8").splitlines()]
    return set(sent) <= GREETINGS


def _train(
    run: Run,
    job: Job,
    dataset: VerticalDataset,
    parties: Mapping[str, PartyData],
    threads: Mapping[str, int],
    observer: Observer,
    watchers: Sequence[MakeWatcher],
) -> None:
    start_step = rewind(run.path, job, list(dataset.parties))
    finished: dict[str, Any] = {}

    def hear(event: Event) -> None:
        if event["event"] == "finished":
            finished[event["party"]] = {key: value for key, value in event.items() if key not in ("event", "party")}
        if event["event"] == "epoch":
            folder.set_status(run.path, epoch=event["epoch"], step=event["step"])
        observer(event)

    epochs = protocol_of(job).epochs(job)
    folder.set_status(run.path, state="running", epoch=0, epochs=epochs, step=start_step or 0, error=None)
    schema = Schema.of(dataset)
    # The passive parties are started first: the active one's thread count must be the process's last word.
    order = sorted(dataset.parties, key=lambda name: name == dataset.active)
    programs = {name: PartyProgram(job, parties[name], schema, run.path, start_step) for name in order}
    programs[dataset.active].watchers = watchers
    device = choose_device(job.runtime.device)
    launch = Launch(
        job.runtime.link,
        job.runtime.timeout,
        job.runtime.max_message_mib << 20,
        str(device),
        threads,
    )
    try:
        launch.run(programs, hear)
        summary = summarise(run, job, dataset, finished)
        if job.training.baselines:
            summary["baselines"] = protocol_of(job).run_baselines(job, dataset, observer)
        folder.write_json(run.path / "summary.json", summary)
        folder.set_status(run.path, state="done", epoch=epochs)
    except BaseException as error:
        try:
            folder.set_ended(run.path, error)
        except OSError:  # a full disk must not hide what filled it
            observer({"event": "status_lost"})
        raise
    observer({"event": "done"})


def recorders(job: Job, dataset: VerticalDataset) -> Sequence[MakeWatcher]:
    """What writes down what the active party receives, where the job wants it kept."""
    if not job.transcript.record:
        return ()
    from veracausa.training.recorders import Recording

    shapes = {name: dataset.parties[name].shape for name in job.transcript.victims or dataset.passive}
    return (Recording(job, shapes, len(dataset.classes)),)


def summarise(run: Run, job: Job, dataset: VerticalDataset, parties: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that other programs may rely on."""
    epochs = [record for record in run.metrics if record.get("event") == "epoch"]
    last = epochs[-1] if epochs else {}
    own_notes = [note for one in parties.values() for note in one.get("notes", ())]
    scores = last.get("test") or last.get("validation") or {}
    return {
        "name": job.name,
        "data": dataset.name,
        "protocol": job.training.protocol,
        **protocol_of(job).described(job, parties),
        **({"accuracy": scores["accuracy"]} if "accuracy" in scores else {}),
        "seconds": last.get("seconds", 0.0),
        "rounds": next(iter(parties.values()))["rounds"],
        "bytes_sent": sum(party["bytes_sent"] for party in parties.values()),
        "epochs": last.get("epoch", 0),
        "train": last.get("train", {}),
        "validation": last.get("validation", {}),
        "test": last.get("test", {}),
        **({"classes": len(dataset.classes), "class_names": list(dataset.classes)} if dataset.classes else {}),
        "parties": {name: parties[name] for name in dataset.parties},
        "notes": [*dataset.notes, *kept_note(run.path), *job.notes(), *own_notes],
    }


def check_models(job: Job, dataset: VerticalDataset) -> dict[str, int]:
    """How many cores each party computes with. What does not fit is refused here, before anything is written."""
    protocol = protocol_of(job)
    if (weights := job.training.class_weights) and dataset.classes and not isinstance(weights, str):
        check_weights(weights, len(dataset.classes))
    if job.training.baselines:
        protocol.check_baselines(job, dataset)
    return protocol.check(job, dataset)


def why_not(job: Job, dataset: VerticalDataset) -> str:
    """Why this job cannot run on this data; empty if it can. Builds every party's model once, trains nothing."""
    try:
        check_models(job, dataset)
    except InputError as error:
        return str(error)
    return ""


def _default_folder(job: Job, resume: bool) -> Path:
    """runs/NAME, or the next free runs/NAME-2, …; to resume, the newest of them with these settings."""
    base = Path("runs") / job.name
    taken, free = folder.numbered(base)
    if not resume:
        return free
    if not taken:
        raise InputError(f"{base}: no run to resume; start one without --resume")
    runs = [path for path in reversed(taken) if (path / "config.toml").is_file()]
    return next((path for path in runs if other_settings(path, job) is None), taken[-1])
