"""Tiny files in the official formats, and jobs over them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.config import Job
from veracausa.models import ModelOptions


@pytest.fixture(scope="session")
def make_job() -> Callable[..., Job]:
    """A job over the data given; its model is never built."""

    def make(data: dict[str, Any], **settings: Any) -> Job:
        return Job.model_validate({"data": data, "model": ModelOptions(name="never_built", cut=1), **settings})

    return make


@pytest.fixture(scope="session")
def write_idx() -> Callable[[Path, np.ndarray], None]:
    return _write_idx


def _write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and a network that refuses at once."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("VERACAUSA_DATA", str(folder))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    return folder


@pytest.fixture
def mnist_files(data_folder: Path) -> Path:
    """60 and 20 pictures whose pixels tell row and place apart."""
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 60), ("t10k", 20)):
        raw = data_folder / "MNIST/raw"
        _write_idx(raw / f"{prefix}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 28, 28)))
        _write_idx(raw / f"{prefix}-labels-idx1-ubyte.gz", np.arange(count) % 10)
    return data_folder


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
