"""A party of a finished run, as it was at the end of its training or at a moment of it."""

from __future__ import annotations

from typing import Any

from veracausa.data.vertical import PartyData
from veracausa.errors import InputError
from veracausa.runs.folder import Run
from veracausa.runs.store import Store, read_tree
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
    store = Store(run.path, name, job.checkpoints.keep)
    model = saved_model(run, name) if moment is None else store.moment(moment)
    check_shape(name, data, model)
    party = PassiveParty(job, data, schema.outputs)
    party.bottom.load_state_dict(model["bottom"])
    party.take_prepared(store, model.get("prepared", ""))
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
