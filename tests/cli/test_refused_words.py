"""What the commands say of a wrong word: in plain words, with the fix, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.errors import InputError

JOB = 'data = { name = "digits" }\nmodel = { name = "convnet", cut = 3 }\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    Path("job.toml").write_text(JOB)
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
        (["discover", "rows.csv", "--engine", "quantum"], "must be 'one place' or 'federated'"),
    ],
)
def test_a_wrong_word_is_named_in_plain_words(words: list[str], said: str) -> None:
    before = sorted(Path().rglob("*"))
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert sorted(Path().rglob("*")) == before
