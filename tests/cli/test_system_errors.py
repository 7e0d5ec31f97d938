"""What the system refuses is one sentence with the path and the fix: never a traceback."""

from __future__ import annotations

import errno
import shutil
import sys
from pathlib import Path

import pytest

from veracausa import atomic
from veracausa.cli import main as cli

EXAMPLE = Path(__file__).parent / "example_run"
JOB = 'data = { name = "digits", train = 64, test = 32 }\nmodel = { name = "mlp" }\ntraining = { epochs = 1 }\n'


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setattr(sys, "argv", ["veracausa", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def refuse(monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    """Every file that is to be written is refused by the system."""

    def fail(path: Path, mode: str = "r", *more: object, **options: object) -> object:
        if "w" in mode:
            raise OSError(number, said, str(path))
        return whole(path, mode, *more, **options)

    whole = Path.open
    monkeypatch.setattr(atomic.Path, "open", fail)


@pytest.mark.parametrize(
    ("number", "said", "code", "sentence"),
    [
        (errno.EROFS, "Read-only file system", 2, "the file system is read-only; name a folder"),
        (errno.EACCES, "Permission denied", 2, "this user has not the rights for it"),
        (errno.ENOSPC, "No space left on device", 1, "the disk is full"),
        (errno.EIO, "Input/output error", 1, "check the disk"),
    ],
)
def test_a_report_that_cannot_be_written(
    number: int,
    said: str,
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = shutil.copytree(EXAMPLE, tmp_path / "run")
    refuse(monkeypatch, number, said)
    assert leave(monkeypatch, "report", str(run)) == code
    written = capsys.readouterr().err
    assert f"{run}/" in written
    assert sentence in written
    assert written.count("\n") == 1


def test_a_run_that_cannot_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    refuse(monkeypatch, errno.EROFS, "Read-only file system")
    assert leave(monkeypatch, "train", str(tmp_path / "job.toml"), "--out", str(tmp_path / "run")) == 2
    written = capsys.readouterr().err.splitlines()[-1]
    assert written.startswith(f"veracausa: {tmp_path / 'run'}")
    assert written.endswith("the file system is read-only; name a folder that can be written to")


def test_a_path_through_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No patch: this the system refuses everybody."""
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "file").write_text("")
    assert leave(monkeypatch, "train", str(tmp_path / "job.toml"), "--out", str(tmp_path / "file" / "run")) == 2
    assert "is a file; name another folder with --out" in capsys.readouterr().err


def test_a_model_that_is_nested_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    run = tmp_path / "run"
    assert leave(monkeypatch, "train", str(tmp_path / "job.toml"), "--out", str(run)) == 0
    model = next(run.glob("parties/*/model.safetensors"))
    header = b"[" * 100_000
    model.write_bytes(len(header).to_bytes(8, "little") + header)
    assert leave(monkeypatch, "predict", str(run)) == 1
    written = capsys.readouterr().err.splitlines()[-1]
    assert written.startswith(f"veracausa: {model}: not a state file (it is nested too deep)")


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_folder_of_a_federation_that_cannot_be_used(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert leave(monkeypatch, "federation", command, str(tmp_path / "file")) == 2
    written = capsys.readouterr().err
    assert str(tmp_path / "file") in written
    assert written.count("\n") == 1
