"""Consent: before anything runs, every party sees what it takes part in, and agrees.

Parties send each other the federation's and the job's text byte by byte, what they will send, a salted digest of their
own data, and which checkpoints they hold. What differs is named. Consent is kept: nobody is asked about the same terms
twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veracausa.atomic import atomic_write
from veracausa.config import Job
from veracausa.data.tables import TableFileOptions
from veracausa.errors import InputError, RunError, WireError
from veracausa.escaping import escaped
from veracausa.federation.row_matching import Counts
from veracausa.registry import Options
from veracausa.training.split.protocol import MAX_ROWS
from veracausa.wire.link import Link
from veracausa.wire.message import Declared, Kind, TensorSpec, shown

MAX_TEXT = 1 << 20
MAX_HELD = 1 << 12
TERMS = Kind(
    "terms",
    {
        "network": TensorSpec(torch.uint8, (None,), MAX_TEXT),
        "job": TensorSpec(torch.uint8, (None,), MAX_TEXT),
        "sends": TensorSpec(torch.uint8, (None,), MAX_TEXT),
        "held": TensorSpec(torch.int64, (None,), MAX_HELD),
    },
    {"data": str, "version": str, "ids": int, "test_ids": int},
)
"""To every peer, once an attempt: the agreed texts, what this party will send, how many ids it brings, and the
checkpoints that it has."""
CONSENT = Kind("consent", {}, {"said": int, "terms": str})
"""To every peer, about once a second until all have said yes (1); no is -1."""
KEPT = "agreed.json"


@dataclass(frozen=True)
class Terms:
    """What one party brings to the agreement."""

    network: bytes
    job: bytes
    sends: tuple[Declared, ...]
    data: str
    """A salted digest of the party's own data and settings: it says only whether they are the same as before."""
    held: frozenset[int] = frozenset()
    ids: Counts = (0, 0)
    """Of its rows, and of its test rows where these have a file of their own; 0 where there are none to match."""


@dataclass(frozen=True)
class Agreement:
    """What all parties bring, side by side."""

    me: str
    own: Terms
    others: Mapping[str, Terms]
    fingerprints: Mapping[str, str]
    """Of each peer's certificate."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Of the federation's and the job's text; the same at every party."""
        return hashlib.sha256(_joined(self.own.network, self.own.job)).hexdigest()

    @property
    def start(self) -> int | None:
        """The newest step that all hold a checkpoint of; None: begin."""
        common = self.own.held.intersection(*(terms.held for terms in self.others.values()))
        return max(common, default=None)

    @property
    def ids(self) -> dict[str, Counts]:
        """How many ids each other party brings."""
        return {peer: terms.ids for peer, terms in self.others.items()}

    def digest(self) -> str:
        """Of everything that this party consents to, but not of checkpoints."""
        agreed = {
            "hash": self.hash,
            "fingerprints": dict(sorted(self.fingerprints.items())),
            "sends": [asdict(sent) for sent in self.own.sends],
            "ids": dict(sorted(self.ids.items())),
        }
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()


def exchange(link: Link, own: Terms, fingerprints: Mapping[str, str], version: str) -> Agreement:
    """What everybody brings; a party whose texts differ by one byte is refused with the difference named."""
    link.declare(TERMS, CONSENT)
    link.broadcast(
        TERMS,
        0,
        {
            "network": _tensor(own.network),
            "job": _tensor(own.job),
            "sends": _tensor(json.dumps([asdict(sent) for sent in own.sends]).encode()),
            "held": torch.tensor(sorted(own.held)[-MAX_HELD:], dtype=torch.int64),
        },
        data=own.data,
        version=version,
        ids=own.ids[0],
        test_ids=own.ids[1],
    )
    others, versions = {}, {}
    for peer, message in link.gather(TERMS, 0).items():
        others[peer] = Terms(
            _bytes(message.tensors["network"]),
            _bytes(message.tensors["job"]),
            _sends(peer, _bytes(message.tensors["sends"])),
            shown(str(message.meta["data"])),
            frozenset(int(step) for step in message.tensors["held"].tolist() if step >= 0),
            (_count(peer, "ids", message.meta["ids"]), _count(peer, "test_ids", message.meta["test_ids"])),
        )
        versions[peer] = shown(str(message.meta["version"]))
    for peer, theirs in others.items():
        for name, mine, other in (
            ("federation.toml", own.network, theirs.network),
            ("job.toml", own.job, theirs.job),
        ):
            if mine != other:
                raise Disagreement(peer, name, difference(mine, other))
    return Agreement(link.me, own, others, fingerprints, versions)


class Disagreement(RunError):
    """Two parties have different texts of what should be agreed."""

    def __init__(self, peer: str, name: str, how: str) -> None:
        super().__init__(
            f"{name} is not the same at {peer!r}: {how}; compare the two files and send the right one again"
        )


def difference(mine: bytes, theirs: bytes) -> str:
    """Where two texts differ first."""
    ours, others = (text.decode(errors="backslashreplace").splitlines() for text in (mine, theirs))
    lines = [line for line in unified_diff(ours, others, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))]
    if not lines:
        return "they differ in line ends or in the last line's end"
    here = next((line[1:] for line in lines if line.startswith("-")), "nothing")
    there = next((line[1:] for line in lines if line.startswith("+")), "nothing")
    return f"here {shown(here.strip())!r}, there {shown(there.strip())!r}"


class ConsentStore:
    """What was agreed before, in the party's own folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEPT
        self.known: dict[str, Any] = {}
        if self._path.is_file():
            try:
                self.known = json.loads(self._path.read_text(encoding="utf-8"))
            except (ValueError, RecursionError):
                raise InputError(f"{self._path}: is damaged; remove it, and agree again") from None

    def agreed(self, agreement: Agreement) -> bool:
        return bool(self.known.get("digest") == agreement.digest())

    def announced(self, name: str) -> int:
        """How many ids a party brought to what was agreed; 0 where nothing was."""
        brought: list[int] = self.known.get("ids", {}).get(name, [0])
        return max(brought)

    def keep(self, agreement: Agreement) -> None:
        """Keep a yes, and by which digests the partners' data and certificates are known from now on."""
        self.known = {
            "digest": agreement.digest(),
            "hash": agreement.hash,
            "data": {
                agreement.me: agreement.own.data,
                **{peer: terms.data for peer, terms in agreement.others.items()},
            },
            "fingerprints": dict(agreement.fingerprints),
            "ids": {agreement.me: agreement.own.ids, **agreement.ids},
        }
        atomic_write(self._path, json.dumps(self.known, indent=1).encode())

    def check(self, agreement: Agreement) -> None:
        """Refuse a run that goes on with another job, and a party that came back with other data or another key."""
        if not self.known:
            return
        if self.known["hash"] != agreement.hash:
            raise InputError(
                f"{self._path.parent}: this federation was agreed with another federation.toml or job.toml; "
                "join anew in a new folder"
            )
        for name, digest in {
            agreement.me: agreement.own.data,
            **{n: t.data for n, t in agreement.others.items()},
        }.items():
            if self.known["data"].get(name, digest) != digest:
                raise PartnerChanged(name, "with other data or settings of its own than before")
        for name, ids in {agreement.me: agreement.own.ids, **agreement.ids}.items():
            if tuple(self.known.get("ids", {}).get(name, ids)) != ids:
                raise PartnerChanged(name, "with another number of ids than was agreed to")
        for name, fingerprint in agreement.fingerprints.items():
            if self.known["fingerprints"].get(name, fingerprint) != fingerprint:
                raise PartnerChanged(name, "with another certificate than the one that was agreed to")


class PartnerChanged(RunError):
    """A party came back with another job, key or data than before."""

    def __init__(self, name: str, how: str) -> None:
        super().__init__(f"party {name!r} came back {how}; it must continue with what it began with, or all begin anew")


def consent(link: Link, agreement: Agreement, ask: Callable[[], bool | None], pause: Callable[[], None]) -> None:
    """Wait until all have said yes. `ask` says yes or no, or None as long as nobody has decided here."""
    round_ = 0
    while True:
        said = ask()
        link.broadcast(CONSENT, round_, said=0 if said is None else 1 if said else -1, terms=agreement.hash)
        heard = link.gather(CONSENT, round_)
        for peer, message in heard.items():
            if message.meta["terms"] != agreement.hash:
                raise WireError("consent.terms", f"of {peer!r} are others")
            if message.meta["said"] == -1:
                raise Declined(peer)
        if said is False:
            raise Declined(agreement.me)
        if said and all(message.meta["said"] == 1 for message in heard.values()):
            return
        round_ += 1
        pause()


class Declined(RunError):
    """A party does not take part."""

    def __init__(self, name: str) -> None:
        super().__init__(f"party {name!r} declined; nothing was run")


def _sends(peer: str, raw: bytes) -> tuple[Declared, ...]:
    try:
        entries = json.loads(raw)
        if not isinstance(entries, list) or len(entries) > 1000:
            raise ValueError
        return tuple(_declared(entry) for entry in entries)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise WireError("terms.sends", f"of {peer!r} cannot be read") from None


def _declared(entry: Mapping[str, Any]) -> Declared:
    size = entry["bytes"]
    if entry["per"] not in ("epoch", "run") or not (size is None or type(size) is int) or len(entry["to"]) > 1000:
        raise ValueError
    to = tuple(shown(str(name)) for name in entry["to"])
    return Declared(shown(str(entry["kind"])), to, escaped(str(entry["shape"])[:200]), entry["per"], size)


def _count(peer: str, name: str, said: object) -> int:
    if not isinstance(said, int) or not 0 <= said <= MAX_ROWS:
        raise WireError(f"terms.{name}", f"{peer!r} claims {said} ids, at most {MAX_ROWS} can be")
    return said


def _joined(*texts: bytes) -> bytes:
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


def _tensor(text: bytes) -> Tensor:
    return torch.tensor(list(text), dtype=torch.uint8)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


Row = tuple[str, str]
"""What it is about, and what the job says of it."""

UNENCRYPTED = "NONE: COLUMNS LEAVE UNENCRYPTED"
"""Said in capitals wherever somebody could still say no."""
MATCHED = {
    "all": "all: the rows that every party has, found without showing ids",
    "active": "active: every row of the active party's, found without showing ids; a party may lack some",
}
NOT_MATCHED = "none: every site has the same data set"


def describe_training(job: Job, me: str, rows: int | None = None, numbers: int | None = None) -> tuple[Row, ...]:
    """The rows of a training; `job` is the agreed one with this party's own part.

    rows: how many training rows there are at most. numbers: how many numbers are opened of a predicted row. Both are
    said of a blind training, where this site knows them.
    """
    if job.training.protocol == "blind":
        return _describe_blind(job, me, rows, numbers)
    active = job.parties.active
    schedule = f"{job.training.epochs}, in batches of {job.training.batch_size}"
    match = MATCHED[job.data.match] if isinstance(job.data, TableFileOptions) else NOT_MATCHED
    return (
        ("job", f"{job.name}: split training; {active} has the labels and gets the predictions"),
        ("model", f"{_model(job)}, cut after unit {job.model.cut}"),
        ("epochs", schedule),
        ("defense", _defense(job, me)),
        ("encryption", f"of the connection only; {active} reads the payloads, defended or not"),
        ("matching", match),
    )


def _describe_blind(job: Job, me: str, rows: int | None, numbers: int | None) -> tuple[Row, ...]:
    active = job.parties.active
    match = MATCHED[job.data.match] if isinstance(job.data, TableFileOptions) else NOT_MATCHED
    return (
        ("job", f"{job.name}: blind training; {active} has the labels and gets the predictions"),
        ("crosses", f"{_sums(job, rows)}; at prediction {_opened(job, numbers)}"),
        ("labels", _labels(job, me)),
        ("features", _features(job, me)),
        ("encryption", _blind_encryption(job)),
        ("second heads", _second_heads(job, me)),
        ("matching", match),
    )


def _sums(job: Job, rows: int | None) -> str:
    over = "all training rows" if rows is None else f"up to {rows:,} rows"
    if job.blind.epsilon is None:
        return f"sums over {over}, exact: no differential privacy"
    return f"sums over {over}, epsilon = {job.blind.epsilon:g} (delta = {job.blind.delta:g})"


def _opened(job: Job, numbers: int | None) -> str:
    """What the active party opens of a predicted row."""
    each = "as many numbers a row as there are classes, less one (of a quantity: one)"
    if numbers is not None:
        each = f"{numbers} number{'s' if numbers != 1 else ''} a row"
    if len(job.parties.passive) > 1:
        return f"{each}, summed over all passive parties"
    return f"{each}, of {job.parties.passive[0]} alone: no other passive party hides its part"


def _labels(job: Job, me: str) -> str:
    whose = "yours" if me == job.parties.active else f"{job.parties.active}'s"
    if job.blind.labels == "none":
        return f"none: {whose} stay at home, in sums and ciphertexts alone"
    if job.blind.labels == "shared":
        return f"SHARED: {whose} leave as they are, to every passive party"
    prior = ", drawn by a prior" if job.blind.label_prior else ""
    return (
        f"private: {whose} leave once, randomised{prior}, epsilon = {job.blind.label_epsilon:g} a label; "
        "the same draw for all parties and for later jobs"
    )


def _features(job: Job, me: str) -> str:
    own = job.party.get(me)
    whose = "by your party.toml" if own is not None and own.features is not None else "by the job"
    return f"{_with_settings(job.features_of(me))}, {whose}: learnt at home, nothing of it leaves"


def _second_heads(job: Job, me: str) -> str:
    own = job.party.get(me)
    if own is not None and own.second_head:
        return "ALLOWED by your party.toml: rows may be summed and scored again for another head"
    return "refused: rows that were summed and scored for one head are not for another"


def _blind_encryption(job: Job) -> str:
    if job.blind.encryption == "none":
        return UNENCRYPTED
    return f"{job.blind.encryption}: features, sums and head cross as ciphertexts; {job.parties.active} opens the sums"


def _model(job: Job) -> str:
    name = job.model.name
    if ":" not in name:
        return f"{name}, of the registry"
    return f"{name}: CODE OUTSIDE THE REGISTRY, which you have allowed to run here"


def _defense(job: Job, me: str) -> str:
    if me == job.parties.active:
        return f"each passive party's own; where it has none, {_with_settings(job.defense)}"
    chosen = job.defense_of(me)
    own = job.party.get(me)
    whose = "by your party.toml" if own is not None and own.defense is not None else "by the job"
    if chosen.name == "none":
        return f"none, {whose}: what you send is not defended"
    return f"{_with_settings(chosen)}, {whose}"


def _with_settings(defense: Options) -> str:
    settings = defense.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    return f"{defense.name} ({', '.join(f'{k} = {v}' for k, v in settings.items())})" if settings else defense.name
