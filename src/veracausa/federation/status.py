"""Who is here, at which step, how fast, and what was sent: a small file that the run keeps true while it lasts."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.atomic import atomic_write
from veracausa.errors import InputError
from veracausa.events import Event, Observer

if TYPE_CHECKING:
    from veracausa.wire.flare.link import FlareLink

FILE = "federation-status.json"
EVERY = 1.0
STALE = 10.0
"""Seconds after which a file that is not written any more tells of a run that is gone."""
ENDED = ("done", "failed", "stopped")
"""The states of a run that has ended."""


class Status:
    """Writes the file about once a second."""

    def __init__(self, folder: Path, me: str, peers: tuple[str, ...]) -> None:
        self.link: FlareLink | None = None
        self._path = folder / FILE
        self._status: dict[str, Any] = {"me": me, "peers": list(peers), "state": "connecting", "attempt": 0, "step": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="status", daemon=True)

    def observer(self, notify: Observer) -> Observer:
        """The same `notify`, listened to."""

        def hear(event: Event) -> None:
            self._take(event)
            notify(event)

        return hear

    def _take(self, event: Event) -> None:
        match event["event"]:
            case "attempt":
                self._status |= {"state": "connecting", "attempt": event["attempt"]}
            case "waiting":
                self._status |= {"state": "waiting", "waits_for": list(event["peers"]), "unreachable": None}
            case "unreachable":
                self._status |= {"unreachable": {key: event[key] for key in ("member", "at", "why")}}
            case "reached":
                self._status |= {"unreachable": None}
            case "agreed":
                self._status |= {"state": "agreed", "hash": event["hash"], "waits_for": [], "unreachable": None}
            case "starts":
                self._status |= {"state": "running", "step": event["step"], "error": None, "waits_for": []}
            case "epoch":
                self._status |= {"epoch": event["epoch"], "step": event["step"]}
            case "lost":
                self._status |= {"state": "lost a party", "error": event["reason"]}
            case "failed":
                self._status |= {"state": "failed", "error": event["reason"]}
            case "stopped":
                self._status |= {"state": "stopped", "error": None, "waits_for": []}
            case "finished_here":
                self._status |= {"state": "done", "error": None}

    def _keep(self) -> None:
        while not self._stop.wait(EVERY):
            with suppress(OSError):  # a full disk must not end a run that needs none of this
                self.write()

    def write(self) -> None:
        status = {**self._status, "at": time.time()}
        if self.link is not None:
            status["bytes_sent"] = self.link.ledger.bytes_sent
            status["messages"] = self.link.ledger.messages
            status["step"] = max(status["step"], self.link.step)
            status["members"] = self.link.seen()
        atomic_write(self._path, json.dumps(status).encode())

    def __enter__(self) -> Status:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join()
        with suppress(OSError):
            self.write()


def read_status(folder: Path) -> dict[str, Any]:
    """The last status of the run in this folder; `alive` says whether it is still updated."""
    path = folder / FILE
    try:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: nothing was run here; start with `veracausa federation run {folder}`") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is damaged; the next run writes it again") from None
    status["alive"] = status["state"] not in ENDED and time.time() - status["at"] < STALE
    return status
