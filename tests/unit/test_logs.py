"""The log says names, sizes and steps, never what a row holds; text of others is only text in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from veracausa import logs
from veracausa.events import Event


@pytest.fixture
def _put_back() -> Iterator[None]:
    yield
    logs.configure(None)


@pytest.mark.usefixtures("_put_back")
def test_the_log_goes_to_standard_error_from_the_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    logs.configure("info")  # a second time writes nothing twice
    logging.getLogger("veracausa.wire").info("one")
    logging.getLogger("veracausa.wire").debug("two")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("INFO veracausa.wire: one") == 1
    assert "two" not in captured.err


@pytest.mark.usefixtures("_put_back")
def test_what_others_wrote_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug")
    logging.getLogger("veracausa.wire").warning("lost %s", "bad\x1b[2Jname")
    assert "bad\\x1b[2Jname" in capsys.readouterr().err


@pytest.mark.usefixtures("_put_back")
def test_a_child_logs_as_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("veracausa")
    logs.configure("error")
    handlers = list(log.handlers)
    logs.configure_child()
    assert log.level == logging.ERROR
    assert len(log.handlers) == len(handlers)
    logs.configure(None)
    assert log.propagate
    assert log.level == logging.NOTSET
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "nonsense")
    logs.configure_child()
    assert log.level == logging.NOTSET


def test_an_event_is_a_line_without_what_was_found(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = [
        {"event": "epoch", "epoch": 2, "train": {"loss": 0.25}},
        {"event": "graph", "graph": [[0, 1]], "strengths": [[0.0, 0.7]]},
        {"event": "step", "step": 3},
    ]
    with caplog.at_level(logging.INFO, "veracausa.run"):
        for event in events:
            logs.log_event(event)
    assert [record.getMessage() for record in caplog.records] == ["epoch epoch=2 train.loss=0.25", "graph"]
