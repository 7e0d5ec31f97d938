"""What every command prints through: tables on standard output, progress and complaints on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from veracausa.escaping import escaped


class _Screen(Console):
    """A console on which text is only ever text: whoever wrote it, it cannot move the cursor or hide a line."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            # What rich itself says to the terminal is marked as control, and colours are no text.
            yield segment if segment.control else Segment(escaped(segment.text, keep="\n"), segment.style)


out: Console = _Screen(highlight=False)
err: Console = _Screen(stderr=True, highlight=False)


def print_json_line(value: Any) -> None:
    """Print the value as one line of JSON; a command prints it last, so that a machine can read the last line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    # JSON lets some characters stand that a terminal obeys. They occur in strings alone, where \\u means the same.
    sys.stdout.write("".join(sign if escaped(sign) == sign else json.dumps(sign)[1:-1] for sign in text) + "\n")
    sys.stdout.flush()


def plain_table(*columns: str, title: str | None = None) -> Table:
    """A table without lines, for words of others: give its rows to `add_plain_row`."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left", show_header=bool(columns))
    for column in columns:
        table.add_column(column)
    return table


def add_plain_row(table: Table, *cells: str) -> None:
    """A row whose cells say what they say: brackets in them are no markup."""
    table.add_row(*(Text(escaped(cell)) for cell in cells))


class _Count(MofNCompleteColumn):
    """Steps done of all, where it is known how many there are."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total is not None else Text("")


class Progress:
    """Shows a run's events: a bar with rate and time left on a terminal, else a line an epoch."""

    def __init__(self, console: Console = err) -> None:
        self.console = console
        self.epochs: int | None = None
        self._shares: dict[str, float] = {}
        self._bar: Bar | None = None
        if console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=16),
                _Count(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[result]}"),
                console=console,
                transient=True,
            )
            self._begin("starting", None)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, event: Mapping[str, Any]) -> None:
        kind = event.get("event")
        if kind == "step":
            self._step(event)
        elif kind == "epoch":
            self._epoch(event)
        elif kind == "start":
            self.epochs = event.get("epochs")
            if self._bar is not None:
                self._bar.reset(
                    self._task, total=event.get("steps"), description=self._epoch_name(1), rate="", result=""
                )
                self._bar.start()
        elif kind == "preparing":
            self._preparing(str(event.get("party")), float(event.get("share", 0.0)))
        elif kind == "baseline":
            self._baseline(str(event.get("name")))
        elif kind == "done":
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _step(self, event: Mapping[str, Any]) -> None:
        if self._bar is None:
            return
        # Only numbers are stored here; drawing is left to the bar's own clock.
        self._bar.update(self._task, completed=event.get("step", 0))
        speed = self._bar.tasks[0].speed
        if speed:
            self._bar.update(self._task, rate=f"{speed:.1f} steps/s" if speed < 100 else f"{speed:.0f} steps/s")

    def _epoch(self, event: Mapping[str, Any]) -> None:
        # Passive parties may report epochs of their own; a line or a bar is the active party's.
        if not any(isinstance(event.get(split), Mapping) for split in ("train", "validation", "test")):
            return
        epoch = event.get("epoch", "?")
        result = _result(event)
        if self._bar is None:
            seconds = event.get("seconds")
            took = f"  {seconds:.1f} s" if isinstance(seconds, int | float) else ""
            self.console.print(f"{self._epoch_name(epoch)}  {result}{took}", soft_wrap=True, markup=False)
            return
        following = epoch + 1 if isinstance(epoch, int) and epoch != self.epochs else epoch
        # The last score only, test where there is one: a terminal of 80 columns has no room for more.
        self._bar.update(self._task, description=self._epoch_name(following), result=result.split("  ")[-1])

    def _preparing(self, party: str, share: float) -> None:
        first = not self._shares
        self._shares[party] = share
        if self._bar is None:
            if first:
                self.console.print("preparing the defense", markup=False)
            return
        if first:
            self._begin("preparing the defense", 100)
        # They prepare at the same time, and training starts with the slowest.
        self._bar.update(self._task, completed=int(100 * min(self._shares.values())), rate="%")

    def _baseline(self, name: str) -> None:
        if self._bar is None:
            self.console.print(f"baseline {name}", markup=False)
        else:
            self._begin(f"baseline {name}", None)

    def _begin(self, what: str, steps: int | None, done: int = 0) -> None:
        """One task at a time: a new one, because rate and time left must not remember the last one's."""
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._task = self._bar.add_task(what, total=steps, completed=done, rate="", result="")

    def _epoch_name(self, epoch: Any) -> str:
        return f"epoch {epoch}/{self.epochs}" if self.epochs else f"epoch {epoch}"


def _result(event: Mapping[str, Any]) -> str:
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
