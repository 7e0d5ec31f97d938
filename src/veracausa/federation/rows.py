"""One party's tables at its own site: from its own files to the rows that all train on together.

The splits are drawn as in a run in one place with the same files, bit for bit: by everybody, from the agreed seed,
over the rows in the order that the active party has drawn. Where it draws none (`key` is None), that is the order of
its file, and with `data.match = "all"` the run is one in one place whose files hold only common rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.config import Job
from veracausa.data import partition, preprocessing
from veracausa.data.columns import remarks
from veracausa.data.files import given_path
from veracausa.data.ids import TableFile
from veracausa.data.split_tables import Drawn, Labels, PartyRows, draw_splits, file_of, keep_common, unused_columns
from veracausa.data.tables import Holding, TableFileOptions, own_table
from veracausa.data.vertical import SPLITS, PartyData, Split
from veracausa.errors import InputError, WireError
from veracausa.events import Observer
from veracausa.federation.row_matching import IdFile, OwnIds, noting, rows_in_order
from veracausa.training.split.program import Schema
from veracausa.training.split.protocol import MAX_ROWS
from veracausa.wire.link import Link
from veracausa.wire.message import MESSAGE, Declared, Kind, TensorSpec

MAX_OUTPUTS = 1 << 16
TASKS = ("classification", "regression")
_APART: tuple[Split, ...] = ("validation", "test")
"""The splits of which only rows are kept that everybody has."""

SCHEMA = Kind("schema", {}, {"task": str, "outputs": int, "tests": int})
"""Active to passive: what is predicted, how many numbers that takes, and whether test rows have a file of their own.
The names of classes stay where they are."""

HELD = Kind("held", {split: TensorSpec(torch.bool, (None,), MAX_ROWS) for split in _APART})
"""With `match = "active"`. Passive to active: which validation and test rows it has. Active to passive: which ones
everybody has, and are therefore kept."""


@dataclass(frozen=True)
class FoundRows:
    """The result of an alignment: the party's own row at each position (-1: none), and what is predicted."""

    rows: Mapping[Split, Tensor]
    task: str
    outputs: int
    notes: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        return {"rows": dict(self.rows), "task": self.task, "outputs": self.outputs, "notes": list(self.notes)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> FoundRows:
        return cls(state["rows"], state["task"], state["outputs"], tuple(state["notes"]))


class SiteTable:
    """A party's own table. `job` is the agreed one with this party's own part, and nobody else's."""

    def __init__(self, job: Job, me: str, folder: Path, alignment: OwnOptions | None = None) -> None:
        if not isinstance(job.data, TableFileOptions):
            raise InputError(f"data.name = {job.data.name!r}: only tables in files of one's own are aligned")
        if job.data.stream:
            raise InputError(
                "data.stream: across organisations rows are matched by their ids, which must be in memory; leave it out"
            )
        self.job, self.me, self.options = job, me, job.data
        self.parties = (job.parties.active, *job.parties.passive)
        self.leads = me == job.parties.active
        self.holding = open_own(job, job.data, me, folder)
        self.columns = own_columns(job, self.holding, me)
        self.labels = Labels.of(self.holding, job.data) if self.leads else None
        settings = AlignmentSettings(parties=self.parties, mode=job.data.match)
        # One id that is missing or stands twice is said here, before anybody is dialled.
        brought = [IdFile(file.ids, str(file.path)) for file in self._files()]
        self.ids = OwnIds(me, settings, alignment or OwnOptions(), brought)

    def check(self) -> None:
        """Refuse columns that cannot become numbers, in either file."""
        fitted = None
        for file in self._files():
            if self.columns is not None:
                fitted = fitted or preprocessing.fit(file.frame, self.columns, str(file.path))
                preprocessing.apply(fitted, file.frame, str(file.path))

    def _files(self) -> list[TableFile]:
        return [self.holding.train, *([self.holding.test] if self.holding.test is not None else [])]

    def find(self, link: Link, notify: Observer, key: bytes | None) -> FoundRows:
        """Which rows train, validate and test, agreed with the others over the link; no id leaves.

        `key` is the active party's secret that rows are ordered by, None at the others.
        """
        task, outputs, apart = self._lead(link) if self.labels is not None else self._follow(link)
        warned: list[str] = []
        hear = noting(notify, warned)
        places: dict[Split, Tensor] = {"train": self._align(link, "train", hear, key)}
        if apart:
            places["test"] = self._align(link, "test", hear, key)
        sizes = len(places["train"]), len(places["test"]) if apart else None
        drawn = draw_splits(sizes, self.options, self.options.holdout, self.job.seed)
        rows: dict[Split, Tensor] = {split: places.get(split, places["train"]) for split in SPLITS}
        common = self._common(link, drawn, rows) if self.options.match == "active" else {}

        def everywhere(split: Split, positions: Tensor) -> Tensor:
            return common.get(split, torch.ones(len(positions), dtype=torch.bool))

        agreed, notes = keep_common(drawn, self.options, everywhere)
        found = {split: rows[split][at] for split, at in agreed.items()}
        return FoundRows(found, task, outputs, (*warned, *self._overlap(places), *notes))

    def data(self, found: FoundRows) -> tuple[PartyData, Schema, tuple[str, ...]]:
        """The party's rows as the programs take them, what it knows of the rest, and notes for a reader."""
        labels = self.labels.at(found.rows) if self.labels is not None else None
        data = PartyRows(self.me, self.holding, found.rows, self.job, self.options.label).data(self.columns, labels)
        remarked = remarks(self.me, data.profile)
        if self.labels is not None:
            known = {self.me: self.columns} if self.columns is not None else {}
            notes = (*found.notes, *unused_columns(self.holding, self.me, self.options.label, known), *remarked)
            return data, Schema(self.labels.task, self.labels.classes, "features"), notes
        classes = tuple(map(str, range(found.outputs))) if found.task == "classification" else ()
        return data, Schema(found.task, classes, "features"), (*found.notes, *remarked)

    def declared(self, rows: int) -> Iterator[Declared]:
        """What it sends beside the alignment itself; `rows` it has at most."""
        others = self.parties[1:]
        if self.leads:
            yield Declared("schema", others, "the task, and how many outputs it has", "run", MESSAGE * len(others))
        if self.options.match == "active":
            peers = others if self.leads else self.parties[:1]
            what = "everybody has" if self.leads else "it has"
            yield Declared("held", peers, f"which validation and test rows {what}", "run", rows * len(peers))

    def _overlap(self, places: Mapping[Split, Tensor]) -> Iterator[str]:
        """How many of the own rows the others have, where these are not all."""
        who = "the active party has" if self.options.match == "active" and not self.leads else "every party has"
        for split, rows in places.items():
            own, held = file_of(self.holding, split).frame.height, int((rows >= 0).sum())
            if held < own:
                yield f"{held} of the {own} rows of {file_of(self.holding, split).path.name} are among those that {who}"

    def _lead(self, link: Link) -> tuple[str, int, bool]:
        assert self.labels is not None
        task, apart = self.labels.task, self.holding.test is not None
        outputs = len(self.labels.classes) if task == "classification" else 1
        for peer in self.parties[1:]:
            link.declare(SCHEMA, peer=peer)
            link.send(peer, SCHEMA, 0, task=task, outputs=outputs, tests=int(apart))
        return task, outputs, apart

    def _follow(self, link: Link) -> tuple[str, int, bool]:
        active = self.job.parties.active
        link.declare(SCHEMA, peer=active)
        answer = link.receive(active, SCHEMA, 0).meta
        task, outputs, tests = answer["task"], answer["outputs"], answer["tests"]
        assert isinstance(task, str)
        assert isinstance(outputs, int)
        if task not in TASKS:
            raise WireError("schema.task", f"{active!r} names a task that is neither of {', '.join(TASKS)}")
        least, most = (2, MAX_OUTPUTS) if task == "classification" else (1, 1)
        if not least <= outputs <= most:
            raise WireError("schema.outputs", f"{active!r} claims {outputs} outputs of a {task}")
        if tests not in (0, 1):
            raise WireError("schema.tests", f"{active!r} must say 0 or 1")
        if self.holding.test is not None and not tests:
            raise InputError("party.toml: data.test_path: the active party has no test file; leave it out")
        return task, outputs, bool(tests)

    def _align(self, link: Link, split: Split, notify: Observer, key: bytes | None) -> Tensor:
        return rows_in_order(self.ids.brought(int(split == "test")), self.ids.settings, link, notify, key)

    def _common(self, link: Link, drawn: Drawn, rows: Mapping[Split, Tensor]) -> dict[Split, Tensor]:
        """Which of the rows drawn for validation and test everybody has."""
        own = {split: rows[split][drawn.rows[split]] >= 0 for split in _APART}
        active, *passive = self.parties
        peers = passive if self.leads else [active]
        for peer in peers:
            link.declare(HELD, peer=peer)
        if not self.leads:
            link.send(active, HELD, 0, {str(split): held for split, held in own.items()})
            return self._receive_held(link, active, own)
        answers = [self._receive_held(link, peer, own) for peer in passive]
        common = {split: torch.stack([held[split] for held in answers]).all(0) for split in _APART}
        for peer in passive:
            link.send(peer, HELD, 0, {str(split): held for split, held in common.items()})
        return common

    @staticmethod
    def _receive_held(link: Link, peer: str, own: Mapping[Split, Tensor]) -> dict[Split, Tensor]:
        answer = link.receive(peer, HELD, 0).tensors
        for split, held in own.items():
            if len(answer[split]) != len(held):
                raise WireError(f"held.{split}", f"{peer!r} speaks of {len(answer[split])} rows, there are {len(held)}")
        return {split: answer[split].cpu() for split in own}


def open_own(job: Job, options: TableFileOptions, me: str, folder: Path) -> Holding[TableFile]:
    """The files that `party.toml` names; a path is taken from the folder that it lies in."""
    own = own_table(job, me)
    id = own.id or options.id
    if own.path is None:
        raise InputError(f"{folder / 'party.toml'}: data.path: is missing; say which file holds this party's rows")
    if id is None:
        raise InputError(f"{folder / 'party.toml'}: data.id: is missing; rows are matched by an id column")

    def opened(path: str, setting: str) -> TableFile:
        beside = folder / path
        place = beside if beside.exists() else given_path(path, f"party.toml: {setting}")
        return TableFile(place, options.read(place, id, own), id)

    test_path = own.test_path or (options.test_path if me == job.parties.active else None)
    test = None if test_path is None else opened(test_path, "data.test_path")
    return Holding(opened(own.path, "data.path"), test, own.columns, own=True)


def own_columns(job: Job, holding: Holding[TableFile], me: str) -> tuple[str, ...] | None:
    """The columns that this party holds as features; None for an active party that uses none."""
    by_job, file = job.partition.columns, holding.train
    partition.check_named_parties(job.partition, (job.parties.active, *job.parties.passive))
    if job.partition.kind == "strips":
        raise InputError("partition.kind = 'strips' is for pictures; use 'columns' or 'auto' for a table")
    if holding.columns is not None and me in by_job:
        raise InputError(f"party.toml: data.columns and partition.columns.{me} both name columns; keep one")
    named = holding.columns if holding.columns is not None else by_job.get(me)
    if named is None and me == job.parties.active and not job.partition.active_has_features:
        return None
    assert isinstance(job.data, TableFileOptions)
    label = job.data.label
    columns = named if named is not None else tuple(c for c in file.frame.columns if c not in (file.id, label))
    if not columns:
        raise InputError(f"party {me!r} is left with no columns of {file.path}; give it some")
    reserved = {label: "label"} | ({file.id: "id"} if file.id else {})
    partition.check_claims({me: columns}, file.frame.columns, reserved, str(file.path))
    return columns
