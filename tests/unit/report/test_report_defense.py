"""The report of a run with a defense: diagnostics, risk, gates, surrogates, and what an audit found."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from veracausa.report.compare import compare, write_comparison
from veracausa.report.defense_figures import (
    CAPPED,
    DIAGNOSTICS,
    OWN,
    RISK,
    _chart,
    _in_all_directions,
    defense_figures,
    defense_warnings,
    example_strip,
    risk_notes,
)
from veracausa.report.run_page import read_run, write_report
from veracausa.runs.record import invre, numbers
from veracausa.runs.store import serialize_state

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"
EPOCHS = 5
pytestmark = [pytest.mark.xdist_group("report_defense"), pytest.mark.draws]


def defended(tmp_path: Path, name: str = "defended", **gates: bool) -> Path:
    """A run folder as a run with CausShield and an audit leaves it."""
    run = Path(shutil.copytree(EXAMPLE, tmp_path / name))
    lines = []
    for i, party in enumerate(("passive_1", "passive_2")):
        told = {"l_ssim": 0.83 - 0.4 * i, "ab_distance": 14.2, "structure_lost": i == 1, "colour_kept": False, **gates}
        said = {"party": party, "event": "prepared", "step": 0, "defense": "causshield", "seconds": 3.1, "gates": told}
        lines.append(said)
        for epoch in range(1, EPOCHS + 1):
            numbers = {name: 0.1 * n + 0.5 / (epoch + i) for n, name in enumerate(DIAGNOSTICS)}
            numbers |= {"my_own": epoch * 2.0}
            known = {"invre": 0.7 / (epoch + i), "invre_10": 0.01, "k": 31.0, "samples": 16.0, "exact": 1.0}
            risk = known if i == 0 else {"invre": None, "unavailable": "it rounds"}
            line = {"event": "defense", "epoch": epoch, "step": 10 * epoch, "defense": "causshield"}
            lines.append({"party": party, **line, "diagnostics": {**numbers, "broken": None}, "risk": risk})
    lines.append(
        {"party": "passive_1", "event": "risk", "step": 50, "risk": {"invre": 0.2, "samples": 8.0, "exact": 1.0}}
    )
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    pictures = torch.linspace(0, 255, 12 * 2 * 3 * 8 * 4).reshape(12, 2, 3, 8, 4).to(torch.uint8)
    kept = {"surrogates": {"rows": torch.zeros(40, 3, 8, 4), "examples": pictures}}
    (run / "parties/passive_1/prepared.safetensors").write_bytes(serialize_state(kept))
    (run / "parties/passive_2/prepared.safetensors").write_bytes(b"torn")
    summary = json.loads((run / "summary.json").read_text())
    scores = {"mse": 0.0213, "psnr": 17.1, "ssim": 0.61, "leakage": 0.62}
    summary["attacks"] = {
        "inverse": {
            **scores,
            "parties": {
                "passive_1": {
                    "train": {**scores, "blind_mse": 0.056},
                    "test": {**scores, "mse": 0.03, "leakage": 0.41},
                },
                "passive_2": {"train": {**scores, "leakage": 0.3}},
            },
        }
    }
    summary |= {"blind": {"mse": 0.055}, "strongest": {"attack": "inverse", "leakage": 0.62}}
    summary["parties"]["passive_1"] |= {"risk": {"invre": 0.2, "samples": 8.0, "exact": 1.0, "given": "the rest"}}
    summary["parties"]["passive_1"]["risk_seconds"] = 1.25
    summary["parties"]["passive_1"]["diagnostics"] = {"drift": 0.15}
    summary["parties"]["passive_2"]["risk"] = {"unavailable": "it rounds"}
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def plain(page: Path) -> str:
    return re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of such a run; drawing its charts takes seconds."""
    return write_report(defended(tmp_path_factory.mktemp("runs")))


def test_every_diagnostic_has_a_chart_and_a_sentence(page: Path) -> None:
    text = plain(page)
    for name, sentence in DIAGNOSTICS.items():
        assert f">{'CKA' if name == 'cka' else name.replace('_', ' ').capitalize()}<" in text
        assert sentence.replace("'", "&#39;") in text
    assert OWN.replace("'", "&#39;") in text
    assert "My own" in text
    assert RISK.replace("'", "&#39;") in text
    assert text.count("<svg") == 3 + len(DIAGNOSTICS) + 2
    assert "InvRE at passive_2 has no value: it rounds." in text
    assert "in all directions of 8 rows, which took 1.2 s, InvRE at passive_1 is 0.20." in text
    assert "At passive_1 that holds the rest." in text


def test_the_chart_of_the_risk_shows_what_the_summary_calls_invre(tmp_path: Path) -> None:
    run = read_run(defended(tmp_path))
    charts = [figure for figure in defense_figures(run) if figure.sentence == RISK]
    assert len(charts) == 1
    points = [numbers(record["risk"])["invre"] for record in run.measured["passive_1"]]
    assert points[0] == 0.7
    drawn = _chart("", _in_all_directions(run.measured), "risk", "invre")
    assert drawn is not None
    assert [[value for _, value in curve.points] for curve in drawn.curves] == [points]


def test_capped_figures_of_an_earlier_version_are_not_shown_as_invre(tmp_path: Path) -> None:
    path = defended(tmp_path)
    text = (path / "metrics.jsonl").read_text().replace('"exact": 1.0', '"exact": 0.0, "k_capped": 1.0')
    (path / "metrics.jsonl").write_text(text)
    summary = json.loads((path / "summary.json").read_text())
    summary["parties"]["passive_1"]["risk"] = {"invre": 0.01, "exact": 0.0, "k_capped": 1.0, "samples": 32.0}
    (path / "summary.json").write_text(json.dumps(summary))
    run = read_run(path)
    assert not [figure for figure in defense_figures(run) if figure.sentence == RISK]
    assert CAPPED in risk_notes(run)
    assert not any("0.01" in note for note in risk_notes(run) if note != CAPPED)
    assert invre({"invre": 0.4, "exact": 0.0, "k_capped": 0.0}) == 0.4  # no direction was left out
    assert invre({"invre": 0.4}) is None


def test_bad_surrogates_are_warned_of(page: Path, tmp_path: Path) -> None:
    text = plain(page)
    assert "At passive_2 the surrogates have lost the structure of the rows" in text
    assert "At passive_1 the surrogates have" not in text
    both = defense_warnings(read_run(defended(tmp_path, "both", colour_kept=True)))
    assert sum("kept most of the colour" in warning for warning in both) == 2


def test_a_party_that_was_moved_too_far_is_warned_of(tmp_path: Path) -> None:
    run = defended(tmp_path)
    metrics = run / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for line in lines:
        if line.get("event") == "defense":  # one party comes back in the end, the other one does not
            line["diagnostics"]["cka"] = 0.17 if line["party"] == "passive_2" or line["epoch"] < EPOCHS else 0.82
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    moved = [warning for warning in defense_warnings(read_run(run)) if "CKA" in warning]
    assert len(moved) == 1
    assert "What passive_2 sends has little left of what its bottom model learnt (CKA 0.17)" in moved[0]


def test_rows_and_surrogates_are_shown_in_pairs(page: Path) -> None:
    run = page.parent
    strip = example_strip(run, "passive_1")
    assert strip is not None
    assert strip in page.read_text()
    image = Image.open(io.BytesIO(base64.b64decode(strip.partition("base64,")[2])))
    assert image.size == (6 * (8 * 5 - 1), 6 * 17)  # eight pairs, a gap of a pixel, six times as large
    assert image.convert("RGBA").getpixel((0, 0)) == (0, 3, 7, 255)
    assert example_strip(run, "passive_2") is None  # a torn file
    assert example_strip(run, "active") is None


def test_what_an_audit_found_leads(page: Path) -> None:
    text = plain(page)
    assert "The strongest attack, inverse, reads 62 % of what a blind guess misses (last model only)." in text
    assert "<dt>leakage, last model</dt><dd>62 %</dd>" in text
    assert text.count('<th scope="row">inverse</th>') == 3
    assert '<td class="n" data-label="MSE of a blind guess">0.056</td>' in text
    assert text.count('<td class="n" data-label="MSE of a blind guess">0.055</td>') == 2


def test_a_run_without_any_of_it_has_no_such_section(tmp_path: Path) -> None:
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "plain"))
    text = write_report(run).read_text()
    assert ">Defense</h3>" not in text
    assert ">Leakage</h2>" not in text
    assert read_run(run).leakage is None


def test_runs_are_compared_by_what_leaks_and_drifts(tmp_path: Path) -> None:
    runs = [defended(tmp_path), Path(shutil.copytree(EXAMPLE, tmp_path / "plain"))]
    rows = compare(runs)
    assert [(row["leakage"], row["drift"]) for row in rows] == [(0.62, pytest.approx(0.15)), (None, None)]
    text = plain(write_comparison(runs, tmp_path / "both.html"))
    assert '<td class="n" data-label="read of a training row">62 % (last model)</td>' in text
    assert text.count('<td class="n" data-label="read of a training row">not audited</td>') == 1
    assert '<td class="n" data-label="read of a predicted row">not audited</td>' in text
    assert '<th class="n">drift</th>' in text
    again = write_comparison([runs[1], shutil.copytree(EXAMPLE, tmp_path / "other")], tmp_path / "none.html")
    assert "drift" not in again.read_text()
