"""Experiments with audited fits, the counter-measures in one place, and the strong mode watched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veracausa.attacks import column_attacks
from veracausa.audit.column_scores import declared, measured
from veracausa.audit.discovery_views import mpc_views, train_mpc
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.countermeasures import mixing
from veracausa.experiments.discovery_cell import DiscoveryCell, discover
from veracausa.experiments.experiment import load_experiment
from veracausa.experiments.replicates import ProtectedModel
from veracausa.experiments.table import AUDIT_SCORES


def cell(**more: Any) -> DiscoveryCell:
    data = {"name": "synthetic", "attributes": 6, "edges": 8, "rows": 80}
    how = {"engine": "federated", "epochs": 1, "refit_epochs": 1, "width": 3}
    return DiscoveryCell(data, "seed", 3, "vfedcd", how, None, (200,), (0,), **more)


@pytest.mark.slow
def test_an_audited_fit_has_scores_of_its_attacks_beside_those_of_its_graph() -> None:
    plain, watched = cell(), cell(audit=("known_rows", "stacking"))
    assert "audit" not in plain.settings["discovery"]
    assert plain.key != watched.key
    scores = discover(watched)["runs"][0]["scores"]
    assert {"shd", "known_rows", "stacking", "best_own", "random", "r2_own", "r2_features"} <= set(scores)
    assert scores["r2_features"] > scores["r2_own"]


@pytest.mark.parametrize("name", ["table3", "table7", "fig5"])
@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_experiments_name_scores_that_their_rows_have(name: str, scale: str) -> None:
    experiment: Any = load_experiment(f"vfedcd/{name}", scale)
    asked = {attack.replace("-", "_") for row in experiment.methods.values() for attack in row.audit}
    wanted = {column.removeprefix("together_") for column in experiment.columns} & set(AUDIT_SCORES)
    assert wanted - asked <= {"best_own", "random", "r2_own", "r2_features"}
    assert experiment.published


def test_in_one_place_weights_between_parties_pass_the_bottleneck_and_noise_meets_every_target() -> None:
    owners, x = np.array([[0, 0, 1, 1]]), np.random.default_rng(1).standard_normal((1, 40, 4))
    narrow = ProtectedModel(Settings(width=5, bottleneck=2), owners, np.random.default_rng(0))
    narrow._step(x)
    rows = mixing(2, 5)
    outside = narrow.weights - narrow.weights @ (rows.T @ rows)
    assert np.abs(outside[0, :2, 2:]).max() < 1e-12
    assert np.abs(outside[0, 0, 1]).max() > 1e-3
    plain = CentralizedVFedCD(Settings(width=5), 4, np.random.default_rng(0))
    noisy = ProtectedModel(Settings(width=5, row_noise=3.0), owners, np.random.default_rng(0))
    assert (noisy.features(x) - plain.features(x)).std() == pytest.approx(3.0, rel=0.1)


@pytest.mark.slow
def test_of_a_row_the_strong_mode_opens_nothing_that_attacks_could_read() -> None:
    x = np.random.default_rng(0).standard_normal((80, 4))
    x[:, 2:] += x[:, :2]
    columns = {"a": x[:, :2] / 2, "b": x[:, 2:] / 2}
    programs = train_mpc(columns, ["w", "x", "y", "z"], Settings(epochs=1, refit_epochs=1, width=2, searches=()), 64, 3)
    assert [len(program.seen) for program in programs.values()] == [8, 8]
    scenes = mpc_views(programs, 12, 0)
    assert np.unique(scenes[0].view.last[:16], axis=0).shape[0] == 1  # one number a batch and attribute
    found = measured(
        scenes,
        declared(column_attacks.names(), "on_sums"),
        {name: {"restarts": 1, "turns": 3} for name in ("unsplit",)},
    )
    assert max(entry["mean"] for entry in found["attacks"].values()) < 0.5
