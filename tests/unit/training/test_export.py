"""Exported parts, run one after the other by ONNX's reference evaluator, predict what the run predicts."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import Names
from typer.testing import CliRunner

import veracausa
from veracausa.cli.main import app
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.errors import InputError
from veracausa.runs.folder import Run
from veracausa.training.export import TOLERANCE, export_run

pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")

DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "train": 64, "test": 16},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 1},
}


def joint(run: Run, folder: Path) -> np.ndarray:
    """Probabilities of the test rows from the files alone."""
    from onnx.reference import ReferenceEvaluator

    data = load(run.job)
    told = json.loads((folder / data.active / "top.json").read_text())
    payloads = {}
    for name in told["input"]:
        party = name.removeprefix("payload_")
        part = data.parties[party].part("test")
        rows = part.take(torch.arange(part.length)).numpy()
        (payloads[name],) = ReferenceEvaluator(str(folder / party / "bottom.onnx")).run(None, {"rows": rows})
        assert list(payloads[name].shape[1:]) == told["input"][name]
    (outputs,) = ReferenceEvaluator(str(folder / data.active / "top.onnx")).run(None, payloads)
    assert told["classes"] == list(data.classes)
    return np.asarray(torch.from_numpy(outputs).softmax(1))


def test_pictures_predict_as_the_run_does(tmp_path: Path) -> None:
    run = veracausa.train(DIGITS, out=tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(run.path), "--json"])
    assert done.exit_code == 0, done.output
    parts = json.loads(done.stdout.splitlines()[-1])["parts"]
    assert [Path(part["path"]).relative_to(run.path).as_posix() for part in parts] == [
        "onnx/passive_1/bottom.onnx",
        "onnx/passive_2/bottom.onnx",
        "onnx/active/top.onnx",
    ]
    assert max(part["difference"] for part in parts) <= TOLERANCE
    np.testing.assert_allclose(joint(run, run.path / "onnx"), run.predict().outputs.numpy(), atol=1e-5)


@pytest.mark.slow
def test_tables_with_an_active_party_that_has_columns(tmp_path: Path) -> None:
    draw = random.Random(0)
    for party, head in (("bank", "id,income,good"), ("shop", "id,spent,kind")):
        lines = [head]
        for i in range(120):
            own = f"{draw.choice('yn')}" if party == "bank" else draw.choice(("a", "b", "c"))
            lines.append(f"p{i},{draw.gauss(0, 1):.3f},{own}")
        (tmp_path / f"{party}.csv").write_text("\n".join(lines))
    job = {
        "data": {"name": "csv", "label": "good", "id": "id"},
        "parties": {"active": "bank", "passive": ["shop"]},
        "party": {party: {"data": {"path": str(tmp_path / f"{party}.csv")}} for party in ("bank", "shop")},
        "partition": {"active_has_features": True},
        "model": {"name": "mlp"},
        "training": {"epochs": 1},
    }
    run = veracausa.train(job, out=tmp_path / "run")
    export_run(run, tmp_path / "out")
    np.testing.assert_allclose(joint(run, tmp_path / "out"), run.predict().outputs.numpy(), atol=1e-5)
    told = json.loads((tmp_path / "out" / "shop" / "bottom.json").read_text())
    assert [column["name"] for column in told["preprocessing"]["columns"]] == ["spent", "kind"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"training": {"protocol": "blind"}}, ("blind", "predict")),
        ({"defense": {"name": "laplace"}}, ("passive_1", "laplace")),
        ({"defense": {"name": "causshield"}}, ("passive_1", "causshield")),
        ({"runtime": {"precision": "bf16"}}, ("bf16", "fp32")),
    ],
)
def test_what_onnx_cannot_hold_is_refused(
    changes: dict[str, Any], names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "job", load_job({**DIGITS, **changes}))
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(InputError, check=Names(*names)):
        export_run(Run(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "job", load_job(DIGITS))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(InputError, check=Names("onnxscript", "veracausa[onnx]")):
        export_run(Run(tmp_path), tmp_path / "out")
