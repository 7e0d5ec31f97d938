"""The pages of runs: what a folder says, also of a run that failed, and several runs side by side."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.report.compare import compare, differences, write_comparison
from veracausa.report.figures import number
from veracausa.report.page import format_bytes, format_seconds
from veracausa.report.run_page import headline, read_run, write_report

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example"))


def rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class Page(HTMLParser):
    """Collects what would be loaded, and checks that what is opened is closed."""

    VOID = frozenset({"meta", "link", "br", "path", "use", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.draws
def test_a_finished_run(run_dir: Path) -> None:
    page = write_report(run_dir)
    text = page.read_text(encoding="utf-8")
    assert page == run_dir / "report.html"
    assert (
        "Three parties trained convnet on digits: test accuracy 96.2 %; the active party alone reaches 71.2 %." in text
    )
    assert "not encrypted" in text
    assert "a defense was on at passive_2, none at passive_1" in re.sub(r"\s+", " ", text)
    assert "payload 413–512 × 16 × 8 × 3" in text
    assert "1,797 images of 8 × 8 pixels" in text
    assert text.count("<svg") == 3
    for image in ("curves.png", "bytes.png"):
        assert (run_dir / "images" / image).read_bytes().startswith(b"\x89PNG")
    assert not list(run_dir.rglob("*.partial"))


@pytest.mark.draws
def test_the_page_needs_nothing_but_itself(run_dir: Path) -> None:
    text = write_report(run_dir).read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.scripts == 0
    assert all(load.startswith(("#", "data:")) for load in page.loads)
    assert not re.search(r"url\((?!#)|@import|https?://", text)


def test_a_failed_run_says_so_and_shows_what_was_finished(run_dir: Path) -> None:
    (run_dir / "summary.json").unlink()
    rewrite(run_dir / "status.json", state="failed", epoch=3, error="lost party 'passive_2': silent for 120 s")
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()[:6]
    (run_dir / "metrics.jsonl").write_text("\n".join(lines) + '\n{"event": "epo')
    text = write_report(run_dir).read_text(encoding="utf-8")
    assert "The run failed in epoch 3 of 12: lost party &#39;passive_2&#39;: silent for 120 s." in text
    assert "not a final result" in text
    assert "<svg" in text
    # The job still tells which defense was on: a failed run must not claim that there was none.
    assert "a defense was on at passive_2" in text


def test_a_run_that_is_not_finished(run_dir: Path) -> None:
    for name in ("summary.json", "environment.json"):
        (run_dir / name).unlink()
    shutil.rmtree(run_dir / "parties")
    rewrite(run_dir / "status.json", state="running", epoch=4)
    text = write_report(run_dir).read_text(encoding="utf-8")
    assert "The run is not finished in epoch 4 of 12" in text
    assert "not a final result" in text


def test_a_folder_with_nothing_but_a_job(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes((EXAMPLE / "config.toml").read_bytes())
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "No epoch was recorded" in text


def test_what_was_not_recorded_is_not_called_undefended(run_dir: Path) -> None:
    (run_dir / "config.toml").unlink()
    (run_dir / "summary.json").unlink()
    text = write_report(run_dir).read_text(encoding="utf-8")
    assert "no defense was on" not in text
    assert "was not recorded" in text


@pytest.mark.draws
def test_names_are_escaped(run_dir: Path) -> None:
    evil = "<script>alert(1)</script>"
    summary = json.loads((run_dir / "summary.json").read_text())
    summary["parties"][evil] = {**summary["parties"].pop("passive_1"), "defense": evil}
    summary |= {"data": evil, "model": evil, "notes": [evil], "baselines": {evil: {"accuracy": 0.5}}}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    rewrite(run_dir / "environment.json", cpu=evil)
    with (run_dir / "parties" / "active" / "ledger.jsonl").open("a") as ledger:
        ledger.write(json.dumps({"step": 9, "to": evil, "kind": evil, "shape": {evil: [1]}, "bytes": 10**9}) + "\n")
    with (run_dir / "config.toml").open("a") as config:
        config.write(f'\n[more]\nx = "{evil}"\n')
    text = write_report(run_dir).read_text(encoding="utf-8")
    assert Page(text).scripts == 0
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_dollar_signs_are_no_formula(run_dir: Path) -> None:
    rewrite(run_dir / "summary.json", baselines={"cheap $\\bad{$": {"accuracy": 0.5}})
    assert "cheap $" in write_report(run_dir).read_text(encoding="utf-8")


def test_unknown_events_and_numbers_that_are_none_are_passed_over(run_dir: Path) -> None:
    with (run_dir / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"event": "epoch", "party": "active", "epoch": 13, "train": {"loss": NaN}, "test": null}\n')
        metrics.write('{"event": "epoch", "party": "passive_1", "epoch": 13, "train": {"loss": 77}}\n[1]\n"x"\n')
    run = read_run(run_dir)
    assert len(run.epochs) == 13
    assert run.epochs[-1]["party"] == "active"
    write_report(run_dir)


def test_regression(run_dir: Path) -> None:
    scores = {"loss": 0.3, "rmse": 0.55, "mae": 0.4, "r2": 0.7}
    rewrite(run_dir / "summary.json", test=scores, validation=scores, baselines={"active_only": {"rmse": 0.9}})
    record = {"event": "epoch", "party": "active", "epoch": 1, "train": {"loss": 0.5}, "test": scores}
    (run_dir / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    text = write_report(run_dir).read_text(encoding="utf-8")
    assert "test RMSE 0.55; the active party alone reaches 0.9." in text
    assert "R²" in text


def test_a_single_epoch_has_no_fractions_of_one(run_dir: Path) -> None:
    first = (run_dir / "metrics.jsonl").read_text().splitlines()[0]
    (run_dir / "metrics.jsonl").write_text(first + "\n")
    text = write_report(run_dir).read_text(encoding="utf-8")
    assert not re.search(r">(0\.9|1\.0)\d*</text>", text)


def test_a_later_record_of_an_epoch_wins(run_dir: Path) -> None:
    with (run_dir / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"event": "epoch", "party": "active", "epoch": 12, "test": {"accuracy": 0.5}}\n')
    (run_dir / "summary.json").unlink()
    assert read_run(run_dir).scores == {"accuracy": 0.5}


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder; `veracausa list runs`"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a run folder"):
        write_report(tmp_path)


def test_the_headline_counts_the_parties(run_dir: Path) -> None:
    summary = json.loads((run_dir / "summary.json").read_text())
    for i in range(3, 15):
        summary["parties"][f"passive_{i}"] = summary["parties"]["passive_1"]
    (run_dir / "summary.json").write_text(json.dumps(summary))
    assert headline(read_run(run_dir)).startswith("15 parties trained")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_999, "1 MB"), (1_376_912, "1.38 MB"), (5e13, "50 TB")],
)
def test_bytes_are_decimal(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.97, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_what_counts_as_a_number() -> None:
    assert [number(value) for value in (1, 0.5, float("nan"), "1", None)] == [1.0, 0.5, None, None, None]


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / name)) for name in ("first", "second")]
    config = runs[1] / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.001", "lr = 0.01").replace("cut = 6", "cut = 3"))
    return runs


def test_one_row_a_run(two_runs: list[Path]) -> None:
    first, second = compare(two_runs)
    assert (first["name"], first["cut"], second["cut"]) == ("first", 6, 3)
    assert first["defense"] == "laplace, none"
    assert first["test"]["accuracy"] == pytest.approx(0.962, abs=1e-3)
    assert first["bytes_sent"] == second["bytes_sent"] > 0


def test_only_settings_that_differ_are_shown(two_runs: list[Path], tmp_path: Path) -> None:
    text = write_comparison(two_runs, tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
    assert "training.optimizer.lr" in text
    assert "model.cut" in text
    assert "batch_size" not in text
    assert "2 runs compared" in text


def test_a_setting_that_one_job_lacks_differs() -> None:
    assert differences([{"a": {"b": 1}, "c": 2}, {"c": 2}]) == {"a.b": [1, None]}


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / parent / "same")) for parent in ("a", "b")]
    assert len({row["name"] for row in compare(runs)}) == 2


def test_names_of_compared_runs_are_escaped(tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / name)) for name in ("<b>x", "y")]
    assert "<b>x" not in write_comparison(runs, tmp_path / "c.html").read_text(encoding="utf-8")


def test_one_run_is_no_comparison(two_runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs two runs or more, and only first is given"):
        write_comparison([two_runs[0], two_runs[0]], tmp_path / "c.html")


def test_runs_that_tie_are_both_named(two_runs: list[Path], tmp_path: Path) -> None:
    text = write_comparison(two_runs, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "highest test accuracy 96.2 %, by first and second." in text


def test_no_run_is_best_across_different_data(two_runs: list[Path], tmp_path: Path) -> None:
    summary = two_runs[1] / "summary.json"
    summary.write_text(summary.read_text(encoding="utf-8").replace('"data": "digits"', '"data": "mnist"'))
    text = write_comparison(two_runs, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<h1>2 runs compared.</h1>" in text
