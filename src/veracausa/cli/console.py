"""What every command prints through: tables on standard output, complaints on standard error."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
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
news: Console = _Screen(stderr=True, highlight=False)
"""What a command says on its way; `--quiet` silences it. What somebody must see goes to `err`."""


def wrapped(text: str, width: int) -> str:
    """Lines broken between words, and indented as they begin; a longer word, such as a path, stays whole."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(
            line, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines += parts or [""]
    return "\n".join(lines)


def say(text: str, on: Console = out) -> None:
    """Print words: broken between words on a terminal, and one line a paragraph elsewhere."""
    on.print(wrapped(text, on.width) if on.is_terminal else text, markup=False, soft_wrap=True)


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
