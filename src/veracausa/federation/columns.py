"""One party's columns at its own site: from its own file to a discovery that all plan alike.

What is done to a column (missing values, scale, whether it takes part) follows from its own values, so each party does
it alone, over the common rows in the agreed order: as in one place, bit for bit. Only what looks across
parties is left out: whether a column follows from another party's is not known to anybody.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from veracausa.arrays import Array, Mask
from veracausa.data.causal import CausalData, checked
from veracausa.data.causal.coding import Reading, Remedies, attributes, coded_columns
from veracausa.data.causal.table import CausalFileOptions
from veracausa.data.files import given_path
from veracausa.data.ids import TableFile
from veracausa.data.tables import OwnTable, TableOptions
from veracausa.discovery.job import DiscoveryJob, load_columns
from veracausa.discovery.methods.moments.expansion import ColumnKind
from veracausa.errors import InputError, WireError
from veracausa.registry import did_you_mean
from veracausa.training.split.protocol import MAX_ROWS
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message, TensorSpec

MAX_COLUMNS = 4096
MAX_NAME = 256
_NAMES = 1 << 22
_ROWS_NAME = re.compile(r"([0-9a-f]{32})?")

ATTRIBUTES = Kind(
    "attributes",
    {
        "names": TensorSpec(torch.uint8, (None,), _NAMES),
        "kept": TensorSpec(torch.bool, (None,), MAX_COLUMNS),
        "kinds": TensorSpec(torch.uint8, (None,), MAX_COLUMNS),
    },
    {"rows": int, "rows_name": str},
)
"""Party to all others: what its columns are called, which of them vary and take part, of which kind these are (by
place in `KINDS`), how many rows it has in common with the others, and the leader's name of these rows."""
KINDS: tuple[ColumnKind, ...] = ("number", "binary", "nominal")


@dataclass(frozen=True)
class Attributes:
    """What all may know of one party's columns."""

    names: tuple[str, ...]
    kept: Mask
    kinds: tuple[ColumnKind, ...]
    """Of those that take part."""
    rows: int
    rows_name: str = ""
    """Of the leader: a keyed hash of the common ids, by which the same rows are known again. It tells nothing else."""

    @property
    def binary(self) -> Mask:
        """Which of those that take part have two values."""
        return np.array([kind == "binary" for kind in self.kinds], dtype=bool)

    @property
    def left(self) -> tuple[str, ...]:
        """Those that take part."""
        return tuple(name for name, kept in zip(self.names, self.kept, strict=True) if kept)

    def tensors(self) -> dict[str, Tensor]:
        names = json.dumps(list(self.names)).encode()
        return {
            "names": torch.frombuffer(bytearray(names), dtype=torch.uint8),
            "kept": torch.from_numpy(self.kept.copy()),
            "kinds": torch.tensor([KINDS.index(kind) for kind in self.kinds], dtype=torch.uint8),
        }

    @classmethod
    def of_message(cls, message: Message) -> Attributes:
        """What a peer said, if it can be."""
        sender, rows, rows_name = message.sender, message.meta["rows"], message.meta["rows_name"]
        kept, kinds = (message.tensors[name].numpy() for name in ("kept", "kinds"))
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
        if len(kept) != len(names) or not kept.any() or len(kinds) != kept.sum():
            raise WireError("attributes.kept", f"{sender!r} speaks of other columns than it names")
        if kinds.max() >= len(KINDS):
            raise WireError("attributes.kinds", f"{sender!r} has columns of a kind that there is not")
        if not isinstance(rows, int) or not 0 < rows <= MAX_ROWS:
            raise WireError("attributes.rows", f"{sender!r} claims {rows} rows, at most {MAX_ROWS} can be")
        if not isinstance(rows_name, str) or not _ROWS_NAME.fullmatch(rows_name):
            raise WireError("attributes.rows_name", f"{sender!r} names rows by what is no hash")
        return cls(tuple(names), kept, tuple(KINDS[kind] for kind in kinds), rows, rows_name)


def exchange(link: Link, parties: Sequence[str], own: Attributes | None) -> dict[str, Attributes]:
    """Everybody's columns, told to all; `own` is None at the validator, which has none."""
    for peer in link.peers:
        link.declare(ATTRIBUTES, peer=peer)
        if own is not None:
            link.send(peer, ATTRIBUTES, 0, own.tensors(), rows=own.rows, rows_name=own.rows_name)
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


class OwnDiscoveryTable(OwnTable):
    """What a party says about its own table in a discovery: also what its words mean."""

    categories: int | None = Field(None, ge=2)
    ordinal: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Columns whose words are a scale, with the words from low to high; none: in natural order."""


AT_HOME = Remedies(
    words="name it in data.categorical of your party.toml",
    scale="name a column whose words are a scale in your party.toml: data.ordinal = {{ {name} = [] }}",
    order="; another order: name the words there, from low to high",
    many="; if they are categories, data.categories = {count} in your party.toml keeps it",
    refused="leave {them} out of data.columns in your party.toml, and out of the job's parties",
    raised=", or keep words as categories by data.categories = {count} there",
)
MEANING = ("on", "categories", "categorical", "ordinal")
"""What a job may say of everybody's tables. How a file is written is its party's own."""


class SiteColumns:
    """A party's own columns, before and after it is known which rows are common."""

    def __init__(
        self, job: DiscoveryJob, own: OwnDiscoveryTable, me: str, folder: Path, drop_missing: bool = False
    ) -> None:
        """`drop_missing`: rows that lack a value take no part."""
        named = job.parties.get(me) or ()
        self.notes: tuple[str, ...] = ()
        """Columns that are left out, and why."""
        self.table: TableFile | None = None
        self._nominal: tuple[str, ...] = ()
        if "name" in job.data:
            # A data set that every site has: each takes its own columns, and nothing has to be aligned.
            data, parties = load_columns(job)
            if me not in parties:
                raise InputError(f"job.toml: parties.{me}: is missing; name the columns of {me!r}")
            whole = data.values[~np.isnan(data.values).any(axis=1)] if drop_missing else data.values
            self.names = tuple(parties[me])
            self._values: Array | None = whole[:, [data.names.index(name) for name in self.names]]
            self._nominal = tuple(name for name in data.nominal if name in self.names)
            self.ids: list[str] = []
            return
        if own.columns and named:
            raise InputError(f"party.toml: data.columns and the job's parties.{me} both name columns; keep one")
        self._values = None
        agreed = _agreed_meaning(job)
        self.table = _open(own, agreed, job.data.get("on"), folder)
        self.reading = _reading(own, agreed, self.table)
        self.names, self.notes = _columns(self.table, own.columns or named, self.reading)
        self.rows = torch.arange(self.table.frame.height)
        numbers, _ = self._numbers(self.rows, [])  # a column that cannot be used is said before anybody is dialled
        if drop_missing:
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

    def data(self, found: Tensor | None) -> CausalData:
        """The common rows, nan where a value is missing; `found` are their places among `ids`."""
        if self._values is not None:
            return CausalData(self._values, self.names, nominal=self._nominal)
        assert found is not None
        notes: list[str] = []
        values, nominal = self._numbers(self.rows[found], notes)
        return CausalData(values, self.names, None, tuple(notes), nominal)

    def row_names(self, found: Tensor | None) -> list[bytes]:
        """What each of the common rows is known by at home."""
        if self._values is not None:
            return [hashlib.sha256(row.tobytes()).digest() for row in np.ascontiguousarray(self._values)]
        assert found is not None
        return [self.ids[row].encode() for row in found.tolist()]

    def own_bytes(self) -> bytes:
        if self.table is not None:
            return self.table.path.read_bytes()
        assert self._values is not None
        return self._values.tobytes()

    def _numbers(self, rows: Tensor, notes: list[str]) -> tuple[Array, tuple[str, ...]]:
        assert self.table is not None
        frame = self.table.take(rows)
        return coded_columns(frame, self.names, str(self.table.path), self.reading, notes, rows.tolist())


def _agreed_meaning(job: DiscoveryJob) -> CausalFileOptions:
    """What the job says of everybody's tables."""
    for name in job.data:
        if name not in MEANING:
            raise InputError(f"job.toml: data.{name}: how a file is written is its party's own; set it in party.toml")
    given = checked(CausalFileOptions, "data", {name: job.data[name] for name in MEANING[1:] if name in job.data})
    assert isinstance(given, CausalFileOptions)
    return given


def _reading(own: OwnDiscoveryTable, agreed: CausalFileOptions, table: TableFile) -> Reading:
    """A party's own word stands over the job's. The job may name columns that are others'."""
    for name in (*(own.categorical or ()), *own.ordinal):
        table.require(name, "data.categorical or data.ordinal of party.toml")
    return Reading(
        own.categories or agreed.categories,
        tuple(name for name in (*(own.categorical or ()), *agreed.categorical) if name in table.columns),
        {name: words for name, words in {**agreed.ordinal, **own.ordinal}.items() if name in table.columns},
        AT_HOME,
    )


def _open(own: OwnDiscoveryTable, agreed: CausalFileOptions, on: str | None, folder: Path) -> TableFile:
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
    words = (*(own.categorical or ()), *own.ordinal, *agreed.categorical, *agreed.ordinal)
    written = own.model_copy(update={"categorical": words})
    return TableFile(path, TableOptions(name="csv", label="").read(path, id, written), id)


def _columns(table: TableFile, named: Sequence[str], reading: Reading) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that take part, and why others do not: those that are named, or all that can be attributes."""
    for name in named:
        if name not in table.frame.columns or name == table.id:
            raise InputError(f"{table.path}: no column {name!r}{did_you_mean(name, table.frame.columns)}")
    if named:
        return tuple(named), ()
    notes: list[str] = []
    others = table.frame.drop(table.id) if table.id else table.frame
    names = attributes(others, str(table.path), reading, notes)
    if not names:
        raise InputError(f"{table.path}: has no column but ids, names and dates; give it attributes")
    return names, tuple(notes)


def all_names(said: Mapping[str, Attributes]) -> tuple[str, ...]:
    """Of all columns, party by party, those that take no part among them."""
    return tuple(name for theirs in said.values() for name in theirs.names)


def all_kept(names: Sequence[str]) -> Mask:
    return np.ones(len(names), dtype=bool)
