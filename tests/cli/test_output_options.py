"""`--quiet` and `--log-level` of every command, and flags that look like flags."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from veracausa import logs
from veracausa.cli import console
from veracausa.cli.main import app
from veracausa.cli.progress import ProgressDisplay

ROWS = [(f"person-{row}", 4711 + row, "yes" if row % 2 else "no") for row in range(24)]
JOB = """
name = "small"
data = { name = "csv", path = "rows.csv", label = "good", id = "who" }
model = { name = "mlp", cut = 2 }
parties = { active = "bank", passive = ["clinic"] }
training = { epochs = 1, batch_size = 8 }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    lines = ["who,income,good", *(",".join(map(str, row)) for row in ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "job.toml").write_text(JOB)
    yield tmp_path
    console.news.quiet = False
    logs.configure(None)


def call(*words: str) -> Any:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result


def commands(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from commands(command) if hasattr(command, "commands") else [command]


def test_every_command_takes_them() -> None:
    found = list(commands(typer.main.get_command(app)))
    assert len(found) > 20
    for command in found:
        if command.name != "bench":  # it hands everything on
            names = {name for parameter in command.params for name in parameter.opts}
            assert {"--quiet", "--log-level"} <= names, command.name


@pytest.mark.parametrize("words", [("train",), ("audit",), ("discover",), ("federation", "run"), ()])
def test_flags_do_not_look_as_if_they_took_a_value(words: tuple[str, ...]) -> None:
    assert not re.search(r"<bool(ean)?>|BOOL", call(*words, "--help").output)


@pytest.mark.parametrize("words", [("audit",), ("federation", "run")])
def test_help_is_wrapped_once(words: tuple[str, ...]) -> None:
    lines = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "72", "TERM": "dumb"}).output.splitlines()
    shown = lines[3 : next(place for place, line in enumerate(lines) if "Arguments" in line)]
    text = [line.strip() for line in shown if line.strip() and not re.search(r"[.]$", line.strip())]
    assert len(text) > 1
    assert min(map(len, text)) > 50


def test_quiet_prints_the_result_alone(here: Path) -> None:
    loud = call("train", "job.toml")
    assert "epoch 1/1" in loud.stderr
    quiet = call("train", "job.toml", "--quiet", "--json")
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)["run"] == "runs/small-2"
    assert "epoch 1/1" in call("train", "job.toml").stderr  # the next command is as loud as ever


def test_quiet_still_says_what_is_wrong(here: Path) -> None:
    result = CliRunner().invoke(app, ["train", "nowhere.toml", "-q"])
    assert "nowhere.toml" in str(result.exception)


def test_a_quiet_display_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.news, "quiet", True)
    with ProgressDisplay() as display:
        assert display._bar is None


def test_the_log_tells_the_run_and_no_row(here: Path) -> None:
    said = call("train", "job.toml", "-q", "--log-level", "debug").stderr
    for expected in (
        "read rows.csv: 24 rows, 3 columns",
        "run folder runs/small",
        "clinic sends representation to bank",
    ):
        assert expected in said
    for who, income, _ in ROWS:
        assert who not in said
        assert not re.search(rf"\b{income}\b", said)


def test_an_unknown_level_is_refused(here: Path) -> None:
    result = CliRunner().invoke(app, ["list", "--log-level", "loud"])
    assert result.exit_code == 2
    assert "loud" in result.output


def test_words_are_broken_between_words_on_a_terminal_alone() -> None:
    sentence = "note: no word of a sentence is ever cut at the edge of a screen, a/long/path/that/stays/whole/neither"
    shown = {}
    for terminal in (True, False):
        shown[terminal] = io.StringIO()
        console.say(sentence, Console(file=shown[terminal], width=30, force_terminal=terminal, color_system=None))
    lines = shown[True].getvalue().splitlines()
    assert " ".join(lines) == sentence
    assert all(len(line) <= 30 or " " not in line for line in lines)
    assert shown[False].getvalue() == f"{sentence}\n"
    assert console.wrapped("  one two three four", 20) == "  one two three four"
    assert console.wrapped("  a\n\nb", 40) == "  a\n\nb"
