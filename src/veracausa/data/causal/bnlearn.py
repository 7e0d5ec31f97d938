"""The networks of the bnlearn repository: rows drawn from known discrete networks, from asia to pathfinder."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from veracausa.data.causal import CausalData, CausalOptions, causal_data, held
from veracausa.data.causal.bif import read_bif
from veracausa.data.files import data_folder
from veracausa.errors import InputError
from veracausa.registry import did_you_mean
from veracausa.seeding import derive


class BnlearnOptions(CausalOptions):
    network: str = "asia"
    rows: int = Field(1000, ge=2)


@causal_data.register("bnlearn", BnlearnOptions)
def bnlearn(options: BnlearnOptions) -> CausalData:
    """Categories become 0, 1, 2, ... in the file's order, which is a scale only where the file's author meant one."""
    known = sorted(path.stem for path in (data_folder() / "bnlearn").glob("*.bif"))
    if known and options.network not in known:
        raise InputError(f"bnlearn: network {options.network!r}: no such file{did_you_mean(options.network, known)}")
    network = read_bif(held(f"bnlearn/{options.network}.bif"))
    rng = np.random.default_rng(derive(options.seed, "bnlearn", options.network))
    values = network.sample(options.rows, rng).astype(np.float64)
    notes = (
        f"bnlearn: {options.rows} rows drawn from {options.network}, seed {options.seed}",
        "categories are numbered from 0 in the file's order and taken as numbers",
    )
    return CausalData(values, network.names, network.adjacency(), notes)
