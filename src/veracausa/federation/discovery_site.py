"""A causal discovery at one party's own site, or at the validator's, which has no data: what all methods have alike.

`discovery_methods` knows the class of each method. It says what crosses, plans with the others, and runs.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.atomic import atomic_write
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.discover import DiscoveryRun
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.job import DiscoveryJob
from veracausa.errors import InputError, VeracausaError
from veracausa.events import Event, Observer
from veracausa.federation.columns import Attributes, OwnDiscoveryTable, SiteColumns, exchange
from veracausa.federation.consent import Row
from veracausa.federation.members import first_problem
from veracausa.federation.party_file import ALIGNMENT, own_options, party_tree
from veracausa.federation.row_matching import IdFile, OwnIds, agree_on_kept, noting, rows_in_order
from veracausa.federation.row_matching import declared as declared_alignment
from veracausa.federation.site_program import OPEN_ORDER, SiteProgram, order_key
from veracausa.runs import folder as folders
from veracausa.runs.fit_status import FitStatus
from veracausa.wire.link import Link
from veracausa.wire.message import MESSAGE, Declared


class DiscoverySite(SiteProgram):
    """One member of a discovery; the one named `validator` looks at the graph and holds no column.

    With `secret`, the first party orders rows by a secret of its own; without, they lie as in its file.
    """

    engine = "discovery"
    method: CausalDiscovery
    drop_missing: bool = False
    """Whether rows that lack a value take no part."""

    def __init__(self, folder: Path, me: str, secret: bool, job: DiscoveryJob, members: tuple[str, ...]) -> None:
        super().__init__(folder, me)
        self.job, self.secret = job, secret
        self.parties = tuple(job.parties)
        self.peers = tuple(name for name in members if name != me)
        own = own_table(folder)
        self.columns = None if me == VALIDATOR else SiteColumns(job, own, me, folder, self.drop_missing)
        if self.columns is not None and self.columns.table is not None:
            brought = IdFile(self.columns.ids, str(self.columns.table.path))
            self.ids = OwnIds(me, AlignmentSettings(parties=self.parties), _alignment(folder), [brought])
        self.declared = (*self._declared_of_columns(), *self._declared())
        self.described = self._described("name" not in job.data)
        described = job.to_toml().encode()
        config = self.path / "config.toml"
        if config.is_file() and config.read_bytes() != described:
            raise InputError(f"{self.path}: was begun with another job; remove it to begin anew")
        self.path.mkdir(parents=True, exist_ok=True)
        atomic_write(config, described)
        self._open_store(3, () if self.columns is None else (self.columns.own_bytes(),))
        self._key: bytes | None = None
        if me == self.parties[0] and self.ids is not None:
            self._key = order_key(self.store.folder, secret)
            self.warnings += () if secret else (OPEN_ORDER,)
        self.said: dict[str, Attributes] = {}
        """What all may know of everybody's columns."""
        self.notes: tuple[str, ...] = ()

    # --- what a method decides

    @abstractmethod
    def _declared(self) -> Iterator[Declared]:
        """What this member sends beside the matching of rows and the names of columns."""

    @abstractmethod
    def _described(self, aligned: bool) -> tuple[Row, ...]:
        """The terms in words; `aligned`: the parties' rows are matched first."""

    @abstractmethod
    def _prepare(self, found: Tensor | None) -> tuple[Attributes, tuple[str, ...]]:
        """Make this party's columns ready; what the others are told of them, and notes."""

    @abstractmethod
    def _agree(self, link: Link) -> None:
        """Come to the same plan as the others, from what all have said of their columns."""

    @abstractmethod
    def _take_part(self, link: Link, hear: Observer, start_step: int | None) -> None:
        """Run to the end, and write down what was found."""

    @property
    @abstractmethod
    def _epochs(self) -> int:
        """How many steps there are, for the status."""

    # --- what all have alike

    def _declared_of_columns(self) -> Iterator[Declared]:
        if self.columns is None:
            return
        if self.ids is not None:
            yield from declared_alignment(self.me, self.parties, self.ids.announced[0])
        each = MESSAGE + sum(len(name.encode()) + 4 for name in self.columns.names)
        what = "names of columns, which vary, of which kind they are"
        yield Declared("attributes", self.peers, what, "run", len(self.peers) * each)

    def align(self, link: Link, notify: Observer) -> None:
        self._record_alignment(link)
        own = None
        if self.columns is not None:
            found, warned = None, []
            if self.ids is not None:
                fingerprint, state = self._kept()
                reuse, fingerprint = agree_on_kept(link, self.parties, fingerprint)
                if reuse:
                    found, warned = state["rows"], state.get("notes", [])
                else:
                    hear = noting(notify, warned)
                    found = rows_in_order(self.ids.brought(0), self.ids.settings, link, hear, self._key)
                    self._keep(fingerprint, {"rows": found, "notes": warned})
            own, notes = self._prepare(found)
            own = replace(own, rows_name=self._rows_name(found))
            self.notes = (*warned, *self.columns.notes, *notes)
        self.said = exchange(link, self.parties, own)
        self._agree(link)
        link.ledger.flush()

    def _rows_name(self, found: Tensor | None) -> str:
        """The leader's name of the common rows, the same at every start; none without a secret of its own."""
        if self._key is None or self.columns is None:
            return ""
        hashed = hashlib.blake2b(key=self._key, person=b"rows", digest_size=16)
        for row in sorted(self.columns.row_names(found)):
            hashed.update(len(row).to_bytes(8, "little") + row)
        return hashed.hexdigest()

    def run(self, link: Link, notify: Observer, start_step: int | None) -> None:
        assert self.said, "align comes first"
        folders.set_status(self.path, state="running", epochs=self._epochs, step=start_step or 0, error=None)

        status = FitStatus(self.path)

        def hear(event: Event) -> None:
            if event["event"] == "epoch":
                status.tell("graph", event["step"] / self._epochs, self._epochs)
            notify(event)

        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            self._take_part(link, hear, start_step)
            folders.set_status(self.path, state="done")
            DiscoveryRun(self.path).report()
        except BaseException as error:
            message = str(error) if isinstance(error, VeracausaError) else f"{type(error).__name__}: {error}"
            folders.set_status(self.path, state="failed", error=message)
            raise
        finally:
            torch.set_num_threads(threads)


def own_table(folder: Path) -> OwnDiscoveryTable:
    """What this party's `party.toml` says of its table."""
    tree: dict[str, Any] = party_tree(folder)
    if odd := sorted(set(tree) - {"data", "book", ALIGNMENT}):
        raise InputError(
            f"{folder / 'party.toml'}: {odd[0]}: of a discovery only [data], [{ALIGNMENT}] and book are a party's own; "
            "leave it out"
        )
    try:
        return OwnDiscoveryTable.model_validate(tree.get("data", {}))
    except ValidationError as error:
        raise InputError(f"{folder / 'party.toml'}: data: {first_problem(error)}") from None


def _alignment(folder: Path) -> OwnOptions:
    return own_options(party_tree(folder), folder)
