"""What a report says of an audit: the verdict first, the gate, guesses without payloads, and what is missing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from veracausa.audit.measure import Gallery
from veracausa.report.audit_figures import AuditPoint, frontier_svg, moments_svg, wall
from veracausa.report.audit_section import strength_rows, trivial_rows
from veracausa.report.compare import write_comparison
from veracausa.report.run_page import write_report
from veracausa.runs.folder import write_json

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


def entry(leakage: float, **more: Any) -> dict[str, Any]:
    scores = {"mse": 0.05 * (1 - leakage), "psnr": 15.0, "ssim": leakage, "leakage": leakage, "blind_mse": 0.05}
    train = {**scores, "samples": 40, "blind": "class mean", "trivial": {"grey": 0.2, "class mean": 0.05}}
    moments = [{"moment": 0.1, "train": leakage / 2}, {"moment": 1.0, "train": leakage}]
    party = {"train": train, "test": train, "auxiliary": 20, "moments": moments}
    return {**scores, "party": "passive_1", "granted": ["auxiliary"], "parties": {"passive_1": party}, **more}


def twin(leakage: float) -> dict[str, Any]:
    return {"leakage": leakage, "parties": {"passive_1": {"train": leakage}}}


def audited(tmp_path: Path, name: str = "run", **status: Any) -> Path:
    run = Path(shutil.copytree(EXAMPLE, tmp_path / name))
    attacks = {
        "inverse": entry(0.6, works=True, undefended=twin(0.9), settings={"epochs": 12, "channels": 16}),
        "unsplit": entry(0.0, works=False, undefended=twin(0.0)),
    }
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"attacks": attacks, "strongest": {"attack": "inverse", "leakage": 0.6}}
    summary["verdict"] = "Behind noise the strongest attack, inverse, reads 60 %."
    write_json(run / "summary.json", summary)
    write_json(run / "status.json", {**json.loads((run / "status.json").read_text()), **status})
    return run


def plain(page: Path) -> str:
    return re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))


def test_the_verdict_leads_and_an_attack_that_does_not_work_is_named(tmp_path: Path) -> None:
    text = plain(write_report(audited(tmp_path)))
    assert '<h1 class="bad">Most of the rows can be read from what was sent: 60 %.</h1>' in text
    assert '<p class="lead">Behind noise the strongest attack, inverse, reads 60 %.</p>' in text
    assert "veracausa frontier RUN/config.toml" in text
    assert "unsplit is not working here:" in text
    assert '<td class="n" data-label="undefended" data-value="0.9">90 %</td>' in text
    assert "epochs 12, channels 16, 20 auxiliary rows" in text
    assert "Leakage over the training (inverse)" in text
    assert "The audit broke off" not in text


def test_an_audit_that_broke_off_says_so(tmp_path: Path) -> None:
    failed = audited(tmp_path, audit={"state": "failed", "error": "no memory"})
    assert "The audit broke off: no memory." in plain(write_report(failed))
    running = audited(tmp_path, "other", audit={"state": "running"})
    assert "The audit has not finished." in plain(write_report(running))
    empty = Path(shutil.copytree(EXAMPLE, tmp_path / "empty"))
    write_json(empty / "status.json", {"state": "done", "audit": {"state": "failed", "error": "at once"}})
    assert "The audit broke off: at once." in plain(write_report(empty))


def test_guesses_without_payloads_and_strengths_are_listed() -> None:
    assert trivial_rows({"inverse": entry(0.5)}) == [("class mean", "passive_1", "0.05"), ("grey", "passive_1", "0.2")]
    assert trivial_rows({"inverse": {}}) == []
    assert strength_rows({"unsplit": {"settings": {"main": 10}, "seconds": 3.2}}) == [("unsplit", "main 10, 3 s")]


def test_runs_that_were_audited_are_points(tmp_path: Path) -> None:
    runs = [audited(tmp_path), audited(tmp_path, "second")]
    assert "Better is further up and further left" in plain(write_comparison(runs, tmp_path / "both.html"))
    one = [runs[0], Path(shutil.copytree(EXAMPLE, tmp_path / "plain"))]
    assert "further left" not in plain(write_comparison(one, tmp_path / "one.html"))


@pytest.mark.draws
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_frontier_names_every_point(count: int) -> None:
    svg = frontier_svg([AuditPoint(f"run {i}", 0.5, 0.9) for i in range(count)])
    assert all(f"run {i}" in svg for i in range(count))


def test_curves_need_two_moments() -> None:
    assert list(moments_svg({"inverse": entry(0.5), "unsplit": {}}, {})) == ["inverse"]
    assert moments_svg({"inverse": {"parties": {"a": {"moments": [{"moment": 1.0, "train": 0.5}]}}}}, {}) == {}


def test_the_wall_shows_the_best_read_rows_first_and_survives_a_torn_file(tmp_path: Path) -> None:
    truth = torch.zeros(20, 1, 8, 4)
    mse = torch.linspace(0.2, 0.01, 20)
    gallery = Gallery.of(torch.arange(100, 120), truth, truth + 0.5, truth, mse)
    gallery.write(tmp_path / "attacks" / "inverse" / "pictures-bank.safetensors")
    gallery.write(tmp_path / "twin" / "attacks" / "inverse" / "pictures-bank.safetensors")
    found = wall(tmp_path, "bank", ["inverse"], "inverse", defended=True)
    assert found is not None
    assert [name for name, _ in found.rows] == ["original", "inverse, undefended", "inverse, defended", "blind guess"]
    assert (found.worst, found.shown) == (8, 12)
    assert wall(tmp_path, "shop", ["inverse"], "inverse", defended=True) is None
    (tmp_path / "attacks" / "inverse" / "pictures-bank.safetensors").write_bytes(b"torn")
    assert wall(tmp_path, "bank", ["inverse"], "inverse", defended=True) is None


def test_large_galleries_are_bounded() -> None:
    pictures = torch.zeros(600, 3, 64, 64)
    kept = Gallery.of(torch.arange(600), pictures, pictures, pictures, torch.zeros(600))
    assert 3 * kept.truth.numel() <= 8 << 20
    assert len(kept.positions) == len(kept.truth) == len(kept.mse)
