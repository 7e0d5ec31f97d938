"""Where data files lie: `$VERACAUSA_DATA`, else the user's cache; what is missing comes from its official source."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO

from veracausa.errors import InputError

# Seconds without an answer, not for the whole download: an unreachable server should be known quickly.
TIMEOUT = 10


@dataclass(frozen=True)
class Remote:
    """The official place of a file, or of the archive that holds it and its siblings."""

    url: str
    md5: str
    members: str | None = None
    """Which files of the archive to unpack beside the wanted one, as a pattern; None: the address is the file."""


def data_folder() -> Path:
    """`$VERACAUSA_DATA`, else `veracausa` in the user's cache."""
    named = os.environ.get("VERACAUSA_DATA")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "veracausa"


def given_path(path: str | Path, setting: str) -> Path:
    """The file or folder a job names: as written, or else inside the data folder."""
    written = Path(path).expanduser()
    inside = data_folder() / written
    if written.exists():
        return written
    if inside.exists():
        return inside
    places = f"{written.absolute()}" if written.is_absolute() else f"{written.absolute()} and {inside}"
    raise InputError(f"{setting} = {str(path)!r}: no such file or folder (looked for {places}); correct the path")


def find(relative: str, remote: Remote) -> Path:
    """The file at this official path in the data folder, fetched first if it is not there."""
    path = data_folder() / relative
    if not path.is_file():
        fetch(path, remote)
    return path


def fetch(path: Path, remote: Remote) -> None:
    """Put the file at `path` from its official source; on failure nothing is left behind."""
    advice = f"download {remote.url} yourself, or set VERACAUSA_DATA to the folder that holds it"
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside its destination, so that the last step is a rename and never a half copy.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetching-") as scratch:
            downloaded = _download(remote, Path(scratch))
            if remote.members is None:
                os.replace(downloaded, path)
            else:
                _unpack(downloaded, remote.members, Path(scratch), path.parent)
    except Exception as error:  # requests, pooch and the archive formats raise a dozen kinds
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        reason = type(error).__name__ if "requests" in type(error).__module__ else str(error).split("\n")[0]
        raise InputError(
            f"{path.name} is missing (looked for {path}; fetching it failed: {reason}); {advice}"
        ) from None
    if not path.is_file():
        raise InputError(f"{path.name} is missing (looked for {path}; {remote.url} does not hold it); {advice}")


def _download(remote: Remote, folder: Path) -> Path:
    import pooch

    name = PurePosixPath(remote.url).name
    pooch.retrieve(
        remote.url,
        known_hash=f"md5:{remote.md5}",
        fname=name,
        path=folder,
        downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
    )
    return folder / name


def _unpack(archive: Path, pattern: str, scratch: Path, folder: Path) -> None:
    for name, stream in _members(archive):
        target = folder / PurePosixPath(name).name
        if fnmatch(name, pattern) and not target.exists():
            part = scratch / "member"
            with part.open("wb") as out:
                shutil.copyfileobj(stream, out)
            os.replace(part, target)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as bundle:
            for entry in bundle.infolist():
                if not entry.is_dir():
                    with bundle.open(entry) as stream:
                        yield entry.filename, stream
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            stream_or_none = tar.extractfile(member) if member.isfile() else None
            if stream_or_none is not None:
                yield member.name, stream_or_none


SUBSET = ": a subset ("
"""What a note says of files that are a part of a data set."""


def subset_note(name: str, folder: Path, train_rows: int) -> tuple[str, ...]:
    """A note if a README.txt beside the files says that they are a subset."""
    readme = folder / "README.txt"
    if readme.is_file() and "SUBSET" in readme.read_text(encoding="utf-8", errors="replace"):
        return (f"{name}{SUBSET}{train_rows} training rows)",)
    return ()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from None
