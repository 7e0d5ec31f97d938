"""On graphs of 15 attributes and 60 edges, which no setting was chosen on: what is promised, and what is published."""

from __future__ import annotations

from statistics import fmean

import pytest

from veracausa.experiments.discovery_cell import DiscoveryCell, discover

pytestmark = [pytest.mark.slow, pytest.mark.paper]

DATA = {"name": "synthetic", "attributes": 15, "edges": 60}
GRAPHS = (300, 301, 302, 303, 304)


def scores(method: str = "vfedcd", **settings: object) -> dict[str, float]:
    cell = DiscoveryCell(DATA, "seed", 3, method, settings, None, GRAPHS, (0,))
    runs = discover(cell)["runs"]
    return {name: fmean(run["scores"][name] for run in runs) for name in ("shd", "f1")}


@pytest.fixture(scope="module")
def recommended() -> dict[str, float]:
    return scores()


def test_the_recommended_profile_is_well_ahead_of_the_paper(recommended: dict[str, float]):
    # The paper prints 33 and .711. Five graphs differ by about 3 and .04.
    assert recommended["shd"] <= 22
    assert recommended["f1"] >= 0.80


def test_the_papers_profile_is_where_the_paper_is():
    found = scores(profile="paper_repaired")
    assert found["f1"] == pytest.approx(0.711, abs=0.06)
    assert found["shd"] == pytest.approx(33, abs=9)


def test_a_likelihood_that_assumes_equal_noise_is_clearly_worse(recommended: dict[str, float]):
    assert scores(likelihood="mse")["f1"] < recommended["f1"] - 0.1


@pytest.mark.parametrize("method", ["notears", "sortnregress"])
def test_linear_methods_find_little_in_standardised_columns(method: str):
    # Where columns keep their scale the same methods reach .6: then the generator would be another one.
    assert 0.1 < scores(method)["f1"] < 0.45
