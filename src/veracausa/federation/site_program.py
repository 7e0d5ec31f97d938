"""A party's program at its own site, made from its folder, and what its partners may know of it beforehand."""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from veracausa.atomic import atomic_write
from veracausa.errors import InputError, RunError
from veracausa.events import Observer
from veracausa.federation.identity import write_secret
from veracausa.federation.members import read_toml
from veracausa.federation.party_file import allowed_model, own_settings, read_file
from veracausa.federation.row_matching import NOTHING, ORDER_KEY, OwnIds
from veracausa.runs.folder import refuse_links
from veracausa.runs.store import Store, deserialize_state, serialize_state
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link
from veracausa.wire.message import Declared

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
    question = "Do you agree?"
    """What a person is asked in the end."""
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
        for part in (own_settings(self.folder), *own):
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


def own_secret(path: Path, size: int) -> bytes:
    """Bytes from the system's generator, the same whenever this file is asked for them."""
    if not path.is_file():
        write_secret(path, secrets.token_bytes(size))
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


def party_program(folder: Path, me: str, secret: bool = True, allow_model: str | None = None) -> SiteProgram:
    """The party `me` as its folder describes it, checked as far as it can be alone.

    What it draws for itself, and the order of rows if it leads, follow from secrets of its own. Without `secret` they
    follow from the job's seed and its file, which makes a run repeatable and hides neither: for simulations. A model
    that is code runs only if `allow_model` or the folder's `party.toml` names the same one.
    """
    if read_toml(folder / "job.toml").get("kind") == "discovery":
        from veracausa.federation.discovery_methods import discovery_program

        return discovery_program(folder, me, secret)
    from veracausa.federation.training_site import SplitSite

    return SplitSite(folder, me, secret, allow_model or allowed_model(folder))
