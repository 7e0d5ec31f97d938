"""Tables as each party holds them: rows aligned on the active party's ids, columns turned into numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.data import overlap, preprocessing
from veracausa.data.align import TableFile, held_by_all
from veracausa.data.hold_out import hold_out, limit_notes
from veracausa.data.labels import classes_of, encode, task_of
from veracausa.data.tables import Holding, TableOptions, Tables, columns_held
from veracausa.data.vertical import SPLITS, Part, PartyData, Split, VerticalDataset
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.config import Job


@dataclass(frozen=True)
class Rows:
    """The agreed rows of one split: where they stand in the active party's file."""

    file: TableFile
    rows: Tensor

    def kept(self, chosen: Tensor) -> Rows:
        return Rows(self.file, self.rows[chosen])

    def ids(self) -> list[str]:
        return [self.file.ids[row] for row in self.rows.tolist()]

    def found_in(self, file: TableFile) -> Tensor:
        return self.rows if file is self.file else file.find(self.ids())


def split_tables(tables: Tables, options: TableOptions, job: Job) -> VerticalDataset:
    """The tables split between parties, positions agreed; preprocessing fitted on each party's own training rows."""
    active = tables.holdings[job.parties.active]
    active.train.require(options.label, "the label")
    labels = active.train.frame[options.label]
    task = task_of(labels) if options.task == "auto" else options.task
    classes = classes_of(labels, str(active.train.path)) if task == "classification" else ()
    columns = columns_held(tables, options.label, job)
    agreed, notes = _agree(tables, options, job, set(columns))
    targets = {}
    for file in {id(rows.file): rows.file for rows in agreed.values()}.values():
        file.require(options.label, "the label")
        targets[id(file)] = encode(file.frame[options.label], task, classes, str(file.path))
    lacking = overlap.parties_lacking(job.overlap, job.parties.passive)
    parties = {}
    for name in (job.parties.active, *job.parties.passive):
        fraction = job.overlap.fraction if name in lacking else 1.0
        own = _PartyRows(name, tables.holdings[name], agreed, fraction, job.seed)
        label_parts = None
        if name == job.parties.active:
            label_parts = {split: targets[id(rows.file)][rows.rows] for split, rows in agreed.items()}
        parties[name] = own.data(columns.get(name), label_parts)
    notes = (*tables.notes, *notes, *_unused(active, job.parties.active, options.label, columns))
    return VerticalDataset(options.name, job.parties.active, parties, task, classes, "features", notes)


def _agree(
    tables: Tables, options: TableOptions, job: Job, holders: set[str]
) -> tuple[dict[Split, Rows], tuple[str, ...]]:
    """Which rows make up each split: the active party's, less those of validation and test that some party lacks."""
    active = tables.holdings[job.parties.active]
    everyone = torch.arange(active.train.frame.height)
    if active.test is None:
        drawn = hold_out(len(everyone), tables.holdout, seeding.generator(job.seed, "holdout"), "data.holdout")
        test, train_rows = Rows(active.train, everyone[drawn]), everyone[~drawn]
    else:
        test, train_rows = Rows(active.test, torch.arange(active.test.frame.height)), everyone
    in_all = len(train_rows)
    train = Rows(active.train, train_rows[: options.train])
    drawn = hold_out(len(train.rows), options.validation, seeding.generator(job.seed, "validation"), "data.validation")
    agreed: dict[Split, Rows] = {"train": train.kept(~drawn), "validation": train.kept(drawn), "test": test}
    notes = []
    for split in ("validation", "test"):
        rows = agreed[split]
        found = [rows.found_in(_file(tables.holdings[name], split)) for name in holders]
        everywhere = held_by_all(found)
        agreed[split] = rows.kept(everywhere)
        if not everywhere.all():
            dropped = len(everywhere) - int(everywhere.sum())
            notes.append(
                f"{options.name}: {dropped} of {len(everywhere)} {split} rows dropped: not every party holds them"
            )
    if not len(agreed["test"].rows):
        raise InputError("no test row is held by every party; check that the id columns name the same people")
    notes += limit_notes(options, (in_all, len(agreed["test"].rows)))
    agreed["test"] = agreed["test"].kept(torch.arange(len(agreed["test"].rows))[: options.test])
    return agreed, tuple(notes)


def _file(holding: Holding, split: Split) -> TableFile:
    return holding.test if split == "test" and holding.test is not None else holding.train


def _unused(active: Holding, name: str, label: str, columns: Mapping[str, Any]) -> tuple[str, ...]:
    spare = [column for column in active.train.frame.columns if column not in (active.train.id, label)]
    if not active.own or name in columns or not spare:
        return ()
    return (f"party {name}: {len(spare)} columns of its own are not used (partition.active_has_features is false)",)


@dataclass(frozen=True)
class _PartyRows:
    """One party's way from the agreed rows to its parts."""

    name: str
    holding: Holding
    agreed: Mapping[Split, Rows]
    fraction: float
    seed: int

    def data(self, columns: tuple[str, ...] | None, labels: Mapping[Split, Tensor] | None) -> PartyData:
        fitted = None
        if columns is not None:
            # Overlap first: what a party is said to lack must not shape its preprocessing.
            positions, found = self._held("train")
            file, rows = self.holding.train, found[positions]
            fitted = preprocessing.fit(file.take(rows), columns, str(file.path), rows.tolist())
        train, validation, test = (
            self._part(split, fitted, None if labels is None else labels[split]) for split in SPLITS
        )
        shape = () if train.features is None else tuple(train.features.shape[1:])
        return PartyData(self.name, shape, train, validation, test, fitted)

    def _held(self, split: Split) -> tuple[Tensor, Tensor]:
        """The positions this party holds, and the row of its file for every position (-1: none)."""
        found = self.agreed[split].found_in(_file(self.holding, split))
        positions = (found >= 0).nonzero().flatten()
        if split == "train":
            if not len(positions):
                raise InputError(
                    f"party {self.name!r}: no id of {self.holding.train.path} is among the active party's; "
                    "check that both id columns name the same people in the same way"
                )
            if self.fraction < 1:
                positions = positions[overlap.held(len(positions), self.fraction, self.seed, self.name)]
        return positions, found

    def _part(self, split: Split, fitted: Mapping[str, Any] | None, labels: Tensor | None) -> Part:
        if fitted is None:
            agreed = self.agreed[split]
            return Part(len(agreed.rows), labels=labels, ids=tuple(agreed.ids()))
        positions, found = self._held(split)
        file, length = _file(self.holding, split), len(found)
        rows = found[positions]
        features = preprocessing.apply(fitted, file.take(rows), str(file.path), rows.tolist())
        index = None if len(positions) == length else overlap.index_of(positions, length)
        ids = [""] * length
        for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
            ids[position] = file.ids[row]
        return Part(length, features, index, labels, tuple(ids), preprocessing.feature_groups(fitted))
