"""`veracausa federation revoke`: a certificate is believed no more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def revoke(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Your folder of the federation.")],
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME | FINGERPRINT | CERTIFICATE.pem",
            help="A member's name (where it was approved), fingerprints of its certificate and key, or the file.",
        ),
    ],
) -> None:
    """Let a certificate in no more: at this folder's port, and in its sessions with others, from the next seconds on.

    Each member keeps a list of its own. The one that serves and the one that must not be fooled both need the entry.
    """
    from veracausa.cli import console
    from veracausa.federation.membership import revoke as deny

    done = deny(folder, what)
    console.out.print("\n".join(revoked_lines(done.path, done.sha256)), markup=False, soft_wrap=True)


def revoked_lines(path: Path, sha256: tuple[str, ...]) -> list[str]:
    """What was revoked, and what the other members do about it."""
    fingerprints = " ".join(f'"{digits}"' for digits in sha256)
    return [
        f"{path}: these get in here no more, neither now nor later",
        *(f"revoked     {digits}" for digits in sha256),
        f"Next: every other member runs, in its own folder: veracausa federation revoke FOLDER {fingerprints}",
    ]
