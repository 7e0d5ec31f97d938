"""How a command of a federation ends early: in one sentence, with what to type to go on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from veracausa.errors import RunError

STOPPED = 130
"""The exit code of a command that Ctrl-C ended, as a shell has it."""


@contextmanager
def stopping(command: str) -> Iterator[None]:
    """Ctrl-C and a full disk are no faults of the program: they end it, and the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        from veracausa.cli import console

        console.err.print(f"stopped; start the same command again to go on: {command}", markup=False, soft_wrap=True)
        raise typer.Exit(STOPPED) from None
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"the disk is full{where}; free some space and start the same command again") from error
        if error.errno is None:
            raise
        raise RunError(f"{error.strerror}{where}; mend it and start the same command again") from error
