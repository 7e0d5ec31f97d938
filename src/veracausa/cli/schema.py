"""`veracausa schema`: the JSON schema of a job, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LINE = "#:schema"
"""How a TOML file names its schema, as Taplo and Even Better TOML read it."""


def schema(
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; default: print it.")] = None,
) -> None:
    """Give the JSON schema of a job: an editor completes settings with it and marks wrong ones.

    It has what is installed here, plug-ins too. `veracausa init --schema` writes one beside the job.
    """
    from veracausa.cli import console
    from veracausa.cli.job_schema import job_schema, schema_text

    if out is None:
        typer.echo(schema_text(job_schema()), nl=False)
        return
    write_schema(out)
    console.out.print(f"Wrote {out}. Name it in the first line of a job: {LINE} ./{out.name}", markup=False)


def write_schema(path: Path) -> None:
    """Write the schema where there is nothing, or an earlier schema of ours."""
    from veracausa.atomic import atomic_write
    from veracausa.cli.job_schema import TITLE, job_schema, schema_text
    from veracausa.errors import InputError

    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the file to write")
    if path.exists() and f'"title": "{TITLE}"' not in path.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{path}: is already there, and is no schema of veracausa; name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, schema_text(job_schema()).encode())
