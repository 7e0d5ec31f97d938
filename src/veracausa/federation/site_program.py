"""A party that is ready to take part from its own folder: what the others may know of it, and its program."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from veracausa.errors import InputError, RunError
from veracausa.events import Observer
from veracausa.federation.declared_messages import Declared
from veracausa.federation.order import NOTHING, ORDER_KEY
from veracausa.federation.own_ids import ALIGNMENT, OwnIds
from veracausa.runs.atomic import atomic_write
from veracausa.runs.folder import refuse_links
from veracausa.runs.store import Store, deserialize_state, serialize_state
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link

RUN = "run"
"""The run folder of a site, inside its own."""
SEED, SEED_BYTES = "seed", 32
"""The file of a seed that only this party knows, beside its checkpoints, and its size."""
ORDER = "order"
"""The file of the secret that a leader orders common rows by, or of these words where they lie as in its table."""
_AS_IN_TABLE = b"as in the table"
OPEN_ORDER = (
    "the job's seed is used: common rows keep the order that they have in this party's file, and every partner learns "
    "it; a file that is sorted by the label tells the labels"
)
_SALT = 32


class SiteProgram(ABC):
    """One party at its own site. Its folder holds `job.toml`, which all agreed on, and `party.toml`, its own.

    Whoever starts it holds the lock of its run folder, calls `align` once on every new link, and then `run`.
    """

    engine: Literal["split", "discovery"]
    peers: tuple[str, ...]
    """The other members with a part in the job, in its order."""
    declared: tuple[Declared, ...]
    described: tuple[tuple[str, str], ...]
    """What the job is and does, in rows for whoever is asked to agree."""
    warnings: tuple[str, ...] = ()
    """What the party should know before it says yes."""
    ids: OwnIds | None = None
    """The ids that it brings; None where rows are not matched by ids."""

    def __init__(self, folder: Path, me: str) -> None:
        self.folder, self.me, self.path = folder, me, folder / RUN
        self.job_text = read_file(folder / "job.toml")
        if self.path.is_symlink():
            raise InputError(f"{self.path}: is a link, and what a run writes stays in its own folder; remove it")
        refuse_links(self.path)

    def _open_store(self, keep: int, own: Iterable[bytes]) -> None:
        """Once everything was found in order: what this party writes, and the digest of its own data."""
        self.store = Store(self.path, self.me, keep)
        digest = hashlib.sha256(own_secret(self.store.folder / "salt", _SALT))
        for part in (_own_settings(self.folder), *own):
            digest.update(hashlib.sha256(part).digest())
        self.data_digest = digest.hexdigest()
        """Of its own data and `party.toml`, salted: it says nothing of them, but that they are the same as before."""

    @property
    def _kept_path(self) -> Path:
        return self.store.folder / "alignment.safetensors"

    @abstractmethod
    def align(self, link: Link, notify: Observer) -> None:
        """Agree with the others on common rows, or on the ones that were agreed on before."""

    @abstractmethod
    def run(self, link: Link, notify: Observer, start_step: int | None) -> None:
        """Take part to the end, from the checkpoint of `start_step`; None: from the beginning."""

    def _record_alignment(self, link: Link) -> None:
        """What leaves before the first step goes to a record of its own: the ledger counts back to checkpoints."""
        link.ledger = Ledger(self.store.folder / "alignment.jsonl")

    def _kept(self) -> tuple[bytes, Any]:
        """The name and the state of the alignment that was agreed on before with these very data, if there is one."""
        if not self._kept_path.is_file():
            return NOTHING, None
        try:
            kept = deserialize_state(self._kept_path.read_bytes())
            if kept["data"] == self.data_digest:
                return bytes.fromhex(kept["fingerprint"]), kept["state"]
        except (RunError, KeyError, ValueError):  # torn: there will be another
            pass
        return NOTHING, None

    def _keep(self, fingerprint: bytes, state: Mapping[str, Any]) -> None:
        kept = {"fingerprint": fingerprint.hex(), "data": self.data_digest, "state": dict(state)}
        atomic_write(self._kept_path, serialize_state(kept))


def party_tree(folder: Path) -> dict[str, Any]:
    """What `party.toml` says of data and defense; nothing where there is none.

    `[model]` is left out: it never becomes part of a job or of a run folder, where it would vouch for itself.
    """
    return {name: value for name, value in _whole_tree(folder).items() if name != "model"}


def allowed_model(folder: Path) -> str | None:
    """The `package.module:factory` that this party's own `party.toml` allows as the job's model, if any."""
    model = _whole_tree(folder).get("model", {})
    allowed = model.get("allow") if isinstance(model, dict) else None
    if not isinstance(model, dict) or set(model) - {"allow"} or not isinstance(allowed, str | None):
        raise InputError(f'{folder / "party.toml"}: model: holds one setting, allow = "package.module:factory"')
    return allowed


def _whole_tree(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_party_text(folder).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{folder / 'party.toml'}: is not valid TOML: {error}") from None


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; `veracausa federation join` makes it") from None


def _own_settings(folder: Path) -> bytes:
    """All of `party.toml` that a run's results depend on: a party may change its limits, and remain who it was."""
    tree = party_tree(folder)
    return json.dumps({name: tree[name] for name in tree if name != ALIGNMENT}, sort_keys=True, default=str).encode()


def _party_text(folder: Path) -> bytes:
    path = folder / "party.toml"
    return path.read_bytes() if path.is_file() else b""


def own_secret(path: Path, size: int) -> bytes:
    """Bytes from the system's generator, the same whenever this file is asked for them."""
    if not path.is_file():
        # Only its owner reads it, from the first byte on.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(size))
    secret = path.read_bytes()
    if len(secret) != size:
        raise InputError(
            f"{path}: holds {len(secret)} bytes, {size} are needed (torn, or of an earlier version); "
            "begin anew in another folder"
        )
    return secret


def order_key(folder: Path, secret: bool) -> bytes | None:
    """A leader's secret order of rows, the same whenever its run is started; None: the order of its own table.

    `folder` holds its checkpoints. They are of rows in one order, and must not go on with another.
    """
    path = folder / ORDER
    if path.is_file() and not path.stat().st_size:
        path.unlink()  # torn before anybody used it
    if path.is_file() and (path.read_bytes() == _AS_IN_TABLE) == secret:
        begun, fix = ("with", "give it again") if secret else ("without", "leave it out")
        raise InputError(
            f"{path}: this run was begun {begun} --job-seed, which orders rows in another way; {fix}, or remove the "
            "run folder to begin anew"
        )
    if secret:
        return own_secret(path, ORDER_KEY)
    atomic_write(path, _AS_IN_TABLE)
    return None
