"""Files that organisations send each other: a zip with exactly the expected names, and none too large."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from veracausa.atomic import atomic_write
from veracausa.errors import InputError

LIMIT = 2**20
"""Bytes of one file inside; they are settings and certificates."""


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Pack the files; the zip says nothing of this machine, neither its clock nor its users."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    atomic_write(path, packed.getvalue())


def read_archive(path: Path, names: Collection[str], kind: str) -> dict[str, bytes]:
    """The files of an archive by name. They are read, never unpacked: a name inside is compared and leads nowhere."""
    try:
        if path.stat().st_size > LIMIT * (len(names) + 1):
            raise InputError(f"{path}: is too large for {kind}; is it the right file?")
        with zipfile.ZipFile(path) as archive:
            found = sorted(entry.filename for entry in archive.infolist())
            if found != sorted(names):
                raise InputError(f"{path}: is not {kind}: it should hold {', '.join(sorted(names))} and nothing else")
            return {name: _content(archive, name, path) for name in names}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; correct the path") from None
    # What a damaged or hostile archive makes the reader raise is of many kinds.
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError):
        raise InputError(f"{path}: cannot be read as {kind}; ask for it again") from None


def _content(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    with archive.open(name) as file:
        content = file.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise InputError(f"{path}: {name} is larger than {LIMIT} bytes; is it the right file?")
    return content


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, readable by its owner alone, that takes its name when all went well, and else is gone."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: there is something already, and it may hold keys; name another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield scratch
        scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
