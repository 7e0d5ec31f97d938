"""Random trees and the map of their leaves: no leaf of few rows, no row that stands out, interactions found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from veracausa import seeding
from veracausa.errors import InputError
from veracausa.features.base import FitContext, OwnRows, RowColumn
from veracausa.features.methods.leaves import LeafOptions, Leaves
from veracausa.features.random_trees import RandomTree, leaf_places, leaf_sums, splittable, together
from veracausa.training.blind.leverage import leverages as blocks_leverages

COLUMNS = (
    RowColumn("age", "number", (0,)),
    RowColumn("income", "number", (1,)),
    RowColumn("job", "category", (2, 3, 4, 5)),
)
RARE = 5
"""The place of a word that few rows have."""
SMALL = {"trees": 24, "depth": 4, "leaf_rows": 40}


def table(n: int = 4000, rare: int = 6, seed: int = 0) -> OwnRows:
    rng = np.random.default_rng(seed)
    word = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    word[:rare] = 3
    values = np.concatenate([rng.normal(size=(n, 1)), rng.exponential(size=(n, 1)), np.eye(4)[word]], axis=1)
    return OwnRows(torch.from_numpy(values).float(), COLUMNS)


def fitted(rows: OwnRows, opens: bool = False, **given: object) -> Leaves:
    found = Leaves(LeafOptions.model_validate({**SMALL, **given}))
    found.fit(rows, FitContext(seeding.generator(3, "features"), opens=opens))
    return found


def grown(rows: OwnRows, least: int = 50) -> tuple[np.ndarray, list[RandomTree]]:
    values = rows.features.double().numpy()
    usable = splittable(values, COLUMNS, [[2], [3]], 20)
    assert len(usable) == 3
    return values, [RandomTree.grow(values, usable, 5, least, np.random.default_rng(seed)) for seed in range(4)]


def leverages(features: np.ndarray) -> np.ndarray:
    return np.asarray(blocks_leverages(lambda: iter([features]), np.zeros(len(features), bool)))


def test_every_leaf_has_rows_enough_and_trees_differ() -> None:
    values, trees = grown(table())
    for tree in trees:
        counts = np.bincount(tree.place(values), minlength=tree.leaves)
        assert counts.min() >= 50
        assert 2 < tree.leaves <= 2**5
    assert len({str(tree.state()) for tree in trees}) == 4


def test_cuts_of_a_number_lie_many_rows_apart() -> None:
    values = table(700).features.double().numpy()
    cuts = [-np.inf, *splittable(values, COLUMNS, [], 20)[0].cuts, np.inf]
    assert len(cuts) > 5
    assert np.histogram(values[:, 0], cuts)[0].min() >= 20


def test_counts_and_sums_of_leaves_are_those_of_their_rows() -> None:
    values, trees = grown(table(900))
    leaves = sum(tree.leaves for tree in trees)
    places = leaf_places(trees, values)
    ones = np.zeros((900, leaves))
    for own in places.T:
        ones[np.arange(900), own] = 1
    np.testing.assert_allclose(together(places, leaves), ones.T @ ones)
    np.testing.assert_allclose(leaf_sums(places, leaves, values), ones.T @ values, atol=1e-9)


@pytest.mark.parametrize(
    "state",
    [
        [],
        [[[0], 0.0, 0, 0]],
        [[[0], 0.0, 1, 5], [[], 0.0, 0, 0]],
        [[[9], 0.0, 1, 2], [[], 0, 0, 0], [[], 0, 0, 0]],
        [[[0], float("nan"), 1, 2], [[], 0, 0, 0], [[], 0, 0, 0]],
    ],
)
def test_a_state_that_is_no_tree_is_refused(state: list[object]) -> None:
    with pytest.raises(ValueError, match=r"node|split"):
        RandomTree.from_state(state, 6)


def test_leaves_tell_what_two_columns_say_together_and_splines_do_not() -> None:
    """The label is whether a number is large, turned round for one of the words."""
    rows, new = table(6000, seed=1), table(2000, seed=2)

    def label(of: OwnRows) -> np.ndarray:
        x = of.features.double().numpy()
        return np.sign(x[:, 0]) * np.where(x[:, 2] == 1, 1.0, -1.0)

    found = fitted(rows)

    def right(train: np.ndarray, test: np.ndarray) -> float:
        columns = np.concatenate([np.ones((len(train), 1)), train], axis=1)
        head = np.linalg.lstsq(columns, label(rows), rcond=1e-8)[0]
        return float((np.sign(np.concatenate([np.ones((len(test), 1)), test], axis=1) @ head) == label(new)).mean())

    alone = right(found.splines.map(rows.features), found.splines.map(new.features))
    assert alone < 0.6
    assert right(found.map(rows.features), found.map(new.features)) > 0.85


@pytest.mark.parametrize("opens", [False, True])
def test_no_row_stands_out_by_its_leaves(opens: bool) -> None:
    rows = table(4000)
    found = fitted(rows, opens, leaf_rows=20)
    assert found.width > found.splines.width
    by_splines = leverages(found.splines.map(rows.features))
    # Half of what a row may have comes from leaves; that splines and shortened leaves are not quite apart adds little.
    assert (leverages(found.map(rows.features)) - by_splines).max() < 1 / 20


def test_no_combination_of_features_singles_out_a_rare_word() -> None:
    rows = table(4000, rare=7)
    features = fitted(rows, leaf_rows=20).map(rows.features)
    columns = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    flag = rows.features[:, RARE].double().numpy()
    best, *_ = np.linalg.lstsq(columns, flag, rcond=None)
    assert ((columns @ best - flag) ** 2).sum() > 0.5 * flag.sum()


def test_few_rows_have_splines_alone_and_a_note() -> None:
    rows = table(500)
    found = fitted(rows)
    assert found.width == found.splines.width
    assert any("leaves" in note for note in found.notes)
    for count in (1200, 4000):
        assert 60 * fitted(table(count)).width <= max(count, 60 * fitted(table(count)).splines.width)


def test_features_keep_the_proportions_of_splines_and_leaves() -> None:
    """All features are about equally wide, so that scaling them to spread 1 changes little."""
    rows = table(4000)
    found = fitted(rows)
    spread = found.map(rows.features).std(0)
    assert spread.max() / np.median(spread) < 3
    assert found.components(
        rows.features.double().numpy(), (found.splines.map(rows.features) - found.mean) / found.scale
    ).std(0) == pytest.approx(1, abs=0.3)


def test_a_state_of_other_trees_is_refused() -> None:
    rows = table(4000)
    state = fitted(rows).state()
    with pytest.raises(InputError):
        Leaves(LeafOptions()).load_state({**state, "trees": state["trees"][:-1]})
    with pytest.raises(InputError):
        Leaves(LeafOptions()).load_state({**state, "scale": -state["scale"]})
