"""Joint predictions across sites: everybody brings its own new rows, and the active party gets the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.config import Job
from veracausa.data.ids import TableFile
from veracausa.data.load import load_new, new_labels, new_party
from veracausa.data.split_tables import file_of
from veracausa.data.tables import TableOptions, own_table
from veracausa.data.vertical import PartyData, VerticalDataset
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.federation.consent import ConsentStore
from veracausa.federation.export_import import SiteRun
from veracausa.federation.party_file import allowed_model, own_options, party_tree
from veracausa.federation.row_matching import IdFile, rows_in_order
from veracausa.federation.site_program import order_key
from veracausa.federation.training_site import SplitSite
from veracausa.models import require_allowed
from veracausa.training.checkpoints import check_shape, saved_model
from veracausa.training.predict import Predictions, Serving, named
from veracausa.training.split.program import Schema
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link

NUMBER = 2
"""Of this alignment, beside those of training rows and test rows."""


class SitePrediction:
    """One party of a joint prediction, from its own folder and its own new rows.

    Without `data`, the test rows of the training are predicted. What is wrong with them is said before anybody is
    dialled. A model that is code runs only if `allow_model` or the folder's own `party.toml` names the same one.
    """

    def __init__(self, folder: Path, me: str, data: Path | None = None, allow_model: str | None = None) -> None:
        self.folder, self.me = folder, me
        allowed = allow_model or allowed_model(folder)
        self.run = SiteRun(folder, me, allowed)
        self.job: Job = self.run.job
        require_allowed(self.job.model)
        self.model = saved_model(self.run, me)
        self.parties = (self.job.parties.active, *self.job.parties.passive)
        self.peers = tuple(name for name in self.parties if name != me)
        self.active = me == self.job.parties.active
        self.table: TableFile | None = None
        self.dataset: VerticalDataset | None = None
        self.site: SplitSite | None = None
        if data is None and self.run.status.get("imported"):
            raise InputError(f"{self.run.path}: was imported, and has no test rows of its training; give new rows")
        if data is None:
            self.site = SplitSite(folder, me, self.run.secret, allow_model=allowed)
        elif isinstance(self.job.data, TableOptions):
            self.table = self._open(data, self.job.data)
        else:
            # Every site has the same new pictures, and takes its own part of them.
            self.dataset = load_new(self.job, data, {}, tuple(self.model["classes"]))

    def __call__(self, link: Link, notify: Observer) -> Predictions | None:
        """Predict together; the predictions at the active party, None at the others."""
        data, schema = self._rows(link, notify)
        check_shape(self.me, data, self.model)
        link.ledger = Ledger(self.run.path / "parties" / self.me / "inference.jsonl")
        results: dict[str, Tensor] = {}
        Serving(self.run, self.job, data, schema, self.model, results)(link, notify)
        link.ledger.flush()
        if not self.active:
            return None
        task: Any = schema.task
        whole = VerticalDataset(self.job.data.name, self.me, {self.me: data}, task, schema.classes, schema.join)
        return self._as_in_file(named(whole, results["outputs"]))

    def _as_in_file(self, predictions: Predictions) -> Predictions:
        """In the order of the active party's own file, which nobody else was told."""
        if self.table is not None:
            row_of = self.table.row_of
        elif self.site is not None and self.site.table is not None:
            row_of = file_of(self.site.table.holding, "test").row_of
        else:
            return predictions
        order = sorted(range(len(predictions.ids)), key=lambda place: row_of[predictions.ids[place]])
        ids = tuple(predictions.ids[place] for place in order)
        return replace(predictions, ids=ids, outputs=predictions.outputs[order])

    def _options(self) -> OwnOptions:
        """With few new rows, a partner may still bring its whole table: as large a one as could be trained with."""
        own = own_options(party_tree(self.folder), self.folder)
        assert self.table is not None
        trained = ConsentStore(self.folder).announced(self.me)
        return own.model_copy(update={"max_ids": own.limit(max(len(self.table.ids), trained))})

    def _key(self) -> bytes | None:
        """What the active party orders new rows by: as its run does."""
        return order_key(self.run.path / "parties" / self.me, self.run.secret) if self.active else None

    def _rows(self, link: Link, notify: Observer) -> tuple[PartyData, Schema]:
        if self.site is not None:
            self.site.align(link, notify)
            assert self.site.data is not None
            assert self.site.schema is not None
            return self.site.data, self.site.schema
        if self.dataset is not None:
            return self.dataset.parties[self.me], Schema.of(self.dataset)
        assert self.table is not None
        link.ledger = Ledger(self.run.path / "parties" / self.me / "alignment.jsonl")
        settings = AlignmentSettings(parties=self.parties)
        brought = IdFile(self.table.ids, str(self.table.path), self._options(), NUMBER)
        rows = rows_in_order(brought, settings, link, notify, self._key())
        link.ledger.flush()
        ids = tuple(self.table.ids[row] for row in rows.tolist())
        classes = tuple(self.model["classes"])
        labels = new_labels(self.job, self.table, rows, classes) if self.active else None
        data = new_party(self.me, self.model["preprocessing"] or None, self.table, rows, ids, labels)
        return data, Schema("classification" if classes else "regression", classes, "features")

    def _open(self, path: Path, options: TableOptions) -> TableFile:
        own = own_table(self.job, self.me)
        id = own.id or options.id
        if id is None:
            raise InputError(f"{self.folder / 'party.toml'}: data.id: is missing; rows are matched by an id column")
        return TableFile(path, options.read(path, id, own), id)
