"""`--track`: the scores of a run for TensorBoard or MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from veracausa.events import Event, Observer

Track = Annotated[
    list[str] | None,
    typer.Option("--track", metavar="STORE", help="Tell tensorboard or mlflow settings and scores; repeatable."),
]


@contextmanager
def tracked(observer: Observer, names: Sequence[str] | None, folder: Path | None = None) -> Iterator[Observer]:
    """The observer, beside those that tell each store of the same events.

    folder: the run's, where no event will name it.
    """
    if not names:
        yield observer
        return
    from veracausa.report.tracking import track

    with ExitStack() as stack:
        trackers = [stack.enter_context(track(name, folder)) for name in dict.fromkeys(names)]

        def hear(event: Event) -> None:
            observer(event)
            for tracker in trackers:
                tracker(event)

        yield hear
