"""The federation on integer shares learns what the floating-point model learns."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.discovery.data.synthetic import SyntheticOptions, synthetic
from veracausa.discovery.federated.run import discover
from veracausa.discovery.floating import FloatModel
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.settings import Settings
from veracausa.metrics.graphs import graph_scores


def _both(d: int, edges: int, settings: Settings, seed: int, alike: int) -> tuple[list[float], list[float]]:
    """SHD of float model and twin on one graph, with so many seeds of the algorithm each."""
    data = synthetic(SyntheticOptions(name="synthetic", attributes=d, edges=edges, seed=seed))
    train = 800
    distances: tuple[list[float], list[float]] = ([], [])
    for algorithm in range(alike):
        model = FloatModel(settings, d, np.random.default_rng(algorithm))
        plain = model.fit(data.values[None, :train], data.values[None, train:])
        thirds = np.array_split(np.arange(d), 3)
        columns = {f"p{at}": data.values[:, third] for at, third in enumerate(thirds)}
        twin = discover(columns, data.names, settings, train_rows=train, seed=algorithm, timeout=600.0)
        found = (
            (plain.strengths[0], plain.allowed[0], plain.thresholds[0]),
            (twin.strengths, twin.allowed, twin.threshold),
        )
        for place, (strengths, allowed, threshold) in zip(distances, found, strict=True):
            graph = greedy_cut(np.where(allowed, strengths, 0.0), threshold, None, ~allowed)
            place.append(float(graph_scores(data.truth, graph)["shd"]))
    return distances


@pytest.mark.slow
def test_the_twin_finds_the_chain_that_the_floats_find() -> None:
    settings = Settings(epochs=60, refit_epochs=60)
    floats, twins = _both(4, 3, settings, seed=100, alike=2)
    assert max(floats) <= 1
    assert max(twins) <= 1


@pytest.mark.slow
def test_the_twin_is_as_near_to_the_truth_as_the_floats() -> None:
    # Two fits of one graph with other seeds differ by a few edges, in floats as well; on this graph by three or four.
    floats, twins = _both(10, 40, Settings(), seed=102, alike=1)
    assert abs(np.mean(floats) - np.mean(twins)) <= 5
    assert np.mean(twins) < 20  # the empty graph has 40
