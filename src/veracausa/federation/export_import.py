"""A party's trained part as one file: from the site that trained to the one that serves.

A zip of safetensors, TOML and JSON, none of it compressed and nothing in it executed: a model that is code is only
named, and its name alone imports nothing. It holds the party's own weights
and how its columns became numbers (means, categories): it is for the party itself, not for its partners. The key of
its identity, its rows and the path of its data are not in it.

Of a blind training it also holds what answers need. That is a passive party's encrypted head and the keys of its
answers, and the active party's `head.key`: no other key opens these answers, and it cannot be drawn anew. So a part is
as secret as the folder it came from, and its file is for its owner alone.
"""

from __future__ import annotations

import hashlib
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from veracausa.atomic import atomic_write
from veracausa.config import Job, load_job
from veracausa.errors import InputError, RunError
from veracausa.federation.members import first_problem
from veracausa.federation.party_file import allowed_model
from veracausa.federation.site_program import RUN, SEED, SEED_BYTES, own_secret
from veracausa.models import require_allowed
from veracausa.runs import folder as folders
from veracausa.runs.folder import Run
from veracausa.runs.store import Store, deserialize_state
from veracausa.training.blind.kept_head import KEY_FILE, HeadKey
from veracausa.training.checkpoints import saved_model
from veracausa.training.protocols import protocol_of

FORMAT = "veracausa part"
MAX_TEXT = 1 << 20
MAX_TENSORS = 1 << 34
MANIFEST, JOB, MODEL, PREPARED = "manifest.json", "job.toml", "model.safetensors", "prepared.safetensors"
INSIDE = (MANIFEST, JOB, MODEL, PREPARED, KEY_FILE)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: int = Field(ge=1, le=MAX_TENSORS)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """What a part is, and what its files must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: str = Field(FORMAT, pattern=f"^{FORMAT}$")
    version: int = Field(1, ge=1, le=1)
    party: str
    role: str = Field(pattern="^(active|passive)$")
    secret_seed: bool = False
    """Whether it drew from a seed of its own; where it goes on, it draws from a new one."""
    own: dict[str, Any] = {}
    """What `party.toml` said, without where the data lie."""
    files: dict[str, _File]


class SiteRun(Run):
    """The run folder of one party at its own site."""

    def __init__(self, folder: Path, me: str, allow_model: str | None = None) -> None:
        super().__init__(folder / RUN, allow_model)
        self.me = me

    @property
    def secret(self) -> bool:
        """Whether this party draws from a seed of its own, and not from the job's."""
        return self._seed.is_file()

    @property
    def job(self) -> Job:
        """The agreed job with this party's own part, and its own seed where it has a secret one."""
        job = super().job
        return job.model_copy(update={"seed": int.from_bytes(self._seed.read_bytes(), "big")}) if self.secret else job

    @property
    def _seed(self) -> Path:
        return self.path / "parties" / self.me / SEED


def export(folder: Path, me: str, out: Path) -> Manifest:
    """Write this party's trained part to the file `out`."""
    _refuse_discovery(folder / JOB, (folder / JOB).read_bytes() if (folder / JOB).is_file() else b"")
    run = SiteRun(folder, me)
    saved_model(run, me)
    own = run.path / "parties" / me
    contents = {JOB: (folder / JOB).read_bytes(), MODEL: (own / MODEL).read_bytes()}
    if (own / PREPARED).is_file():
        contents[PREPARED] = (own / PREPARED).read_bytes()
    job = run.job
    if _needs_key(job, me):
        HeadKey.load(own / KEY_FILE)
        contents[KEY_FILE] = (own / KEY_FILE).read_bytes()
    own_part = job.party[me].model_dump(mode="json", exclude_none=True) if me in job.party else {}
    own_part.pop("book", None)  # a folder of this machine
    kept = ("id", "columns", "separator")
    own_part["data"] = {name: value for name, value in own_part.get("data", {}).items() if name in kept}
    manifest = Manifest(
        party=me,
        role="active" if me == job.parties.active else "passive",
        secret_seed=(own / SEED).is_file(),
        own=own_part,
        files={name: _File(bytes=len(content), sha256=_digest(content)) for name, content in contents.items()},
    )
    partial = out.with_name(f".{out.name}.tmp")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600, exist_ok=False)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            for name, content in {MANIFEST: manifest.model_dump_json(indent=1).encode(), **contents}.items():
                archive.writestr(zipfile.ZipInfo(name), content)  # neither this machine's clock nor its users
        partial.replace(out)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def import_part(file: Path, folder: Path, allow_model: str | None = None) -> Manifest:
    """Lay a party's trained part into its folder, which may have joined the federation already.

    A model that is code is built, to try the weights, only if `allow_model` or the folder's own `party.toml` names the
    same one. What the part itself says allows nothing.
    """
    manifest, contents = _read(file)
    job = _checked(file, manifest, contents, allow_model or allowed_model(folder))
    run = folder / RUN
    if (run / "config.toml").exists():
        raise InputError(f"{run}: already there; name another folder, or remove it")
    if (folder / JOB).is_file() and (folder / JOB).read_bytes() != contents[JOB]:
        raise InputError(f"{folder / JOB}: is another job than the one that {file} was trained with")
    if run.is_symlink():
        raise InputError(f"{run}: is a link; remove it, or name another folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Weights and preprocessing tell of the party's rows: nobody else on this machine reads them, from the start on.
    for private in (folder, run):
        private.mkdir(mode=0o700, exist_ok=True)
        private.chmod(0o700)
    atomic_write(folder / JOB, contents[JOB])
    if not (folder / "party.toml").exists():
        atomic_write(folder / "party.toml", tomli_w.dumps(manifest.own).encode())
    folders.create(run, job, {manifest.party: manifest.role})
    store = Store(run, manifest.party, job.checkpoints.keep)
    if manifest.secret_seed:
        own_secret(store.folder / SEED, SEED_BYTES)
    if PREPARED in contents:
        atomic_write(store.prepared_path, contents[PREPARED])
    if KEY_FILE in contents:
        atomic_write(store.folder / KEY_FILE, contents[KEY_FILE], secret=True)
    atomic_write(store.folder / MODEL, contents[MODEL])
    folders.set_status(run, state="done", epochs=protocol_of(job).epochs(job), imported=_digest(contents[MODEL]))
    for path in (folder / JOB, folder / "party.toml", *run.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return manifest


def _read(file: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The files of a part, none larger than its manifest says; names inside are compared and lead nowhere."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if len(entries) < len(archive.infolist()) or not {MANIFEST, JOB, MODEL} <= set(entries):
                raise InputError(f"{file}: is not a party's trained part; `veracausa federation export` writes one")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
                raise InputError(f"{file}: has a compressed file inside; no part has")
            manifest = Manifest.model_validate_json(_bounded(archive, MANIFEST, MAX_TEXT, file))
            if set(entries) != {MANIFEST, *manifest.files} or not set(entries) <= set(INSIDE):
                raise InputError(f"{file}: holds other files than its manifest says")
            contents = {name: _bounded(archive, name, entry.bytes, file) for name, entry in manifest.files.items()}
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; correct the path") from None
    except ValidationError as error:
        raise InputError(f"{file}: {MANIFEST}: {first_problem(error)}") from None
    # What a damaged or hostile archive makes the reader raise is of many kinds.
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, NotImplementedError):
        raise InputError(f"{file}: cannot be read as a party's trained part; export it again") from None
    for name, entry in manifest.files.items():
        if len(contents[name]) != entry.bytes or _digest(contents[name]) != entry.sha256:
            raise InputError(f"{file}: {name} is not what the manifest says; export it again")
    return manifest, contents


def _bounded(archive: zipfile.ZipFile, name: str, limit: int, file: Path) -> bytes:
    if archive.getinfo(name).file_size > limit:
        raise InputError(f"{file}: {name} is larger than {limit} bytes")
    with archive.open(name) as entry:
        return entry.read(limit + 1)


def _checked(file: Path, manifest: Manifest, contents: Mapping[str, bytes], allow_model: str | None) -> Job:
    """The job with the party's own part, after everything was tried that the part will be used for."""
    _refuse_discovery(file, contents[JOB])
    tree = tomllib.loads(contents[JOB].decode())
    try:
        job = load_job({**tree, "party": {manifest.party: manifest.own}}, allow_model=allow_model)
        require_allowed(job.model)
        model = deserialize_state(contents[MODEL])
        if PREPARED in contents:
            deserialize_state(contents[PREPARED])
    except (InputError, RunError) as error:
        raise InputError(f"{file}: {error}") from None
    expected = "active" if manifest.party == job.parties.active else "passive"
    if manifest.party not in (job.parties.active, *job.parties.passive) or manifest.role != expected:
        raise InputError(f"{file}: {manifest.party!r} is not the {manifest.role} party of its job")
    try:
        protocol_of(job).check_model(job, manifest.party, model)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, InputError, RunError):
        raise InputError(f"{file}: {MODEL} holds no model of this job") from None
    if _needs_key(job, manifest.party) != (KEY_FILE in contents):
        raise InputError(
            f"{file}: the active party of a blind training has {KEY_FILE}, and nobody else; export it again"
        )
    if KEY_FILE in contents:
        HeadKey.of_bytes(contents[KEY_FILE], file / KEY_FILE)
    return job


def _needs_key(job: Job, party: str) -> bool:
    return job.training.protocol == "blind" and party == job.parties.active


def _refuse_discovery(place: Path, text: bytes) -> None:
    try:
        tree = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise InputError(f"{place}: its job is not valid TOML") from None
    if tree.get("kind") == "discovery":
        raise InputError(f"{place}: a discovery leaves a graph and no model; copy run/edges.csv")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
