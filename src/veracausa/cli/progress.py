"""The one progress display: every command that takes long gives its events to it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from veracausa.cli.console import news, say
from veracausa.events import DISCOVERY_PARTS, TRAINING_PHASES, Event
from veracausa.logs import log_event

PACE_SECONDS = 3.0
"""After this time the pace is known well enough to say how long the rest takes."""


class ProgressDisplay:
    """Shows the events of a run: on a terminal a bar with the time that is left, elsewhere a line for each part.

    It draws one task at a time: the training of a model, the preparation of a defense, an attack, a part of a
    discovery. A new task takes the place of the one before. Events that it does not know change nothing.
    """

    def __init__(self, console: Console = news) -> None:
        self.console = console
        self._bar = _bar(console) if console.is_terminal and not console.quiet else None
        self._epochs: int | None = None
        self._baseline = False
        self._task = ""
        self._parties: dict[str, float] = {}
        """How far each party is with what all of them do at the same time."""
        self._pace: tuple[float, float] = (0.0, 0.0)
        """When the part of a discovery began, and which share of it was done then."""
        self._queue = _Queue()

    def __enter__(self) -> ProgressDisplay:
        self.begin("starting")
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __call__(self, event: Event) -> None:
        log_event(event)
        match event.get("event"):
            case "attack":
                self._attack(event)
            case "progress":
                self._part(event)
            case "noise":
                from veracausa.discovery.privacy.mechanism import said

                self._say(said(event))
            case "announced":
                self._announce(event)
            case "trial":
                self._trial(event)
            case _:
                self._train(event)

    def begin(self, what: str, total: float | None = None, quiet: bool = True) -> None:
        """Start another task; without a terminal and unless `quiet`, say so in a line."""
        self._task = what
        if self._bar is None:
            if not quiet:
                self._say(what)
            return
        for task in self._bar.task_ids:  # a new one, because rate and time left must not remember the last one's
            self._bar.remove_task(task)
        self._bar.add_task(what, total=total, rate="", timed=True, result="")
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _train(self, event: Event) -> None:
        baseline = bool(event.get("baseline"))
        if baseline and not self._baseline:
            self._say("the undefended baseline")
        self._baseline = baseline
        match event.get("event"):
            case "start":
                self._epochs = event.get("epochs")
                self.begin(self._epoch_name(1), event.get("steps"))
            case "step":
                self._step(event)
            case "epoch":
                self._epoch(event)
            case "preparing":
                self._together("preparing the defense", event, quiet=False)
            case "phase":
                what = str(event.get("what"))
                self._together(TRAINING_PHASES.get(what, what), event, quiet=False)
            case "aligning":
                self._together("masking ids", event, quiet=True)
            case "baseline":
                what = f"baseline {event.get('name')}"
                if "share" in event:
                    self._together(what, event, quiet=False)
                else:
                    self.begin(what, quiet=False)
            case "done":
                self.close()
                self._baseline = False
                self._parties.clear()

    def _step(self, event: Event) -> None:
        if self._bar is None:
            return
        # Only numbers are stored here; drawing is left to the bar's own clock.
        self._update(completed=event.get("step", 0))
        speed = self._bar.tasks[0].speed
        if speed:
            self._update(rate=f"{speed:.1f} steps/s" if speed < 100 else f"{speed:.0f} steps/s")

    def _epoch(self, event: Event) -> None:
        # Passive parties may report epochs of their own; a line or a bar is the active party's.
        if not any(isinstance(event.get(split), Mapping) for split in ("train", "validation", "test")):
            return
        epoch = event.get("epoch", "?")
        result = _result(event)
        if self._bar is None:
            seconds = event.get("seconds")
            took = f"  {seconds:.1f} s" if isinstance(seconds, int | float) else ""
            self._say(f"{self._epoch_name(epoch)}  {result}{took}")
            return
        following = epoch + 1 if isinstance(epoch, int) and epoch != self._epochs else epoch
        # The last score only, test where there is one: a terminal of 80 columns has no room for more.
        self._update(description=self._epoch_name(following), result=result.split("  ")[-1])

    def _epoch_name(self, epoch: Any) -> str:
        if self._task in TRAINING_PHASES.values():  # a blind training has phases, and is scored once
            return "trained"
        return f"epoch {epoch}/{self._epochs}" if self._epochs else f"epoch {epoch}"

    def _together(self, what: str, event: Event, quiet: bool) -> None:
        """What all parties do at the same time: the slowest says how far it is."""
        if self._task != what:
            self._parties.clear()
            self.begin(what, 1.0, quiet)
        self._parties[str(event.get("party"))] = float(event.get("share", 0.0))
        self._update(completed=min(self._parties.values()))

    def _attack(self, event: Event) -> None:
        moment = event.get("moment", 1.0)
        when = "" if moment == 1 else f" after {100 * moment:.0f} % of the training"
        when = " at the first exchange" if event.get("step") == 1 else when
        undefended = ", undefended" if event.get("baseline") else ""
        self._one_of("attack", f"{event['attack']} on {event['party']}{when}{undefended}", event)

    def _one_of(self, kind: str, what: str, event: Event) -> None:
        """One of several things that an audit does one after another: which, and how long all of them take."""
        number, of = event.get("number", 1), event.get("of", 1)
        place = f"{kind} {number} of {of}"
        words = f"{place}: {what}" if of > 1 else what
        left = self._queue.left(kind, number, of, event["share"])
        if self._task != words or not event["share"]:
            told = f", {left}" if left and of > 1 else ""
            self.begin(place if self._bar is not None and of > 1 else words + told, 1.0, quiet=False)
            self._task = words
        elif left and self._bar is None and not self._queue.said:
            self._say(f"{place}: {left} for all" if of > 1 else f"{words}: {left}")
        self._queue.said = self._queue.said or bool(left)
        if of > 1:  # which one, and the time for all, before what a narrow terminal may cut
            self._update(description=f"{place}, {left}" if left else place, result=what, timed=False)
        self._update(completed=event["share"])

    def _part(self, event: Event) -> None:
        """A part of a discovery: what begins, and as soon as the first seconds tell, how long it takes."""
        what, share = str(event["what"]), float(event["share"])
        words = DISCOVERY_PARTS.get(what, what)
        if "number" in event:
            self._one_of("case", words, event)
            return
        if self._task != words:
            self._pace = time.monotonic(), share
            self.begin(words, 1.0, quiet=False)
        self._update(completed=share)
        began, done = self._pace
        passed = time.monotonic() - began
        if self._bar is None and passed >= PACE_SECONDS and share > done:
            self._say(f"{words}: {_about(passed / (share - done) * (1 - share))}")
            self._pace = math.inf, 1.0  # said once

    def _announce(self, event: Event) -> None:
        """What a run will cost, before it is spent."""
        from veracausa.report.page import format_bytes, format_seconds

        told: Mapping[str, Any] = event
        seconds, size = told.get("seconds"), told.get("bytes")
        cost = [format_seconds(max(1, round(seconds)))] if isinstance(seconds, int | float) else []
        cost += [f"{format_bytes(size)} of messages"] if size else []
        if cost:
            name = told.get("method") or told.get("what")
            what = f"{name}: " if name else ""
            self._say(f"{what}about {' and '.join(cost)}".replace(".0 s", " s"))

    def _trial(self, event: Event) -> None:
        from veracausa.report.page import format_seconds

        words = " ".join(filter(None, [event["defense"], event["setting"], f"cut {event['cut']}"]))
        state = "kept from before" if event["kept"] else f"{format_seconds(max(0.0, event['left']))} left"
        self.close()
        self._baseline = False
        self._say(f"{words}, seed {event['seed']}: {state}")

    def _say(self, line: str) -> None:
        say(line, self.console)

    def _update(self, **fields: Any) -> None:
        if self._bar is not None and self._bar.task_ids:
            self._bar.update(self._bar.task_ids[0], **fields)


class _Queue:
    """How long things of one kind take that come one after another, judged by those that are done."""

    def __init__(self) -> None:
        self._kind: tuple[str, int] = ("", 0)
        self._number = 0
        self._from = self._began = 0.0
        self.said = False

    def left(self, kind: str, number: int, of: int, share: float) -> str:
        """In words; empty as long as nobody can tell."""
        done, now = number - 1 + share, time.monotonic()
        if (kind, of) != self._kind or number < self._number or (of == 1 and not share):
            self._kind, self._from, self._began, self.said = (kind, of), done, now, False
        self._number = number
        passed = now - self._began
        if passed < PACE_SECONDS or done <= self._from:
            return ""
        return _about(passed / (done - self._from) * (of - done))


def _about(seconds: float) -> str:
    """The time that is left, no finer than it is known."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    return f"about {minutes} min left" if minutes < 90 else f"about {minutes // 60} h {minutes % 60:02d} min left"


class _Left(TimeRemainingColumn):
    """The time that is left of this task; nothing where the task says more than that in words."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["timed"] else Text("")


class _Done(MofNCompleteColumn):
    """Steps done of all, or the share in percent; nothing where it is not known how much there is."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        return super().render(task) if task.total > 1 else Text(f"{task.percentage:>3.0f}%")


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), _Done(), TextColumn("{task.fields[rate]}"))
    ends = (_Left(), TextColumn("{task.fields[result]}"))
    return Progress(*columns, *ends, console=console, transient=True)


def _result(event: Event) -> str:
    parts = []
    for split, scores in (("train", ("loss",)), ("validation", ("accuracy", "rmse")), ("test", ("accuracy", "rmse"))):
        values = event.get(split)
        if not isinstance(values, Mapping):
            continue
        for score in scores:
            value = values.get(score)
            if isinstance(value, int | float):
                shown = f"{100 * value:.1f} %" if score == "accuracy" else f"{value:.4f}"
                parts.append(f"{split} {score} {shown}")
    return "  ".join(parts)
