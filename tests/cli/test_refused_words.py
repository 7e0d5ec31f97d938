"""What the commands say of a wrong word: in plain words, with the fix, and nothing is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from veracausa.cli.main import app, main
from veracausa.errors import InputError

JOB = 'data = { name = "digits" }\nmodel = { name = "convnet", cut = 3 }\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    Path("job.toml").write_text(JOB)
    Path("pictures").mkdir()
    Path("latin.toml").write_bytes(b'name = "J\xfcrg"\n')
    Path("rows.csv").write_text("a,b\n" + "".join(f"{row},{row % 7}\n" for row in range(30)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train", "job.toml", "--set", "training.epochs=many"],
            "epochs: must be a whole number (got 'many')",
        ),
        (["train", "job.toml", "--set", "training.epochs=0"], "training.epochs: must be at least 1 (got 0)"),
        (["train", "job.toml", "--set", "training.optimizer.lr=0"], "must be more than 0 (got 0)"),
        (["train", "job.toml", "--set", "training.protocol=blinnd"], "must be 'split' or 'blind' (got 'blinnd')"),
        (["train", "job.toml", "--set", "training.class_weights=[1,2]"], "2 weights for 10 classes; give one a class"),
        (["train", "latin.toml"], "latin.toml: is not UTF-8 text (byte 9); save it as UTF-8"),
        (["list", "defences"], "list defences: there is no such kind; did you mean 'defenses'?"),
        (["discover", "rows.csv", "--set", "epoch=3"], "'epochs' is one of vfedcd, so add --method vfedcd"),
        (["list", "runs", "--in", "job.toml"], "--in job.toml: is a file; name the folder that holds the runs"),
        (["train", "job.toml", "--allow-model", "os.system"], "write it as package.module:factory"),
        (["align", "rows.csv", "job.toml", "--id", "shop=id"], "--id shop=id: no party is named 'shop'"),
        (["align", "rows.csv", "job.toml", "--id", "id", "--separator", ";;"], "';;': must be one character"),
        (["demo", "--out", "job.toml"], "job.toml: is a file; name a folder with --out"),
        (["discover", "pictures"], "pictures: is a folder; name the file in it that holds the table"),
        (["init", "new.toml", "pictures"], "pictures: holds no class folders; put each class's pictures into a folder"),
        (["predict", "run", "bank=rows.csv", "bank=rows.csv"], "bank=rows.csv: 'bank' has a file already; give one"),
        (["predict", "nowhere"], "nowhere: no such folder; `veracausa list runs` shows the runs"),
        (["export", "job.toml"], "job.toml: is a file; name the folder of a run"),
        (["report", "job.toml"], "job.toml: is a file; name the folder of a run"),
        (["discover", "rows.csv", "--engine", "quantum"], "--engine quantum: must be federated or floating"),
    ],
)
def test_a_wrong_word_is_named_in_plain_words(words: list[str], said: str) -> None:
    before = sorted(Path().rglob("*"))
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "job.toml", "--watch-port", "abc"], "'--watch-port': must be a whole number"),
        (["train", "job.toml", "--watch-port", "0"], "'--watch-port': must be at least 1"),
        (["train", "job.toml", "--watch-port", "70000"], "'--watch-port': must be at most 65535"),
        (["train", "job.toml", "--log-level", "loud"], "'--log-level': 'loud' is not one of 'debug', 'info'"),
        (["discover", "rows.csv", "--bootstrap", "-1"], "'--bootstrap': must be at least 0"),
    ],
)
def test_a_wrong_value_of_an_option_is_named_in_plain_words(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 2
    assert said in result.output


def test_a_file_where_a_folder_is_needed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["veracausa", "schema", "--out", "rows.csv/job.schema.json"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "rows.csv: is a file, and a folder is needed there; correct the path" in capsys.readouterr().err
