"""The demo's page: what the verdict says of the figures, and whose pictures stand below each other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from told_graph import written
from veracausa.audit.measure import Gallery
from veracausa.report.demo_page import DemoRead, demo_read, demo_rows, demo_verdict, graph_sentence, write_demo_page
from veracausa.runs.folder import write_json

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"
PARTIES = ("passive_1", "passive_2")


def run(path: Path, attack: str, first: int, **told: Any) -> Path:
    """A run that says it was attacked, with strips of 8 pictures from position `first` on."""
    shutil.copytree(EXAMPLE, path)
    rng = torch.Generator().manual_seed(first)
    for party in PARTIES:
        truth, guess, blind = torch.rand(3, 8, 1, 8, 4, generator=rng)
        gallery = Gallery.of(torch.arange(first, first + 8), truth, guess, blind, torch.zeros(8))
        gallery.write(path / "attacks" / attack / f"pictures-{party}.safetensors")
    summary = (path / "summary.json").read_text(encoding="utf-8")
    write_json(path / "summary.json", {**json.loads(summary), **told})
    return path


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    split = run(tmp_path / "split", "inverse", 0, strongest={"attack": "inverse", "leakage": 0.8})
    situations = [
        {"as_run": True, "split": "train", "leakage": 0.01},
        {"as_run": True, "split": "train", "leakage": 0.02},
        {"as_run": False, "split": "train", "leakage": 0.9},
        {"as_run": True, "split": "test", "leakage": 0.3},
    ]
    told = {"blind_audit": {"situations": situations}, "blind_training": {"numbers": 9}}
    return split, run(tmp_path / "blind", "sum_regression", 3, protocol="blind", **told)


def test_the_verdict_takes_the_worst_of_what_ran(both: tuple[Path, Path]) -> None:
    read = demo_read(*both)
    assert read == DemoRead(0.8, 0.02, 0.3)
    assert "80 % of the training pictures in split training, and 2 % in blind training" in demo_verdict(read)
    assert {row[0]: row[1:] for row in demo_rows(*both)}["opened of a predicted picture"][1] == "9 numbers"


def test_the_verdict_admits_what_did_not_work() -> None:
    assert "did not protect" in demo_verdict(DemoRead(0.1, 0.4, 0.0))
    assert "unknown" in demo_verdict(DemoRead(None, 0.4, 0.0))


def test_the_page_shows_pictures_that_both_attacks_read(both: tuple[Path, Path], tmp_path: Path) -> None:
    graph = written(tmp_path / "graph", truth=True, parties=True)
    page = write_demo_page(*both, graph.path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<h1>{demo_verdict(demo_read(*both))}</h1>" in page
    # The picture, both readings and the guess; nothing was kept of the scores.
    assert page.count("data:image/png") == 4
    assert 'aria-label="The causal graph"' in page
    assert graph_sentence(graph.path) in page
    assert 'href="blind/report.html"' in page


def test_parties_that_kept_other_pictures_are_not_put_together(both: tuple[Path, Path], tmp_path: Path) -> None:
    kept = both[0] / "attacks" / "inverse" / "pictures-passive_2.safetensors"
    shutil.copy(both[1] / "attacks" / "sum_regression" / "pictures-passive_2.safetensors", kept)
    graph = written(tmp_path / "graph", truth=True, parties=True)
    page = write_demo_page(*both, graph.path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "data:image/png" not in page
