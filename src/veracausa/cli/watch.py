"""`--watch`: a page on this machine that shows the run while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from veracausa.events import Event, Observer

Watch = Annotated[
    bool, typer.Option("--watch", help="Serve a page, for this machine alone, that shows the run while it runs.")
]
WatchPort = Annotated[
    int | None,
    typer.Option("--watch-port", metavar="PORT", min=1, max=65535, help="Where --watch serves; default: a free port."),
]


@contextmanager
def watched(
    observer: Observer, wanted: bool, port: int | None, what: str, folder: Path | None = None
) -> Iterator[Observer]:
    """The observer, behind a page that hears the same events and closes with the block, however that ends.

    what: what the page calls the command. folder: the run's, where no event will name it.
    """
    if not wanted and port is None:
        yield observer
        return
    from veracausa.cli import console
    from veracausa.report.live_page import LivePage

    with LivePage(what, port or 0) as page:
        told = threading.Event()

        def tell() -> None:
            if not told.is_set():
                told.set()
                console.err.print(f"Live page: {page.url}", markup=False, soft_wrap=True)

        if folder is not None:
            page.state.look_into(folder)
            tell()

        def hear(event: Event) -> None:
            tell()  # not before: a job that is refused has no run to watch
            page.state(event)
            observer(event)

        yield hear
