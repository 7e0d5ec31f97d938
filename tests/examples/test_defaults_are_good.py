"""What a newcomer trains first reaches at least what logistic regression reaches on the same training rows."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.linear_model import LogisticRegression

import veracausa
from veracausa.cli import demo
from veracausa.cli.init import job_text
from veracausa.config import load_job
from veracausa.data.load import load

ROOT = Path(__file__).parents[2]
JOBS: dict[str, Any] = {
    "init, blind": tomllib.loads(job_text("digits", protocol="blind")),
    "init, split": tomllib.loads(job_text("digits", protocol="split")),
    "demo, blind": demo.BLIND,
    "demo, split": demo.SPLIT,
}

pytestmark = pytest.mark.slow


def by_logistic_regression(job: Any) -> float:
    """Test accuracy from the pixels of all parties, side by side."""
    data = load(load_job(job))

    def pixels(split: str) -> Any:
        parts = [data.parties[name].part(split).features for name in data.passive]
        return torch.cat([part for part in parts if part is not None], dim=3).flatten(1).numpy() / 255

    def labels(split: str) -> Any:
        found = data.parties[data.active].part(split).labels
        assert found is not None
        return found.numpy()

    model = LogisticRegression(max_iter=2000).fit(pixels("train"), labels("train"))
    return float(model.score(pixels("test"), labels("test")))


@pytest.mark.parametrize("name", JOBS)
def test_a_first_job_is_no_worse(name: str, tmp_path: Path) -> None:
    run = veracausa.train(JOBS[name], out=tmp_path / "run")
    assert run.summary["accuracy"] >= by_logistic_regression(JOBS[name])


def test_the_example_of_the_front_page_is_no_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = runpy.run_path(str(ROOT / "examples" / "train_digits.py"))["run"]
    assert run.summary["accuracy"] >= by_logistic_regression(run.path / "config.toml")
