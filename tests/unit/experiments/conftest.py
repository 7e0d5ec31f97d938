"""A small experiment, and a store for its cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import EXPERIMENT

from veracausa.experiments.cell import CellStore
from veracausa.experiments.experiment import TrainingExperiment, resolve


@pytest.fixture
def toy() -> TrainingExperiment:
    return resolve(EXPERIMENT, "toy", "smoke")


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path)
