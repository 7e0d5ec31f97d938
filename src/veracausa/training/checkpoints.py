"""Going back in a run: a party as it was when it was saved, and a run set back to what all parties hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veracausa.config import Job
from veracausa.data.kept_rows import without_place
from veracausa.data.vertical import PartyData
from veracausa.errors import InputError
from veracausa.runs import folder
from veracausa.runs.folder import Run
from veracausa.runs.store import Store, common_step, read_tree
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema


def restore_passive(run: Run, name: str, data: PartyData, schema: Schema, moment: int | None = None) -> PassiveParty:
    """The passive party `name` with its trained bottom and defense, over the rows of `data`.

    With `moment`, as it was after so many training steps, where the job had that kept. No training rows are needed:
    what its defense once prepared on them comes from the run's folder.
    """
    job = run.job
    if name not in job.parties.passive:
        raise InputError(f"{run.path}: {name!r} is no passive party there (they are: {', '.join(job.parties.passive)})")
    if job.training.protocol != "split":
        raise InputError(f"{run.path}: a {job.training.protocol} run has no bottom model and no defense to restore")
    store = Store(run.path, name, job.checkpoints.keep)
    model = saved_model(run, name) if moment is None else store.moment(moment)
    check_shape(name, data, model)
    return passive_of(run.path, job, data, schema, model)


def passive_of(run: Path, job: Job, data: PartyData, schema: Schema, model: Mapping[str, Any]) -> PassiveParty:
    """A passive party of split training with the model that it saved, over the rows of `data`."""
    party = PassiveParty(job, data, schema.outputs)
    party.bottom.load_state_dict(model["bottom"])
    party.take_prepared(Store(run, data.name, job.checkpoints.keep), model.get("prepared", ""))
    party.defense.load_state(model["defense"])
    return party


def saved_model(run: Run, party: str) -> dict[str, Any]:
    """What a party kept at the end of its training to serve predictions."""
    path = run.path / "parties" / party / "model.safetensors"
    if not path.is_file():
        raise InputError(f"{run.path}: {party} has no trained model there; {run.to_finish}")
    model: dict[str, Any] = read_tree(path)
    return model


def check_shape(name: str, data: PartyData, model: dict[str, Any]) -> None:
    """Refuse rows of another shape than the model was trained on."""
    if list(data.shape) != model["shape"]:
        raise InputError(f"{name}: the rows have shape {list(data.shape)}, its model was trained on {model['shape']}")


def rewind(path: Path, job: Job, parties: Sequence[str]) -> int | None:
    """Set the run back to the newest checkpoint that all parties hold; None: to the beginning."""
    stores = [Store(path, name, job.checkpoints.keep) for name in parties]
    step = common_step(stores)
    rewind_to(path, stores, step)
    return step


def rewind_to(path: Path, stores: Sequence[Store], step: int | None) -> None:
    """Let these parties forget what came after `step`; None: everything."""
    for torn in path.rglob("*.tmp"):  # what a kill left half-written
        torn.unlink(missing_ok=True)
    for store in stores:
        store.forget_after(step or 0)
        if step is None:
            store.ledger.resume(0, 0)
    # From the beginning nothing stays, not even what was said before the first step: it will be said again.
    folder.keep_metrics_until(path, -1 if step is None else step)


def other_settings(path: Path, job: Job) -> str | None:
    """How the job differs from the one a run was started with.

    A longer time-out, another link, or a party's later consent to a second head do not count.
    """
    before, now = Run(path).job.model_dump(mode="json"), job.model_dump(mode="json")
    for tree in (before, now):
        for free in ("timeout", "link", "max_message_mib"):
            tree["runtime"].pop(free)
        tree["checkpoints"] = None
        for own in tree["party"].values():
            own.pop("second_head", None)  # a party may agree later
        without_place(tree)
    return first_difference(before, now)


def first_difference(before: Any, now: Any, place: str = "") -> str | None:
    """Where two settings trees differ first, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            found = first_difference(before.get(key), now.get(key), f"{place}.{key}" if place else key)
            if found:
                return found
        return None
    return None if before == now else f"{place} was {before!r}, is {now!r}"
