"""A party of a training as a program that can be started anywhere: its data, its store, its part of the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from veracausa.atomic import atomic_write
from veracausa.config import Job
from veracausa.data.distributions import distributions
from veracausa.data.vertical import PartyData, Split, VerticalDataset
from veracausa.errors import RunError, VeracausaError
from veracausa.events import Observer, event_of
from veracausa.models.cut import JoinAxis
from veracausa.runs.store import Store, serialize_state
from veracausa.training.hooks import ActivePartyHook, Watchers
from veracausa.training.protocols import protocol_of
from veracausa.training.split.active import ActiveParty
from veracausa.training.split.passive import PassiveParty
from veracausa.wire.link import Link
from veracausa.wire.memory import SharedTensor

MakeWatcher = Callable[[Store], ActivePartyHook]
"""Makes a watcher over the active party's part of the run folder."""


@dataclass(frozen=True)
class Schema:
    """What all parties may know of the data."""

    task: str
    classes: tuple[str, ...]
    join: JoinAxis

    @property
    def outputs(self) -> int:
        return len(self.classes) if self.task == "classification" else 1

    @classmethod
    def of(cls, dataset: VerticalDataset) -> Schema:
        return cls(dataset.task, dataset.classes, dataset.join)


class Party(Protocol):
    """What every party of a training is to the program that runs it."""

    role: str
    data: PartyData
    step: int
    """How many exchanges it has trained, or phases it has finished."""

    @property
    def defense_name(self) -> str:
        """The name of its defense; empty where it sends nothing that needs one."""

    def run(self, link: Link, store: Store | None = None) -> None:
        """Take part in the federation until it is over."""

    def model(self) -> dict[str, Any]:
        """What it keeps to serve predictions later."""

    def modules(self) -> list[nn.Module]:
        """All that it trains."""

    def summary(self) -> dict[str, Any]:
        """What the run's summary says of this party beyond what it says of every party."""


def make_party(
    job: Job,
    data: PartyData,
    schema: Schema,
    notify: Observer = lambda event: None,
    watcher: ActivePartyHook | None = None,
) -> Party:
    """The party of split training that holds `data`; `watcher` sits with the active one."""
    if data.name == job.parties.active:
        return ActiveParty(job, data, schema.task, schema.outputs, schema.join, notify, watcher)
    return PassiveParty(job, data, schema.outputs)


@dataclass
class PartyProgram:
    """One party of a run, ready to be started in a thread or a process."""

    job: Job
    data: PartyData
    schema: Schema
    run: Path
    start_step: int | None = None
    watchers: Sequence[MakeWatcher] = ()
    """What sits with the active party, made where it runs."""
    secret: bool = False
    """Whether what hides its numbers is drawn from the system, as between organisations, and not from the seed."""

    def __call__(self, link: Link, notify: Observer) -> None:
        try:
            self._run(link, notify)
        except (VeracausaError, OSError):
            raise
        except Exception as error:  # a model's or a defense's own: the reader must know whose
            raise RunError(f"party {self.data.name!r} failed: {type(error).__name__}: {error}") from error

    def _run(self, link: Link, notify: Observer) -> None:
        store = Store(self.run, self.data.name, self.job.checkpoints.keep)
        store.start_step = self.start_step
        store.announce_to(link)
        link.ledger = store.ledger
        watcher = Watchers([make(store) for make in self.watchers]) if self.watchers else None
        protocol = protocol_of(self.job)
        party = protocol.make_party(self.job, unshare(self.data), self.schema, notify, watcher, self.secret)
        party.run(link, store)
        store.ledger.flush()
        model = {**party.model(), "classes": list(self.schema.classes)}
        path = store.folder / "model.safetensors"
        atomic_write(path, serialize_state(model))
        path.chmod(0o600)  # it tells of the party's rows, and of a blind run it holds the keys of its answers
        notify(event_of("finished", self._description(party, store)))

    def _description(self, party: Party, store: Store) -> dict[str, Any]:
        known = distributions(party.data.train, self.data.preprocessing)

        def spread(column: Mapping[str, Any]) -> dict[str, Any]:
            return {"distribution": found} if (found := known.get(str(column["name"]))) else {}

        return {
            "party": self.data.name,
            "role": party.role,
            "bytes_sent": store.ledger.bytes_sent,
            "messages": store.ledger.messages,
            "shape": list(self.data.shape),
            "rows": int(party.data.train.present_count()),
            "defense": party.defense_name,
            "parameters": sum(p.numel() for module in party.modules() for p in module.parameters()),
            "rounds": party.step,
            # The party's own: this is written where the party runs, and is told to no other.
            "columns": [{**column, **spread(column)} for column in self.data.profile],
            **({} if self.data.columns is None else {"table_columns": self.data.columns}),
            **party.summary(),
        }


_TENSORS = ("features", "index", "labels")
_SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def share(data: PartyData) -> PartyData:
    """The party's rows in memory that a process of its own can be handed, and nobody else's with them."""
    return _mapped(data, lambda tensor: SharedTensor(tensor))


def unshare(data: PartyData) -> PartyData:
    """The rows of `share` as tensors again: the same memory, not a copy. Other data stays as it is."""
    return _mapped(data, lambda block: block.tensor() if isinstance(block, SharedTensor) else block)


def _mapped(data: PartyData, change: Callable[[Any], Any]) -> PartyData:
    parts: dict[str, Any] = {}
    for split in _SPLITS:
        part = data.part(split)
        held = {name: value for name in _TENSORS if (value := getattr(part, name)) is not None}
        parts[split] = replace(part, **{name: change(value) for name, value in held.items()})
    return replace(data, **parts)
