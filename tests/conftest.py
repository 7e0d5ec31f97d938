"""Settings that hold for every test."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import settings

# A deadline is a timed test in disguise: on a busy machine it fails without a fault.
settings.register_profile("veracausa", deadline=None)
settings.load_profile("veracausa")


gc.disable()  # while tests are collected, nothing becomes garbage


def pytest_collection_finish() -> None:
    """What was imported stays: the collector does not walk over it again and again."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def _one_thread():
    """Toy sizes: more threads than one only wait for each other. And the same sums come in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
