"""What docs/frontier.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "frontier.md"


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.splitlines() == [
        "epsilon = 1",
        "epsilon = 2",
        "laplace: leakage 43.9 %",
        "prune: leakage ≤ 60.0 %",
    ]


def test_every_option_that_the_page_names_is_there() -> None:
    import typer.main

    from veracausa.cli.main import app

    command = typer.main.get_command(app).commands["frontier"]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    shown = set(re.findall(r"--[a-z]+", PAGE.read_text(encoding="utf-8")))
    assert shown <= known, shown - known
