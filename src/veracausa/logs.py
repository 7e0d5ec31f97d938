"""The package's log, for who asks for it: names, sizes, counts and steps of a run, never a value of a row or a key.

Every module logs under its own name below `veracausa`. A program in Python sets that logger up as any other. The
command line does it by `configure`, for `--log-level` and `--quiet`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from veracausa.escaping import escaped
from veracausa.events import Event

LEVELS = ("debug", "info", "warning", "error")
LEVEL_VARIABLE = "VERACAUSA_LOG_LEVEL"
"""Tells the processes that a run starts what the command was told."""

_RUN = logging.getLogger("veracausa.run")
_OFTEN = frozenset({"step", "progress", "preparing", "phase", "aligning"})
"""Events that come many times a second, or for every percent."""
_WORDS = (
    *("party", "member", "name", "path", "what", "epoch", "epochs", "step", "steps", "baseline", "share", "seconds"),
    *("attack", "moment", "number", "of", "total", "left", "defense", "setting", "cut", "kept", "method", "attempt"),
    *("at", "why", "reason", "bytes", "messages"),
)
"""What is logged of an event. All else stays out: graphs, strengths, and whatever a later event may bring."""
_SCORES = ("train", "validation", "test")


class _Lines(logging.Formatter):
    """One line a record. Text of peers and of files cannot move the cursor in it."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record), keep="\n")


def configure(level: str | None) -> None:
    """Write the log from this level on to standard error; None: leave logging as Python has it."""
    log = logging.getLogger("veracausa")
    for handler in [handler for handler in log.handlers if isinstance(handler.formatter, _Lines)]:
        log.removeHandler(handler)
    if level is None:
        os.environ.pop(LEVEL_VARIABLE, None)
        log.setLevel(logging.NOTSET)
        log.propagate = True
        return
    os.environ[LEVEL_VARIABLE] = level
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level.upper())
    log.propagate = False


def configure_child() -> None:
    """In a process that a run started: log as the one that started it."""
    level = os.environ.get(LEVEL_VARIABLE)
    if level in LEVELS:
        configure(level)


def log_event(event: Event) -> None:
    """One line for an event of a run: at `debug` what comes often, at `info` all else."""
    name = event.get("event", "")
    often = name in _OFTEN or (name in ("attack", "baseline") and 0 < event.get("share", 0.0) < 1)
    level = logging.DEBUG if often else logging.INFO
    if _RUN.isEnabledFor(level):
        _RUN.log(level, "%s", " ".join([name, *(f"{word}={value}" for word, value in _told(event))]))


def _told(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for word in _WORDS:
        value = event.get(word)
        if isinstance(value, str | int | float):
            yield word, f"{value:.6g}" if isinstance(value, float) else str(value)
    for split in _SCORES:
        scores = event.get(split)
        for name, value in scores.items() if isinstance(scores, Mapping) else ():
            if isinstance(value, int | float):
                yield f"{split}.{name}", f"{value:.6g}"
