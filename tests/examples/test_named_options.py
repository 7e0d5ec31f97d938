"""Commands that the pages show exist, with the options that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from veracausa.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
_FENCED = re.compile(r"^```\w*[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(veracausa [^`\n]+)`")
_ROOT_OPTIONS = {"--help", "-h", "--version", "--debug", "--install-completion", "--show-completion"}


def commands(text: str) -> Iterator[str]:
    """Lines of code blocks and spans of text that call veracausa; a line that goes on is one."""
    for block in _FENCED.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().removeprefix("$ ").startswith("veracausa "):
                yield line.strip().removeprefix("$ ").partition(" #")[0]
    yield from _SPAN.findall(_FENCED.sub("", text))


def wrong(line: str) -> str:
    """What the command line does not know; empty if it knows all."""
    try:
        words = shlex.split(line.replace("…", " "))[1:]
    except ValueError:
        return ""  # a sentence, not a command
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        if not re.fullmatch(r"[a-z]+", words[0]):  # COMMAND, an option of the program, a placeholder
            return "" if not words[0].startswith("--") or words[0] in _ROOT_OPTIONS else words[0]
        if words[0] not in command.commands:
            return words[0]
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    passes_on = bool((command.context_settings or {}).get("ignore_unknown_options"))
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return "" if passes_on else next((option for option in given if option not in known | {"--help", "-h"}), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_commands_and_options_that_exist(page: Path) -> None:
    found = {line: wrong(line) for line in commands(page.read_text(encoding="utf-8"))}
    assert {line: word for line, word in found.items() if word} == {}


def test_what_does_not_exist_is_found() -> None:
    page = (
        "Say `veracausa trian job.toml`.\n\n```sh\nveracausa train job.toml --out x \\\n    --sett a=1   # why\n```\n"
    )
    assert sorted(wrong(line) for line in commands(page)) == ["--sett", "trian"]
