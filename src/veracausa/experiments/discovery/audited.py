"""A fit that is watched and attacked: scores of what its parties read of each other, beside those of its graph."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veracausa.experiments.discovery.cells import CellResult, DiscoveryCell, Table

NAMES = {
    "unsplit": "UnSplit",
    "ica": "ICA",
    "norm_aware": "norm_aware",
    "norm_averaging": "norm-aware, looks averaged",
    "known_rows": "known rows",
    "averaging": "known rows, averaged",
    "stacking": "known rows, all epochs",
    "candidate_differencing": "candidate differencing",
    "party_and_validator": "party and validator",
    "best_own": "best own attribute",
    "random": "random guess",
    "together_unsplit": "all but one: UnSplit",
    "together_ica": "all but one: ICA",
    "together_norm_aware": "all but one: norm-aware",
    "together_best_own": "all but one: best own attribute",
    "r2_own": "R² by own columns",
    "r2_features": "R² by own columns and features",
}
"""Scores of an audit: mean |correlation| over all attributes, attackers and victims, and R²."""
KNOWN_ROWS = 15


def audited(cell: DiscoveryCell, table: Table, seed: int) -> CellResult:
    """Fitted as the parties' programs, and attacked by the attacks that the cell names."""
    from veracausa.audit.column_scores import declared, measured
    from veracausa.audit.discovery import train
    from veracausa.audit.discovery_views import all_but_one, single
    from veracausa.discovery.methods.vfedcd.estimator import VFedCD
    from veracausa.experiments.discovery.cells import CellResult

    started = time.process_time()
    method = VFedCD(**{"engine": "federated", **cell.method_settings}, seed=seed)
    recording = train(method, table.data, table.parties)
    seconds = time.process_time() - started
    found = measured(single(recording, KNOWN_ROWS, seed), cell.audit, {})
    scores = _scores(found, "")
    scores |= {"r2_own": found["linear_r2"]["own columns"], "r2_features": found["linear_r2"]["and all epochs"]}
    if len(table.parties) > 2 and next(iter(recording.parties.values())).apart:
        together = declared(cell.audit, "colluding")
        scores |= _scores(measured(all_but_one(recording, KNOWN_ROWS, seed), together, {}), "together_")
    return CellResult(method.adjacency_matrix_, seconds, tuple(method.notes_), scores)


def _scores(found: dict[str, Any], prefix: str) -> dict[str, float]:
    blind = {"best_own": "best own attribute", "random": "random guess"}
    scores = {f"{prefix}{short}": found["blind"][name]["mean"] for short, name in blind.items()}
    for name, reached in found["attacks"].items():
        if reached is not None:
            scores[f"{prefix}{name.replace('-', '_')}"] = reached["mean"]
    return {name: value for name, value in scores.items() if name in NAMES}
