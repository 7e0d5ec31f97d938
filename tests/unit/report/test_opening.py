"""What a page begins with: the command that it advises is one that works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from veracausa.config import load_job
from veracausa.report.opening import opening_of_run
from veracausa.runs.record import RunRecord


def audited(defense: str) -> RunRecord:
    job = load_job(
        {
            "data": {"name": "digits"},
            "model": {"name": "convnet", "cut": 3},
            "training": {"epochs": 3},
            "defense": {"name": defense},
        }
    )
    return RunRecord(
        path=Path("runs/mine"),
        config=job.model_dump(mode="json"),
        config_text=job.to_toml(),
        environment={},
        status={"state": "done"},
        summary={"strongest": {"leakage": 0.8, "party": "passive_1"}},
        epochs=(),
        sent={},
    )


@pytest.mark.parametrize("defense", ["none", "noisy_bottleneck"])
def test_a_run_that_is_read_can_be_trained_blind_as_the_page_says(defense: str, tmp_path: Path) -> None:
    run = audited(defense)
    step = opening_of_run(run, "", None, "").steps[0]
    words = shlex.split(step.command)
    assert words[:3] == ["veracausa", "train", "RUN/config.toml"]
    config = tmp_path / "config.toml"
    config.write_text(run.config_text)
    job = load_job(config, words[4::2])
    assert job.training.protocol == "blind"
    assert job.defense.name == "none"
    (note,) = job.notes()
    assert note.startswith("training.epochs has no effect")
