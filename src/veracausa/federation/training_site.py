"""A training at one party's own site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from veracausa.config import Job, load_job
from veracausa.data import preprocessing
from veracausa.data.load import load
from veracausa.data.split_tables import file_of
from veracausa.data.tables import TableFileOptions
from veracausa.data.vertical import SPLITS, PartyData, VerticalDataset
from veracausa.errors import InputError, VeracausaError
from veracausa.events import Event, Observer
from veracausa.federation.consent import UNENCRYPTED, describe_training
from veracausa.federation.party_file import ALIGNMENT, own_options, party_tree
from veracausa.federation.row_matching import agree_on_kept
from veracausa.federation.row_matching import declared as declared_alignment
from veracausa.federation.rows import FoundRows, SiteTable
from veracausa.federation.site_program import OPEN_ORDER, SEED, SEED_BYTES, SiteProgram, order_key, own_secret
from veracausa.federation.training_messages import OwnPart, declared_training
from veracausa.models import require_allowed
from veracausa.runs import folder as folders
from veracausa.runs.folder import Run
from veracausa.training.checkpoints import other_settings, rewind_to
from veracausa.training.protocols import protocol_of
from veracausa.training.split.program import PartyProgram, Schema
from veracausa.training.train import summarise
from veracausa.wire.link import Link
from veracausa.wire.message import Declared

_PUBLIC_SEED = {
    "split": (
        "the job's seed is known to all, and this party's first weights and the noise of its defense follow from it: a "
        "partner can draw them again, and take the noise off; a secret seed prevents that"
    ),
    "blind": (
        "the job's seed is known to all, and this party's noise on the sums and the dither of its scores follow from "
        "it: a partner can draw them again, and take them off; a secret seed prevents that"
    ),
}
_EVERYWHERE = "every site loads the whole data set and takes its own part: this is an exercise, and hides no row"


class SplitSite(SiteProgram):
    """A party of split or blind training with its own files, or with its own part of a data set that every site has.

    With `secret`, what this party draws for itself (first weights, the noise of its defense, the active party's order
    of rows) follows from what only it knows; without, from the job's seed and its file, as in a run in one place. A
    model that is code is built only if `allow_model` names the same one.
    """

    engine = "split"

    def __init__(self, folder: Path, me: str, secret: bool, allow_model: str | None = None) -> None:
        super().__init__(folder, me)
        self.secret = secret
        self.job = job = own_job(folder, me, allow_model)
        require_allowed(job.model)
        self.role = "active" if me == job.parties.active else "passive"
        self.peers = tuple(name for name in (job.parties.active, *job.parties.passive) if name != me)
        alignment = own_options(party_tree(folder), folder)
        self.table = SiteTable(job, me, folder, alignment) if isinstance(job.data, TableFileOptions) else None
        if self.table is not None:
            self.table.check()
        self.ids = self.table.ids if self.table is not None else None
        self.dataset: VerticalDataset | None = None if self.table else load(job)
        self.declared = tuple(self._declared())
        part = self._own_part()
        self.described = describe_training(job, me, part.rows, part.scores)
        if not (self.path / "config.toml").is_file():
            folders.create(self.path, job, {me: self.role})
        elif difference := other_settings(self.path, job):
            raise InputError(f"{self.path}: was begun with other settings: {difference}; remove it to begin anew")
        self._open_store(job.checkpoints.keep, self._own_bytes())
        self._key: bytes | None = None
        if self.table is not None and self.table.leads:
            self._key = order_key(self.store.folder, secret)
            self.warnings += () if secret else (OPEN_ORDER,)
        if secret:
            # Of the splits, which all draw alike, the table has the job as it was agreed.
            seed = int.from_bytes(own_secret(self.store.folder / SEED, SEED_BYTES), "big")
            self.job = job.model_copy(update={"seed": seed})
        elif self.role == "passive":
            self.warnings += (_PUBLIC_SEED[job.training.protocol],)
        if job.training.protocol == "blind" and job.blind.encryption == "none":
            self.warnings += (f"{UNENCRYPTED}: a partner reads your features; say no if any of them is real",)
        if self.table is None:
            self.warnings += (_EVERYWHERE,)
        self.data: PartyData | None = None
        self.schema: Schema | None = None
        self.notes: tuple[str, ...] = ()

    def align(self, link: Link, notify: Observer) -> None:
        if self.table is None:
            assert self.dataset is not None
            self.data, self.schema = self.dataset.parties[self.me], Schema.of(self.dataset)
            self.notes = self.dataset.notes
            return
        self._record_alignment(link)
        fingerprint, state = self._kept()
        reuse, fingerprint = agree_on_kept(link, self.table.parties, fingerprint)
        found = FoundRows.of_state(state) if reuse else self.table.find(link, notify, self._key)
        if not reuse:
            self._keep(fingerprint, found.state())
        link.ledger.flush()
        self.data, self.schema, self.notes = self.table.data(found)

    def data_here(self) -> VerticalDataset:
        """This party's rows as they were aligned for the run, without anybody else."""
        if self.table is None:
            assert self.dataset is not None
            self.data, self.schema = self.dataset.parties[self.me], Schema.of(self.dataset)
        else:
            _, state = self._kept()
            if state is None:
                raise InputError(f"{self.path}: these are not the data of the run; put them back as they were")
            self.data, self.schema, self.notes = self.table.data(FoundRows.of_state(state))
        return self._seen()

    def run(self, link: Link, notify: Observer, start_step: int | None) -> None:
        assert self.data is not None, "align comes first"
        assert self.schema is not None
        job, finished = self.job, {}
        rewind_to(self.path, [self.store], start_step)

        def hear(event: Event) -> None:
            if event["event"] == "finished":
                finished[self.me] = {key: value for key, value in event.items() if key not in ("event", "party")}
            if event["event"] == "epoch":
                folders.set_status(self.path, epoch=event["epoch"], step=event["step"])
            notify(event)

        epochs = protocol_of(job).epochs(job)
        folders.set_status(self.path, state="running", epoch=0, epochs=epochs, step=start_step or 0, error=None)
        threads = torch.get_num_threads()
        try:
            if job.runtime.cpu_threads:
                torch.set_num_threads(job.runtime.cpu_threads)
            PartyProgram(job, self.data, self.schema, self.path, start_step, secret=self.secret)(link, hear)
            folders.write_json(self.path / "summary.json", summarise(Run(self.path), job, self._seen(), finished))
            folders.set_status(self.path, state="done", epoch=epochs)
        except BaseException as error:
            message = str(error) if isinstance(error, VeracausaError) else f"{type(error).__name__}: {error}"
            folders.set_status(self.path, state="failed", error=message)
            raise
        finally:
            torch.set_num_threads(threads)

    def _seen(self) -> VerticalDataset:
        """The data as far as they are here."""
        assert self.data is not None
        assert self.schema is not None
        task: Any = self.schema.task
        return VerticalDataset(
            self.job.data.name,
            self.job.parties.active,
            {self.me: self.data},
            task,
            self.schema.classes,
            self.schema.join,
            self.notes,
        )

    def _own_bytes(self) -> Iterator[bytes]:
        if self.table is not None:
            for file in (self.table.holding.train, self.table.holding.test):
                if file is not None:
                    yield file.path.read_bytes()
            return
        assert self.dataset is not None
        for split in SPLITS:
            part = self.dataset.parties[self.me].part(split)
            for tensor in (part.features, part.index, part.labels):
                if tensor is not None:
                    yield tensor.contiguous().numpy().tobytes()

    def _declared(self) -> Iterator[Declared]:
        rows = self._rows_and_shape()[0]
        if self.table is not None:
            ids = max(rows, *self.table.ids.announced)
            yield from declared_alignment(self.me, self.table.parties, ids, self.table.options.match)
            yield from self.table.declared(rows)
        yield from declared_training(self._own_part())

    def _own_part(self) -> OwnPart:
        rows, shape, columns = self._rows_and_shape()
        outputs = None if self.dataset is None else Schema.of(self.dataset).outputs
        if self.table is not None and self.table.labels is not None:
            outputs = max(1, len(self.table.labels.classes))
        return OwnPart(self.job, self.me, rows, shape, columns, outputs)

    def _rows_and_shape(self) -> tuple[int, tuple[int, ...], int | None]:
        """How many rows there are at most, the shape of one, and a table's columns, as if all were trained on."""
        if self.table is None:
            assert self.dataset is not None
            data = self.dataset.parties[self.me]
            return sum(len(data.part(split)) for split in SPLITS), data.shape, data.columns
        holding, columns = self.table.holding, self.table.columns
        rows = holding.train.frame.height + (holding.test.frame.height if holding.test is not None else 0)
        if columns is None:
            return rows, (), None
        file = file_of(holding, "train")
        fitted = preprocessing.fit(file.frame, columns, str(file.path))
        return rows, (len(preprocessing.feature_groups(fitted)),), preprocessing.column_count(fitted)


def own_job(folder: Path, me: str, allow_model: str | None = None) -> Job:
    """The agreed job with this party's own part; what can not be done across sites is refused."""
    path = folder / "job.toml"
    job = load_job(path, allow_model=allow_model)
    if job.party:
        raise InputError(f"{path}: [party.*] is a party's own; it belongs into that party's party.toml")
    if me not in (job.parties.active, *job.parties.passive):
        raise InputError(f"{path}: {me!r} has no part in this job")
    if job.training.baselines:
        raise InputError(f"{path}: training.baselines: they need all columns in one place; leave them out")
    if job.transcript.record:
        raise InputError(
            f"{path}: transcript.record: attacks on it are measured on the passive parties' rows, which are not at the "
            "active party's site; record in one place"
        )
    tree = {name: value for name, value in party_tree(folder).items() if name != ALIGNMENT}
    try:
        own = load_job({**job.model_dump(mode="json", exclude_none=True), "party": {me: tree}})
    except InputError as error:
        raise InputError(f"{folder / 'party.toml'}: {str(error).removeprefix(f'job: party.{me}.')}") from None
    own.model.allow(job.model.allowed, job.model.named_in)
    return own
