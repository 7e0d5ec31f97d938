"""What a notebook shows: harmless whatever a folder says, without a script, readable on white and on black."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import veracausa
from told_graph import written
from veracausa.runs.folder import Run
from veracausa.training.predict import Predictions

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>\x1b[2J\u202e{{ 7*7 }}'


class Shown(HTMLParser):
    """Collects what a browser would run or load, and checks that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [value or "" for name, value in attrs if name == "style"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def harmless(html: str | None) -> Shown:
    assert html is not None
    shown = Shown(html)
    assert not shown.tags & {"script", "img", "iframe", "object", "link", "style", "a", "form", "input"}
    assert not {name for name in shown.attributes if name.startswith("on") or name in ("href", "src", "id")}
    assert not [style for style in shown.styles if "url(" in style or "background" in style]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", html)
    return shown


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example"))


def rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_run_shows_its_verdict_its_figures_and_what_to_do_next(run_dir: Path) -> None:
    run = Run(run_dir)
    shown = harmless(run._repr_html_())
    assert "test accuracy" in shown.text
    assert "veracausa audit" in shown.text
    assert str(run_dir.parents[1]) not in shown.text, "a notebook is passed on"
    assert re.fullmatch(r"Run\('.*example': done, test accuracy 0\.\d+.*\)", repr(run))


def test_an_audited_run_shows_each_attack(run_dir: Path) -> None:
    entry = {"leakage": 0.62, "party": "passive_1", "works": True}
    strongest = {"attack": "inverse", "leakage": 0.62, "party": "passive_1"}
    rewrite(run_dir / "summary.json", attacks={"inverse": entry}, strongest=strongest, verdict="Reads 62 %.")
    shown = harmless(Run(run_dir)._repr_html_())
    assert "Most of the rows of passive_1 can be read from what was sent: 62 %." in shown.text
    assert "inverse passive_1 62.0 %" in " ".join(shown.text.split())
    assert "leakage 0.62" in repr(Run(run_dir))


def test_what_a_folder_says_stays_text(run_dir: Path) -> None:
    entry = {"leakage": 0.62, "party": EVIL}
    strongest = {"attack": EVIL, "leakage": 0.62, "party": EVIL}
    parties = {EVIL: {"role": EVIL, "messages": 1, "bytes_sent": 1}}
    rewrite(
        run_dir / "summary.json",
        attacks={EVIL: entry},
        strongest=strongest,
        verdict=EVIL,
        parties=parties,
        data=EVIL,
        model=EVIL,
        protocol=EVIL,
        baselines={EVIL: {"accuracy": 1}, "active_only": {"accuracy": 1}},
    )
    shown = harmless(Run(run_dir)._repr_html_())
    assert "<script>alert(1)</script>" in shown.text, "it is seen as it is written, and not left out"
    rewrite(run_dir / "summary.json", strongest={})
    harmless(Run(run_dir)._repr_html_())
    for state in ("failed", "stopped", EVIL):
        rewrite(run_dir / "status.json", state=state, error=EVIL, epoch=EVIL, epochs=EVIL)
        harmless(Run(run_dir)._repr_html_())
        assert "\x1b" not in repr(Run(run_dir))
        assert "\u202e" not in repr(Run(run_dir))


@pytest.mark.parametrize("broken", ["{", "[1]", '{"test": 3, "parties": [], "attacks": {"a": null}}', "null"])
def test_a_damaged_folder_breaks_no_notebook(run_dir: Path, broken: str) -> None:
    (run_dir / "summary.json").write_text(broken)
    assert repr(Run(run_dir)).startswith("Run(")
    html = Run(run_dir)._repr_html_()
    assert html is None or harmless(html)


def test_a_discovery_shows_its_graph_and_its_edges(tmp_path: Path) -> None:
    run = written(tmp_path / "run", parties=True)
    shown = harmless(run._repr_html_())
    assert "3 edges among 4 attributes of 2 parties" in shown.text
    assert "svg" in shown.tags
    assert "age — bmi +0.42 12 % rises" in " ".join(shown.text.split())
    assert "lab: crp" in shown.text
    assert repr(run).endswith("run': done, 3 edges among 4 attributes)")


def test_columns_and_an_audit_of_a_discovery_stay_text(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    in_csv, in_json = '"' + EVIL.replace('"', '""') + '"', json.dumps(EVIL)
    for name in ("edges.csv", "strengths.csv"):
        text = (run.path / name).read_text()
        (run.path / name).write_text(in_csv.join(re.split(r"\bcrp\b", text)))
    summary = run.path / "summary.json"
    summary.write_text(summary.read_text().replace('"crp"', in_json))
    (run.path / "audit").mkdir()
    said = {"headline": f"Read: {EVIL}", "learned": {EVIL: EVIL}}
    (run.path / "audit" / "summary.json").write_text(json.dumps(said))
    shown = harmless(run._repr_html_())
    assert "Audit: Read: <script>alert(1)</script>" in shown.text


def test_a_discovery_that_is_not_there_yet(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    (run.path / "summary.json").unlink()
    rewrite(run.path / "status.json", state="running")
    assert "not finished: running" in harmless(run._repr_html_()).text
    assert repr(run).endswith(": running)")


def test_predictions_show_the_first_rows() -> None:
    outputs = torch.tensor([[0.25, 0.75]] * 7)
    found = Predictions((EVIL, *"bcdefg"), ("no", EVIL), outputs, {"accuracy": 0.5})
    shown = harmless(found._repr_html_())
    assert "7 predicted rows" in shown.text
    assert shown.text.count("0.750") == 5
    assert repr(found) == "Predictions(7 rows, 2 classes, accuracy 0.5)"
    of_values = Predictions(("a",), (), torch.tensor([3.25]), {})
    assert "a 3.25" in " ".join(harmless(of_values._repr_html_()).text.split())


def test_it_is_what_the_public_names_return() -> None:
    for thing in (veracausa.Run, veracausa.DiscoveryRun, Predictions):
        assert callable(getattr(thing, "_repr_html_", None))
