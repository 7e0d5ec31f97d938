"""Who is let in no more: a member's certificates and its key are put on the deny list of a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veracausa.errors import InputError
from veracausa.federation.identity import Authority
from veracausa.wire.credentials import common_name, read_certificate, shown_by
from veracausa.wire.deny_list import FILE, DenyList, bare, grouped_digits

_DIGITS = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Revoked:
    """What was put on a list."""

    path: Path
    sha256: tuple[str, ...]
    """Of certificates and keys, in groups; the others put the same on theirs."""
    new: int


def revoke(folder: Path, what: Sequence[str]) -> Revoked:
    """Deny a member by name (at the coordinator), by a certificate file, or by fingerprints."""
    if not (folder / "federation.toml").is_file():
        raise InputError(f"{folder}: is no folder of a federation; name the one that `init` or `join` made")
    entries = [entry for one in what for entry in _entries(folder, one)]
    deny_list = DenyList(folder / FILE)
    new = deny_list.add(entries)
    return Revoked(folder / FILE, tuple(entry["sha256"] for entry in entries), new)


def revoke_certificate(folder: Path, certificate: Path) -> Revoked:
    """Deny a certificate and its key: what was signed for the same key before or after it is out, too."""
    return revoke(folder, [str(certificate)])


def is_revoked(folder: Path, key: bytes) -> bool:
    """Whether a public key is on the folder's list."""
    import hashlib

    return hashlib.sha256(key).hexdigest() in DenyList(folder / FILE).now()


def _entries(folder: Path, what: str) -> list[dict[str, str]]:
    digits = bare(what)
    if _DIGITS.fullmatch(digits):
        return [{"sha256": grouped_digits(digits)}]
    issued = Authority(folder / "authority").issued(what) if re.fullmatch(r"[\w-]+", what) else None
    path = issued if issued is not None and issued.is_file() else Path(what)
    if not path.is_file():
        raise InputError(
            f"{what}: is neither a fingerprint (64 hexadecimal digits), nor a certificate file, "
            f"nor a member that was approved in {folder}"
        )
    certificate = read_certificate(path)
    shown, member = shown_by(certificate), common_name(certificate)
    return [
        {"sha256": grouped_digits(shown.certificate), "of": "certificate", "member": member},
        {"sha256": grouped_digits(shown.key), "of": "key", "member": member},
    ]
