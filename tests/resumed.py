"""A run of digits that loses its last checkpoints and is resumed must end as the one that nobody disturbed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import veracausa

JOB: dict[str, Any] = {
    "data": {"name": "digits", "train": 96},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 2, "batch_size": 32, "evaluate_every": 2, "local_steps": 2},
    "overlap": {"fraction": 0.7},
    "checkpoints": {"every_steps": 1, "keep": 99},
    "risk": {"samples": 2, "rank": 2},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


def assert_resumes(defense: dict[str, Any], folder: Path, step: int = 2) -> None:
    """Train with the defense, forget all after `step`, resume, and compare models and metrics bit for bit."""
    job = {**JOB, "defense": defense}
    whole = veracausa.train(job, out=folder / "whole")
    broken = folder / "broken"
    shutil.copytree(whole.path, broken)
    for path in broken.glob("parties/*/checkpoints/step-*"):
        if int(path.name.split("-")[1]) > step:
            path.unlink()
    (broken / "summary.json").unlink()
    (broken / "status.json").write_text(json.dumps({"state": "running"}))
    resumed = veracausa.train(job, out=broken, resume=True)
    models = list(whole.path.glob("parties/*/model.safetensors"))
    assert len(models) == 3
    for path in models:
        assert path.read_bytes() == (resumed.path / path.relative_to(whole.path)).read_bytes(), path.parent.name
    assert _timeless(whole) == _timeless(resumed)
    assert any(line["event"] == "defense" for line in whole.metrics)


def _timeless(run: veracausa.Run) -> list[dict[str, Any]]:
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics]
    return sorted(lines, key=lambda line: (line["step"], line["party"], line["event"]))
