"""What a command says when somebody presses Ctrl-C: that it stopped, and what to type to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from veracausa.errors import Interrupted
from veracausa.events import Event, Observer


def of_ctrl_c(error: BaseException) -> bool:
    """Whether Ctrl-C is behind this error: a library that is stopped while it loads raises one of its own."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


class GoOn:
    """Knows the command that continues this one: the same words, with `--resume` and the folder where they count."""

    def __init__(self, folder: Path | None = None, *, names_folder: bool = True, by_itself: bool = False) -> None:
        self._folder = folder
        self._names_folder = names_folder
        self._by_itself = by_itself

    def heard(self, observer: Observer) -> Observer:
        """The observer, behind one that remembers the first folder that the command makes."""

        def hear(event: Event) -> None:
            if event.get("event") == "folder" and self._folder is None:
                self._folder = Path(event["path"])
            observer(event)

        return hear

    def sentence(self, words: Sequence[str] | None = None) -> str:
        given = list(sys.argv[1:] if words is None else words)
        known = self._folder if self._folder is not None and self._folder.exists() else None
        # Who resumes has a folder, of which nothing may have been told here yet.
        if not self._by_itself and known is None and "--resume" not in given:
            return "stopped by Ctrl-C before anything was written"
        if not self._by_itself and "--resume" not in given:
            given.append("--resume")
        named = any(word == "--out" or word.startswith("--out=") for word in given)
        if not self._by_itself and self._names_folder and known is not None and not named:
            given += ["--out", str(known)]
        return f"stopped by Ctrl-C; what is finished is kept, go on with: {shlex.join(['veracausa', *given])}"


@contextmanager
def resumable(go_on: GoOn) -> Iterator[None]:
    """Turn Ctrl-C into the sentence that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(go_on.sentence()) from None
