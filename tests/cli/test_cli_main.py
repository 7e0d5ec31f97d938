"""Exit codes and sentences: 2 for the input, 1 for the run, 130 for Ctrl-C; help without torch."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from veracausa import __version__
from veracausa.cli import main as cli
from veracausa.errors import InputError, PeerLost


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: str, error: BaseException | None = None) -> int:
    monkeypatch.setattr(sys, "argv", ["veracausa", *arguments])
    if error is not None:

        def fail(**_: object) -> None:
            raise error

        monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


@pytest.fixture(autouse=True)
def _no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    # setenv, not delenv: the command sets it too, and this is what undoes that.
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "polars", "matplotlib", "sklearn", "pydantic", "jinja2")
    code = f"import sys, veracausa.cli.main; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "init",
        "train",
        "audit",
        "predict",
        "report",
        "list",
        "data",
        "doctor",
        "export",
        "bench",
        "frontier",
        "reproduce",
        "discover",
    ],
)
def test_every_command_has_help(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(monkeypatch, command, "--help") == 0
    assert "Usage: veracausa" in capsys.readouterr().out


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"veracausa {__version__}\n"


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "veracausa", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == f"veracausa {__version__}\n"


@pytest.mark.parametrize("arguments", [("--bogus",), ("nonsense",), ("list", "nonsense"), ("report",)])
def test_usage_errors_are_code_2(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert leave(monkeypatch, *arguments) == 2


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("job.toml: no such file"), 2, "veracausa: job.toml: no such file\n"),
        (PeerLost("passive_1", "silent"), 1, "veracausa: lost party 'passive_1': silent\n"),
        (KeyboardInterrupt(), 130, "veracausa: stopped by Ctrl-C\n"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/a"), 1, "veracausa: the disk is full (runs/a)"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "veracausa: the disk is full; free some space"),
        (OSError(errno.EROFS, "Read-only file system", "lab"), 2, "veracausa: lab: the file system is read-only; name"),
        (PermissionError(errno.EACCES, "Permission", "lab"), 2, "veracausa: lab: this user has not the rights for it;"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x.csv"), 2, "veracausa: x.csv: no such file or folder"),
        (OSError(errno.EIO, "Input/output error", "a/b"), 1, "veracausa: a/b: Input/output error; check the disk"),
        (OSError(errno.EMFILE, "Too many open files", "a"), 1, "veracausa: too many files are open"),
    ],
)
def test_a_failure_is_one_sentence_and_a_code(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert leave(monkeypatch, error=error) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(sentence)
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(monkeypatch, "--debug", "report", "nowhere") == 2
    captured = capsys.readouterr().err
    assert "Traceback" in captured
    assert captured.endswith("veracausa: nowhere: no such folder; `veracausa list runs` shows the runs that are here\n")


def test_debug_by_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VERACAUSA_DEBUG", "1")
    assert leave(monkeypatch, "report", "nowhere") == 2
    assert "Traceback" in capsys.readouterr().err


def test_other_errors_of_the_system_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["veracausa"])

    def fail(**_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(OSError, match="Input/output"):
        cli.main()


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["predict", "no-such-run"], 2)])
def test_a_program_with_the_engine_loaded_leaves_at_once_and_in_order(arguments: list[str], code: int) -> None:
    program = (
        "import atexit, sys, threading, time, types\n"
        "sys.modules['nvflare'] = types.ModuleType('nvflare')\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
        "atexit.register(print, 'tidied up')\n"
        f"sys.argv = ['veracausa', *{arguments!r}]\n"
        "from veracausa.cli.main import program\n"
        "program()"
    )
    left = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert left.returncode == code
    assert "tidied up" in left.stdout
    assert (__version__ in left.stdout) is (code == 0)
    assert ("no-such-run" in left.stderr) is (code == 2)
