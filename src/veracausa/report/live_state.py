"""What a run looks like while it runs: kept from its events, and from what its folder says was sent and measured."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from veracausa.events import DISCOVERY_PARTS, TRAINING_PHASES, Event
from veracausa.report.blind_section import SENT as BLIND_SENT
from veracausa.report.hidden_paths import without_paths
from veracausa.report.sent_words import SENT
from veracausa.runs.record import invre, mapping, number, numbers

PACE_SECONDS = 30.0
"""The rate is that of so many seconds."""
KEPT_EPOCHS = 2000
LEDGERS = ("parties/*/ledger.jsonl", "federation/parties/*/ledger.jsonl")


class LiveState:
    """Hears the events of a run and says at any time how it stands. Its methods may be called from any thread."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._name = self._note = ""
        self._state = "starting"
        self._task: dict[str, Any] = {"name": "starting", "share": None}
        self._pace: deque[tuple[float, float]] = deque()
        self._shares: dict[str, float] = {}
        self._steps: int | None = None
        self._epochs: deque[dict[str, Any]] = deque(maxlen=KEPT_EPOCHS)
        self._files = _Folder()

    def __call__(self, event: Event) -> None:
        """Take note of an event. Those that it does not know change nothing."""
        with self._lock:
            self._hear(event)

    def look_into(self, folder: Path) -> None:
        """Read what was sent and measured in this run folder."""
        with self._lock:
            self._name = folder.name
            self._files.path = folder

    def snapshot(self) -> dict[str, Any]:
        """How the run stands, as plain JSON, without a path of this machine."""
        with self._lock:
            sent, risk = self._files.read()
            rate, left = self._rate_and_left()
            return {
                "what": self.what,
                "run": self._name,
                "state": self._state,
                "note": without_paths(self._note),
                "task": self._task["name"],
                "share": self._task["share"],
                "step": self._task.get("step"),
                "steps": self._task.get("steps"),
                "rate": rate,
                "left": left,
                "seconds": time.monotonic() - self._began,
                "epochs": list(self._epochs),
                "sent": sent,
                "risk": risk,
            }

    def _hear(self, event: Event) -> None:
        match event["event"]:
            case "folder":
                self._files.path = Path(event["path"])
                self._name = self._files.path.name
            case "start":
                self._steps = event.get("steps")
                self._begin("training")
                self._at_step(event.get("step") or 0)
            case "step":
                self._at_step(event["step"])
            case "epoch":
                self._epoch(event)
            case "preparing":
                self._together("preparing the defense", event)
            case "phase":
                what = str(event.get("what"))
                self._together(TRAINING_PHASES.get(what, what), event)
            case "aligning":
                self._together("masking ids", event)
            case "progress":
                what = str(event.get("what"))
                self._together(DISCOVERY_PARTS.get(what, what), event)
            case "baseline":
                what = f"baseline {event.get('name')}"
                if "share" in event:
                    self._together(what, event)
                else:
                    self._begin(what)
            case "starts":
                self._begin("running")
            case "waiting":
                self._begin(f"waiting for {', '.join(map(str, event.get('peers', ())))}", "waiting")
            case "lost":
                self._begin("waiting for a member to return", "waiting")
                self._note = str(event.get("reason", ""))
            case "done" | "finished_here":
                self._state = "done"
                self._task = {"name": "done", "share": 1.0}

    def _begin(self, name: str, state: str = "running") -> None:
        self._state, self._note = state, ""
        self._task = {"name": name, "share": None}
        self._pace.clear()
        self._shares.clear()

    def _at_step(self, step: int) -> None:
        if self._steps is None:  # phases of a blind training, which have shares of their own
            return
        self._task |= {"step": step, "steps": self._steps, "share": min(1.0, step / max(1, self._steps))}
        self._paced(float(step))

    def _together(self, name: str, event: Event) -> None:
        """What all parties do at the same time: the slowest says how far it is."""
        if self._task["name"] != name:
            self._begin(name)
        self._shares[str(event.get("party", ""))] = float(event.get("share", 0.0))
        self._task["share"] = min(self._shares.values())
        self._paced(self._task["share"])

    def _paced(self, done: float) -> None:
        now = time.monotonic()
        # One mark a tenth of a second is enough, however many steps there are in it.
        if len(self._pace) > 1 and now - self._pace[-2][0] < 0.1:
            self._pace[-1] = now, done
        else:
            self._pace.append((now, done))
        while now - self._pace[0][0] > PACE_SECONDS and len(self._pace) > 2:
            self._pace.popleft()

    def _rate_and_left(self) -> tuple[float | None, float | None]:
        """Steps a second where steps are counted, and the seconds that are left."""
        if self._state != "running" or len(self._pace) < 2:
            return None, None
        (began, before), (now, done) = self._pace[0], self._pace[-1]
        if now <= began or done <= before:
            return None, None
        pace = (done - before) / (now - began)
        steps = self._task.get("steps")
        left = ((steps or 1.0) - done) / pace - (time.monotonic() - now)
        return (pace if steps else None), max(0.0, left)

    def _epoch(self, event: Event) -> None:
        scores = {split: numbers(dict(mapping(event.get(split)))) for split in ("train", "validation", "test")}
        if any(scores.values()):  # passive parties may report epochs of their own, without scores
            self._epochs.append({"epoch": event.get("epoch"), **scores})


class _Folder:
    """What is new in the files of a run folder since they were read last."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._read: dict[Path, int] = {}
        self._sent: dict[tuple[str, str], list[int]] = {}
        self._risk: dict[str, dict[str, Any]] = {}

    def read(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What each party sent, in words, and the last risk that was measured at each."""
        if self.path is not None:
            for ledger in sorted(found for pattern in LEDGERS for found in self.path.glob(pattern)):
                for line in self._new(ledger):
                    kind = str(line.get("kind"))
                    words = SENT.get(kind) or BLIND_SENT.get(kind, (kind,))[0]
                    total = self._sent.setdefault((ledger.parent.name, words), [0, 0])
                    total[0] += 1
                    total[1] += int(number(line.get("bytes")) or 0)
            for line in self._new(self.path / "metrics.jsonl"):
                if told := mapping(line.get("risk")):
                    reason = str(told["unavailable"]) if "unavailable" in told else None
                    self._risk[str(line.get("party"))] = {"invre": invre(told), "unavailable": reason}
        sent = [
            {"party": party, "what": words, "messages": count, "bytes": size}
            for (party, words), (count, size) in self._sent.items()
        ]
        return (
            sorted(sent, key=lambda row: (row["party"], -row["bytes"])),
            [{"party": party, **told} for party, told in sorted(self._risk.items())],
        )

    def _new(self, path: Path) -> Iterator[Mapping[str, Any]]:
        """The objects of whole lines that were appended; a resumed run's file that was cut is not counted twice."""
        at = self._read.get(path, 0)
        try:
            with path.open("rb") as file:
                if file.seek(0, 2) <= at:
                    return
                file.seek(at)
                text = file.read()
        except OSError:  # not there yet
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read[path] = at + len(whole)
        for line in whole.splitlines():
            try:
                yield mapping(json.loads(line))
            except (ValueError, RecursionError):
                continue
