"""What others write stays text: on a screen, in a log, in a line of JSON."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
import torch

from veracausa.cli import console
from veracausa.cli import main as cli
from veracausa.errors import InputError, WireError
from veracausa.escaping import escaped
from veracausa.wire.flare.peers import Peers
from veracausa.wire.message import Kind, shown

HOSTILE = {
    "escape": "0.1.0\x1b[1A\x1b[2Kforged",
    "c1": "a\x9b2Jb",
    "delete": "a\x7fb",
    "line end": "a\nveracuasa: forged\rb",
    "bell": "a\x07\x08b",
    "bidi": "a\u202eb\u2066c",
    "zero width": "a\u200bb\ufeff",
    "separator": "a\u2028b",
}
EVERY = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def is_plain(text: str) -> bool:
    return all(sign.isprintable() for sign in text)


@EVERY
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert is_plain(escaped(text))
    assert is_plain(shown(text))
    assert shown(text).isascii()


def test_what_is_printed_stays() -> None:
    text = "Größe × 漢字 – 3\xa0ms [bold]"
    assert escaped(text) == text
    assert escaped("a\nb", keep="\n") == "a\nb"
    assert shown("Größe") == "Gr\\xf6\\xdfe"
    assert len(shown("x" * 1000)) == 60


@EVERY
def test_a_console_shows_it_as_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console.out, "_file", screen)
    table = console.plain_table("member", title="partners")
    console.add_plain_row(table, f"{text}[link=http://evil.example]here[/link][bold]")
    console.out.print(text, markup=False, soft_wrap=True)
    console.out.print(table, soft_wrap=True)
    printed = screen.getvalue()
    # A line end of one's own may stand in what a command prints; a cell has none.
    assert all(is_plain(line) for line in printed.split("\n"))
    assert "[link=http://evil.example]here[/link][bold]" in printed.replace("\n", "")


@EVERY
def test_a_line_of_json_means_the_same_and_is_plain(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json_line({"name": text, "é": "\U000e0001"})
    printed = capsys.readouterr().out
    assert printed.endswith("\n")
    assert is_plain(printed[:-1])
    assert json.loads(printed) == {"name": text, "é": "\U000e0001"}


@EVERY
def test_the_last_sentence_of_a_program_is_one_line(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise InputError(f"job.toml: {text}")

    monkeypatch.setattr(sys, "argv", ["veracausa"])
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit):
        cli.main()
    said = capsys.readouterr().err
    assert said.endswith("\n")
    assert is_plain(said[:-1])


@EVERY
def test_a_refusal_and_its_line_in_the_log(text: str, caplog: pytest.LogCaptureFixture) -> None:
    kind = Kind("floats")
    with pytest.raises(WireError) as refused:
        kind.check({text: (torch.float32, (1,))}, {})
    assert is_plain(str(refused.value))
    peers = Peers("bank", {}, 1.0, 1 << 18, 1 << 20)
    with caplog.at_level(logging.WARNING):
        peers.refuse("lab", WireError("frame", text))
    assert caplog.messages
    assert all(is_plain(line) for line in caplog.messages)
