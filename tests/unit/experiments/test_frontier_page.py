"""What docs/frontier.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "frontier.md"


def test_every_option_that_the_page_names_is_there() -> None:
    import typer.main

    from veracausa.cli.main import app

    command = typer.main.get_command(app).commands["frontier"]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    shown = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", PAGE.read_text(encoding="utf-8")))
    assert shown <= known, shown - known
