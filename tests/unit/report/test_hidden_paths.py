"""Pages do not say where on a machine somebody worked, and say everything else as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from markupsafe import Markup

from veracausa.report.compare import write_comparison
from veracausa.report.hidden_paths import shown, without_paths
from veracausa.report.run_page import write_report

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/srv/ada/study/train.csv: no such file", "…/train.csv: no such file"),
        ('path = "/srv/Ada Lovelace/study/train.csv"', 'path = "…/train.csv"'),
        ("'C:\\\\Users\\\\ada\\\\train.csv'", "'…/train.csv'"),
        ("C:\\Users\\ada\\train.csv is cut", "…/train.csv is cut"),
        ("see file:///srv/ada/x.html", "see …/x.html"),
        ("~/.cache/veracausa/lpips has no file", "…/lpips has no file"),
        ("(/a/b/c) and /d/e", "(…/c) and …/e"),
        ("data/train.csv, 5/10/2020, km/h, and/or, ../x/y", "data/train.csv, 5/10/2020, km/h, and/or, ../x/y"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("a / b", "a / b"),
        ("/", "/"),
    ],
)
def test_folders_are_cut_from_texts(text: str, said: str) -> None:
    assert without_paths(text) == said


def test_a_home_with_a_space_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "Ada Lovelace"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert without_paths(f"{home}/study/train.csv is cut") == "…/train.csv is cut"


def test_markup_numbers_and_pictures_stay() -> None:
    picture = "data:image/png;base64,/a/b/c+/d/e"
    assert shown(picture) == picture
    assert shown(Markup("<b>/a/b/c</b>")) == "<b>/a/b/c</b>"
    assert (shown(3), shown(None), shown(["/a/b/c"])) == (3, None, "['…/c']")


def test_no_page_of_a_run_says_where_it_lies(tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / parent / "same")) for parent in ("a", "b")]
    for run in runs:
        config = run / "config.toml"
        config.write_text(config.read_text().replace("[data]", f'[data]\npath = "{run}/in.csv"'))
        summary = json.loads((run / "summary.json").read_text())
        summary["notes"] = [f"{run}/in.csv holds a subset"]
        summary["baselines"] = {"joint": {"accuracy": 0.5, "note": f"see {run}/in.csv"}}
        (run / "summary.json").write_text(json.dumps(summary))
        status = json.loads((run / "status.json").read_text())
        (run / "status.json").write_text(json.dumps({**status, "state": "failed", "error": f"{run}/in.csv: is gone"}))
    pages = [write_report(runs[0]), write_comparison(runs, tmp_path / "both.html")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert "…/in.csv" in text
    # Two of one name are told apart without saying where they lie.
    assert ">a/same" in pages[1].read_text(encoding="utf-8")
