"""Certificates and keys that are believed no more: a file in a member's folder, read again whenever it changes."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from veracausa.errors import InputError

FILE = "denied.toml"
LOOK_S = 2.0
"""Seconds between two looks at the list by who is connected: so soon a certificate that was revoked is out."""
_HEAD = """\
# Certificates and keys that get in here no more, each by its SHA-256. `veracausa federation revoke` adds to it.
"""
_SEPARATORS = str.maketrans("", "", " :-=\n\t")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shown:
    """What a peer has shown: its certificate, as it came."""

    der: bytes

    @cached_property
    def certificate(self) -> str:
        """SHA-256 of the certificate."""
        return hashlib.sha256(self.der).hexdigest()

    @cached_property
    def key(self) -> str:
        """SHA-256 of its public key: a renewed certificate has the same."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = x509.load_der_x509_certificate(self.der).public_key()
        return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def bare(fingerprint: str) -> str:
    """A fingerprint's 64 hexadecimal digits, however it is written."""
    return fingerprint.lower().removeprefix("sha256").translate(_SEPARATORS)


def grouped_digits(digits: str) -> str:
    """Sixteen groups of four, as partners read them out."""
    return " ".join(digits.upper()[at : at + 4] for at in range(0, len(digits), 4))


class DenyList:
    """The list in one file; no file is an empty list. Safe to ask from many threads."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._state: tuple[int, int] | None = None
        self._denied: frozenset[str] = frozenset()
        self._read()

    def refuses(self, shown: Shown) -> str | None:
        """The fingerprint for which a peer is refused, in groups; None: it may come in."""
        denied = self.now()
        for digits in (shown.certificate, shown.key) if denied else ():
            if digits in denied:
                return grouped_digits(digits)
        return None

    def now(self) -> frozenset[str]:
        """What is denied now. A list that got damaged while in use stays as it was: nobody is let in by that."""
        with self._lock:
            try:
                self._read()
            except InputError as error:
                _log.warning("%s; the list as it was before stays in force", error)
            return self._denied

    def add(self, entries: Iterable[dict[str, str]]) -> int:
        """Write further entries into the file; how many were new."""
        import tomli_w

        from veracausa.runs.atomic import write_whole

        assert self.path is not None
        kept = _entries(self.path)
        known = {bare(entry["sha256"]) for entry in kept}
        when = datetime.now(UTC).isoformat(timespec="seconds")
        new = [{**entry, "since": when} for entry in entries if bare(entry["sha256"]) not in known]
        if new:
            text = tomli_w.dumps({"denied": [*kept, *new]}, multiline_strings=False)
            write_whole(self.path, (_HEAD + text).encode())
        return len(new)

    def _read(self) -> None:
        if self.path is None:
            return
        try:
            about = self.path.stat()
        except FileNotFoundError:
            self._state, self._denied = None, frozenset()
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}; check its permissions") from None
        state = (about.st_mtime_ns, about.st_size)
        if state != self._state:
            self._state = state  # also of a damaged one, which is then complained of once
            self._denied = frozenset(bare(entry["sha256"]) for entry in _entries(self.path))


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = tree.pop("denied", [])
        sound = not tree and all(_DIGITS.fullmatch(bare(entry["sha256"])) for entry in entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise InputError(
            f'{path}: is damaged; each entry is [[denied]] with sha256 = "64 hexadecimal digits". '
            "Mend it, or remove it and run `veracausa federation revoke` again"
        )
    return list(entries)


_DIGITS = re.compile(r"[0-9a-f]{64}")
