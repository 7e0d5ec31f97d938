from __future__ import annotations

import subprocess
import sys

import pytest

from veracausa.data.sources import datasets
from veracausa.errors import InputError


def test_every_source_is_found_by_name():
    assert set(datasets.names()) >= {
        *("adult", "cifar10", "cifar100", "csv", "digits", "emnist", "images", "mnist", "parquet"),
    }
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        datasets.get("cifar1O")


def test_naming_the_sources_imports_none_of_what_they_read_with():
    program = (
        "import sys; from veracausa.data import load; from veracausa.data.sources import datasets; datasets.names();"
        "sys.exit(', '.join({'polars', 'sklearn', 'PIL', 'pooch'} & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
