"""Settings that hold for every test."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from io import BytesIO, StringIO

import pytest
import torch
import typer.testing
from hypothesis import settings
from matplotlib.figure import Figure
from PIL import Image

# A deadline is a timed test in disguise: on a busy machine it fails without a fault.
settings.register_profile("veracausa", deadline=None)
settings.load_profile("veracausa")


# `CliRunner` makes all commands anew at every call, which takes longer than most of them.
typer.testing._get_command = functools.cache(typer.testing._get_command)
_SAVEFIG = Figure.savefig
gc.disable()  # while tests are collected, nothing becomes garbage


def pytest_collection_finish() -> None:
    """What was imported stays: the collector does not walk over it again and again."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _drawings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Half the time of a small training goes into its figures: they are blank, except where a test looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("draws") is None:
            patch.setattr(Figure, "savefig", _blank)
        yield


@pytest.fixture(autouse=True)
def _drawings_of_a_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("draws") is not None:
        monkeypatch.setattr(Figure, "savefig", _SAVEFIG)


def _blank(figure: Figure, file: BytesIO | StringIO, *, format: str, **how: object) -> None:
    if isinstance(file, StringIO):
        file.write('<svg width="9pt" height="9pt" xmlns="http://www.w3.org/2000/svg"></svg>')
    else:
        Image.new("RGB", (9, 9)).save(file, format)


@pytest.fixture(autouse=True)
def _one_thread():
    """Toy sizes: more threads than one only wait for each other. And the same sums come in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
