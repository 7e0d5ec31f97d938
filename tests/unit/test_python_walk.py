"""What the commands do, from Python: align, train, predict, write pages; and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import veracausa
from veracausa.errors import InputError

SETTINGS: dict[str, Any] = {
    "name": "walk",
    "data": {"name": "csv", "label": "good", "id": "id"},
    "parties": {"active": "bank", "passive": ["clinic"]},
    "training": {"protocol": "split", "epochs": 1, "batch_size": 16},
    "model": {"name": "mlp", "cut": 2, "hidden": [4, 4]},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw = random.Random(0)
    monkeypatch.chdir(tmp_path)
    bank, clinic = ["id,income,good"], ["id,age,weight"]
    for row in range(60):
        income = draw.randint(20, 90)
        bank.append(f"p{row},{income},{'yes' if income > 50 else 'no'}")
        clinic.append(f"p{row},{draw.randint(20, 80)},{draw.randint(50, 99)}")
    Path("bank.csv").write_text("\n".join(bank[:51]), encoding="utf-8")
    Path("clinic.csv").write_text("\n".join([clinic[0], *clinic[:10:-1]]), encoding="utf-8")
    return tmp_path


def test_align_train_predict_and_report(here: Path) -> None:
    found = veracausa.align({"bank": "bank.csv", "clinic": Path("clinic.csv")}, id="id")
    assert found["length"] == 40
    assert json.loads(Path("aligned/report.json").read_text(encoding="utf-8")) == found
    paths = {party: one["written"][0] for party, one in found["parties"].items()}
    job = {**SETTINGS, "party": {party: {"data": {"path": path}} for party, path in paths.items()}}
    run, other = veracausa.train(job, out="one"), veracausa.train(job, out="other", overrides=["seed=1"])

    by_path = veracausa.predict("one", paths, out="said.csv")
    assert by_path.ids == veracausa.predict(run, paths).ids
    assert len(by_path.labels) == 40
    assert Path("said.csv").read_text(encoding="utf-8").startswith("id,prediction")

    assert veracausa.report(run) == Path("one/report.html")
    assert veracausa.report("one", other, out="both.html") == Path("both.html")
    assert "other" in Path("both.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="--out is for a comparison"):
        veracausa.report("one", out="page.html")
    with pytest.raises(InputError, match="name at least one run"):
        veracausa.report()


@pytest.mark.parametrize(
    ("files", "id", "said"),
    [
        ({"bank": "bank.csv"}, "id", "at least two parties"),
        ({"bank": "bank.csv", "../clinic": "clinic.csv"}, "id", "cannot be a party's name"),
        ({"bank": "bank.csv", "clinic": "clinic.csv"}, {"bank": "id"}, "'clinic' has none"),
        ({"bank": "bank.csv", "clinic": "clinic.csv"}, "person", "person"),
    ],
)
def test_align_refuses_in_one_sentence_and_writes_nothing(here: Path, files: Any, id: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        veracausa.align(files, id)
    assert not Path("aligned").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"defenses": []}, "at least one"),
        ({"defenses": "laplase"}, "laplace"),
        ({"defenses": ["prune"], "budget": "soon"}, "soon"),
        ({"defenses": ["prune"], "cuts": [0]}, "--cuts 0"),
        ({"defenses": ["prune"], "accuracy": 0.9, "leakage": 0.1}, "ask for one of them"),
        ({"defenses": ["prune"], "overrides": ["training.protocol=blind"]}, "job: blind training sends no payload"),
    ],
)
def test_frontier_refuses_in_one_sentence_and_writes_nothing(here: Path, asked: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        veracausa.frontier(SETTINGS, **asked)
    assert not Path("frontiers").exists()
