"""One party's columns at its own site: from its own file to a discovery that all plan alike.

What is done to a column (missing values, scale, whether it takes part) follows from its own values, so each party does
it alone, over the common rows in the agreed order: as in one place, bit for bit. Only what looks across
parties is left out: whether a column follows from another party's is not known to anybody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from veracausa.arrays import Array, Mask
from veracausa.data.causal.columns import PreparedTable, without_missing
from veracausa.data.causal.table import _numbers
from veracausa.data.files import given_path
from veracausa.data.ids import TableFile
from veracausa.data.tables import OwnTable, TableOptions
from veracausa.discovery.job import CATEGORIES, DiscoveryJob, load_columns
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.errors import InputError, WireError
from veracausa.registry import did_you_mean
from veracausa.training.split.protocol import MAX_ROWS
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message, TensorSpec

MAX_COLUMNS = 4096
MAX_NAME = 256
_NAMES = 1 << 22

ATTRIBUTES = Kind(
    "attributes",
    {
        "names": TensorSpec(torch.uint8, (None,), _NAMES),
        "kept": TensorSpec(torch.bool, (None,), MAX_COLUMNS),
        "binary": TensorSpec(torch.bool, (None,), MAX_COLUMNS),
    },
    {"rows": int},
)
"""Party to all others: what its columns are called, which of them vary and take part, which have two values, and how
many rows it trains on."""


@dataclass(frozen=True)
class Attributes:
    """What all may know of one party's columns."""

    names: tuple[str, ...]
    kept: Mask
    binary: Mask
    rows: int

    @property
    def left(self) -> tuple[str, ...]:
        """Those that take part."""
        return tuple(name for name, kept in zip(self.names, self.kept, strict=True) if kept)

    def tensors(self) -> dict[str, Tensor]:
        names = json.dumps(list(self.names)).encode()
        return {
            "names": torch.frombuffer(bytearray(names), dtype=torch.uint8),
            "kept": torch.from_numpy(self.kept.copy()),
            "binary": torch.from_numpy(self.binary.copy()),
        }

    @classmethod
    def of_message(cls, message: Message) -> Attributes:
        """What a peer said, if it can be."""
        sender, rows = message.sender, message.meta["rows"]
        kept, binary = (message.tensors[name].numpy() for name in ("kept", "binary"))
        try:
            names = json.loads(message.tensors["names"].numpy().tobytes())
        except (ValueError, RecursionError):
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise WireError("attributes.names", f"{sender!r} sent no list of names")
        if not 0 < len(names) <= MAX_COLUMNS or len(set(names)) < len(names):
            raise WireError("attributes.names", f"{sender!r} sent {len(names)} names, or one of them twice")
        if not all(0 < len(name) <= MAX_NAME and name.isprintable() for name in names):
            raise WireError("attributes.names", f"{sender!r} sent a name that is empty, too long or not printable")
        if len(kept) != len(names) or not kept.any() or len(binary) != kept.sum():
            raise WireError("attributes.kept", f"{sender!r} speaks of other columns than it names")
        if not isinstance(rows, int) or not 0 < rows <= MAX_ROWS:
            raise WireError("attributes.rows", f"{sender!r} claims {rows} rows, at most {MAX_ROWS} can be")
        return cls(tuple(names), kept, binary, rows)


def exchange(link: Link, parties: Sequence[str], own: Attributes | None) -> dict[str, Attributes]:
    """Everybody's columns, told to all; `own` is None at the validator, which has none."""
    for peer in link.peers:
        link.declare(ATTRIBUTES, peer=peer)
        if own is not None:
            link.send(peer, ATTRIBUTES, 0, own.tensors(), rows=own.rows)
    said = {}
    for party in parties:
        theirs = own if party == link.me else Attributes.of_message(link.receive(party, ATTRIBUTES, 0))
        assert theirs is not None
        said[party] = theirs
    expected = own if own is not None else next(iter(said.values()))
    seen: dict[str, str] = {}
    for party, theirs in said.items():
        if theirs.rows != expected.rows:
            raise WireError("attributes.rows", f"{party!r} claims {theirs.rows} rows, {expected.rows} are in common")
        for name in theirs.names:
            if name in seen:
                raise InputError(f"column {name!r} is with {seen[name]!r} and with {party!r}; one of them renames it")
            seen[name] = party
    return said


class SiteColumns:
    """A party's own columns, before and after it is known which rows are common."""

    def __init__(self, job: DiscoveryJob, method: VFedCD, own: OwnTable, me: str, folder: Path) -> None:
        self.me, self.method = me, method
        named = job.parties.get(me) or ()
        self.table: TableFile | None = None
        if "name" in job.data:
            # A data set that every site has: each takes its own columns, and nothing has to be aligned.
            data, parties = load_columns(job)
            if me not in parties:
                raise InputError(f"job.toml: parties.{me}: is missing; name the columns of {me!r}")
            whole = without_missing(data.values, data.names, method.missing)[0]
            self.names = tuple(parties[me])
            self._values: Array | None = whole[:, [data.names.index(name) for name in self.names]]
            self.ids: list[str] = []
            return
        if own.columns and named:
            raise InputError(f"party.toml: data.columns and the job's parties.{me} both name columns; keep one")
        self._values = None
        self.table = _open(own, job.data.get("on"), folder)
        self.names = _columns(self.table, own.columns or named)
        self.rows = torch.arange(self.table.frame.height)
        numbers = self._numbers(self.rows)  # a column that cannot be used is said before anybody is dialled
        if method.missing == "drop":
            # Rows that lack a value never become common: the same ones are left as if all were dropped together.
            lacking = np.asarray(np.isnan(numbers).any(axis=1))
            self.rows = self.rows[torch.from_numpy(~lacking)]
            if not len(self.rows):
                raise InputError(f"{self.table.path}: every row lacks a value; set missing = 'median'")
        self.ids = [self.table.ids[row] for row in self.rows.tolist()]

    @property
    def count(self) -> int:
        """Rows that it has."""
        return len(self.ids) if self._values is None else len(self._values)

    def prepared(self, found: Tensor | None) -> tuple[PreparedTable, Attributes, tuple[str, ...]]:
        """The columns ready to train on, and what the others are told; `found` are places among `ids`."""
        values = self._values
        if values is None:
            assert found is not None
            values = self._numbers(self.rows[found])
        nothing = np.zeros((len(self.names),) * 2, dtype=bool)
        rows, kept, notes = self.method._prepared(self.method.settings(), values, self.names, nothing, nothing)
        mask = np.zeros(len(self.names), dtype=bool)
        mask[kept] = True
        return rows, Attributes(self.names, mask, rows.binary, len(rows.train) + len(rows.held_out)), notes

    def own_bytes(self) -> bytes:
        if self.table is not None:
            return self.table.path.read_bytes()
        assert self._values is not None
        return self._values.tobytes()

    def _numbers(self, rows: Tensor) -> Array:
        assert self.table is not None
        frame = self.table.take(rows)
        place, at = str(self.table.path), rows.tolist()
        numbers = [_numbers(frame[name], place, CATEGORIES, [], at) for name in self.names]
        return np.stack(numbers, axis=1)


def _open(own: OwnTable, on: str | None, folder: Path) -> TableFile:
    place = folder / "party.toml"
    if own.path is None:
        raise InputError(f"{place}: data.path: is missing; say which file holds this party's columns")
    if own.test_path is not None:
        raise InputError(f"{place}: data.test_path: a discovery tests nothing; leave it out")
    id = own.id or on
    if id is None:
        raise InputError(f"{place}: data.id: is missing; rows are matched by an id column")
    beside = folder / own.path
    path = beside if beside.exists() else given_path(own.path, "party.toml: data.path")
    return TableFile(path, TableOptions(name="csv", label="").read(path, id, own), id)


def _columns(table: TableFile, named: Sequence[str]) -> tuple[str, ...]:
    for name in named:
        if name not in table.frame.columns or name == table.id:
            raise InputError(f"{table.path}: no column {name!r}{did_you_mean(name, table.frame.columns)}")
    names = tuple(named) or tuple(name for name in table.frame.columns if name != table.id)
    if not names:
        raise InputError(f"{table.path}: has no column but the id; give it attributes")
    return names


def all_names(said: Mapping[str, Attributes]) -> tuple[str, ...]:
    """Of all columns, party by party, those that take no part among them."""
    return tuple(name for theirs in said.values() for name in theirs.names)
