"""SynTReN: ten simulated gene networks of 20 genes and 500 rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veracausa.data.causal import CausalData, CausalOptions, causal_data, held
from veracausa.errors import InputError


class SyntrenOptions(CausalOptions):
    number: int = Field(1, ge=1, le=10)
    """Which of the ten networks."""


@causal_data.register("syntren", SyntrenOptions)
def syntren(options: SyntrenOptions) -> CausalData:
    values = _matrix(held(f"syntren/data{options.number}.npy"))
    truth = _matrix(held(f"syntren/DAG{options.number}.npy")) != 0
    names = tuple(f"gene{at}" for at in range(values.shape[1]))
    return CausalData(values, names, truth, (f"syntren: network {options.number} of ten",))


def _matrix(path: Path) -> NDArray[np.float64]:
    try:
        return np.ascontiguousarray(np.load(path, allow_pickle=False), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as an array: {error}; get the file again") from None
