"""What a party of a blind training sees on its screen before it says yes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

pytest.importorskip("nvflare")

from veracausa.cli import console
from veracausa.cli.federation.site import show_terms
from veracausa.federation.consent import Agreement, Terms
from veracausa.federation.site_program import party_program

JOB: dict[str, Any] = {
    "name": "risk",
    "data": {"name": "csv", "label": "y", "id": "id"},
    "training": {"protocol": "blind"},
    "blind": {"epsilon": 4.0, "labels": "private", "label_epsilon": 2.0},
    "parties": {"active": "bank", "passive": ["lab", "shop"]},
    "runtime": {"device": "cpu"},
}


def screen(folder: Path, monkeypatch: pytest.MonkeyPatch, me: str = "lab", **blind: Any) -> str:
    folder.mkdir()
    job = {**JOB, "blind": {**JOB["blind"], **blind}}
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    (folder / "own.csv").write_text("id,age,y\n" + "".join(f"{n},{n * 7 % 11},{n % 2}\n" for n in range(1200)))
    (folder / "party.toml").write_text(tomli_w.dumps({"data": {"path": str(folder / "own.csv"), "columns": ["age"]}}))
    program = party_program(folder, me)
    own = Terms(b"", program.job_text, program.declared, program.data_digest)
    text = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=text, width=220))
    show_terms(Agreement(me, own, {}, {}), program)
    return text.getvalue()


def test_the_screen_says_what_crosses_and_what_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(tmp_path / "lab", monkeypatch)
    assert "sums over up to 1,200 rows, epsilon = 4 (delta = 1e-05); at prediction" in shown
    assert "private: bank's leave once, randomised, epsilon = 2 a label" in shown
    assert "auto, by the job: learnt at home" in shown
    assert "second heads" in shown
    for kind in ("moment_query", "moment_share", "answer"):
        assert kind in shown
    assert "representation" not in shown


def test_the_active_party_knows_how_many_numbers_a_row_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "at prediction 1 number a row" in screen(tmp_path / "bank", monkeypatch, "bank")


def test_an_unencrypted_run_is_shouted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "UNENCRYPTED" in screen(tmp_path / "lab", monkeypatch, encryption="none")
