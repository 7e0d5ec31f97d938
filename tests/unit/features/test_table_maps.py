"""Maps of tables: finite, the same after saving and streaming, and without a feature of few rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from veracausa import seeding
from veracausa.config import load_job
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, FitLabels, OwnRows, RowColumn
from veracausa.features.methods.estimator import EstimatorMap
from veracausa.features.methods.scores import ClassScores
from veracausa.features.methods.splines import b_splines, uniform_place
from veracausa.runs.store import deserialize_state, serialize_state
from veracausa.training.blind.leverage import singles_out

COLUMNS = (
    RowColumn("age", "number", (0,)),
    RowColumn("gain", "number", (1,)),
    RowColumn("gain", "missing", (2,)),
    RowColumn("rooms", "number", (3,)),
    RowColumn("job", "category", (4, 5, 6, 7)),
)
RARE = 7
"""The place of a word that few rows have."""


def table(n: int = 1500, rare: int = 6, missing: int = 100, seed: int = 0) -> OwnRows:
    rng = np.random.default_rng(seed)
    gain = np.where(rng.random(n) < 0.7, -0.2, rng.exponential(size=n))
    lost = np.arange(n) < missing
    word = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    word[-rare:] = 3
    numbers = [rng.normal(size=n), np.where(lost, 0, gain), lost, rng.integers(0, 4, n) - 1.5]
    return OwnRows(
        torch.from_numpy(np.concatenate([np.stack(numbers, axis=1), np.eye(4)[word]], axis=1)).float(), COLUMNS
    )


def make(name: str, **given: Any) -> FeatureMap:
    return feature_maps.get(name)(feature_maps.options(name)(name=name, **given))


def context(labels: FitLabels | None = None) -> FitContext:
    model = load_job({"data": {"name": "digits"}, "model": {"name": "mlp", "hidden": [16, 8]}}).model
    return FitContext(seeding.generator(1, "features"), model=model, labels=labels)


def told(rows: OwnRows) -> FitLabels:
    return FitLabels((rows.features[:, 0] > 0).long(), 2)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "splines": {},
    "fourier": {"waves": 10},
    "leaves": {"trees": 6, "functions": 4, "leaf_rows": 40},
    "scarf": {"epochs": 1},
    "estimator": {"settings": {"n_components": 12}},
    "scores": {"settings": {"max_iter": 5}},
    "auto": {},
}


def fitted(name: str, rows: OwnRows) -> tuple[FeatureMap, np.ndarray]:
    chosen = make(name, **CASES[name])
    # A party that has labels hands them to every map that can use them.
    found = chosen.fit(rows, context(told(rows) if chosen.labelled else None))
    return chosen, chosen.map(rows.features) if found is None else found


@pytest.mark.parametrize("name", CASES)
def test_features_are_finite_and_survive_saving(name: str) -> None:
    rows = table()
    chosen, found = fitted(name, rows)
    assert found.shape == (len(rows), chosen.width)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    again = make(name, **CASES[name])
    again.load_state(deserialize_state(serialize_state(chosen.state()), "state"))
    new = table(seed=5).features
    np.testing.assert_array_equal(again.map(new), chosen.map(new))
    assert again.width == chosen.width


@pytest.mark.parametrize("name", CASES)
def test_the_same_generator_gives_the_same_features(name: str) -> None:
    rows = table(400)
    np.testing.assert_array_equal(fitted(name, rows)[1], fitted(name, rows)[1])


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_mapped_alone_as_among_others(name: str) -> None:
    rows = table(400)
    chosen, _ = fitted(name, rows)
    # Networks and sums round by the number of rows.
    np.testing.assert_allclose(chosen.map(rows.features[7:8]), chosen.map(rows.features)[7:8], atol=1e-5)
    assert chosen.map(rows.features[:0]).shape == (0, chosen.width)


@pytest.mark.parametrize("name", ["plain", "splines", "fourier", "leaves", "auto"])
def test_streamed_rows_give_the_same_map(name: str) -> None:
    rows = table()
    whole = make(name, **CASES[name])
    whole.fit(rows, context())
    found = whole.map(rows.features)
    streamed = make(name, **CASES[name])
    assert streamed.streams
    streamed.fit_blocks(lambda: rows.blocks(97), COLUMNS, len(rows), context())
    # Sums over blocks round another way.
    np.testing.assert_allclose(streamed.map(rows.features), found, atol=1e-9)
    assert streamed.width == whole.width


@pytest.mark.parametrize("name", CASES)
def test_other_rows_and_torn_states_are_refused(name: str) -> None:
    chosen, _ = fitted(name, table(400))
    with pytest.raises(InputError):
        chosen.map(torch.zeros(3, 5))
    with pytest.raises(InputError):
        chosen.check(OwnRows(torch.zeros(4, 1, 8, 8, dtype=torch.uint8))) if name != "auto" else chosen.load_state({})
    state = chosen.state()
    for key in state:
        if key in ("notes",):
            continue
        torn = {word: value for word, value in state.items() if word != key}
        with pytest.raises(InputError):
            make(name, **CASES[name]).load_state(torn)


@pytest.mark.parametrize("name", ["plain", "splines", "fourier", "leaves"])
@pytest.mark.parametrize(("rare", "missing"), [(6, 100), (30, 5), (1, 1400), (19, 1490)])
def test_no_feature_is_made_up_by_few_rows(name: str, rare: int, missing: int) -> None:
    rows = table(rare=rare, missing=missing)
    _, found = fitted(name, rows)
    for column in found.T:
        values, counts = np.unique(column, return_counts=True)
        assert len(values) > 1
        assert len(rows) - counts.max() >= 20


@pytest.mark.parametrize("rare", [3, 19])
def test_no_combination_of_features_singles_out_a_rare_word_or_flag(rare: int) -> None:
    """A word that is left out comes back as the constant less all others; one that is merged does not."""
    rows = table(4000, rare=rare, missing=7)
    _, found = fitted("splines", rows)
    columns = np.concatenate([np.ones((len(found), 1)), found], axis=1)
    for flag in (rows.features[:, RARE].numpy(), rows.features[:, 2].numpy()):
        best, *_ = np.linalg.lstsq(columns, flag, rcond=None)
        left = ((columns @ best - flag) ** 2).sum()
        assert left > 0.5 * flag.sum()


def test_merged_words_are_noted() -> None:
    chosen = make("splines")
    chosen.fit(table(rare=6), context())
    assert any("'job'" in note and "1 rare value" in note for note in chosen.notes)


def test_two_flags_that_differ_in_few_rows_become_one() -> None:
    rows = table()
    twin = rows.features[:, 5:6].clone()
    twin[:3] = 1 - twin[:3]
    both = OwnRows(
        torch.cat([rows.features, twin, 1 - twin], dim=1), (*COLUMNS, RowColumn("again", "category", (8, 9)))
    )
    chosen, _ = fitted("splines", both)
    assert chosen.width == fitted("splines", rows)[0].width
    assert any("differs" in note for note in chosen.notes)


def test_a_value_that_many_rows_share_has_a_column_of_its_own() -> None:
    rows = table(missing=0)
    _, found = fitted("splines", rows)
    zero = rows.features[:, 1].numpy() == np.float32(-0.2)
    assert any(np.array_equal(column, zero) for column in found.T)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=60), st.integers(4, 12))
def test_splines_sum_to_one_wherever_a_value_lies(values: list[float], functions: int) -> None:
    grid = np.quantile(values, np.linspace(0, 1, 33))
    place = uniform_place(np.array([*values, -1e9, 1e9]), grid)
    assert ((place >= 0) & (place <= 1)).all()
    np.testing.assert_allclose(b_splines(place, functions).sum(1), 1)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 400))
def test_a_sample_does_not_depend_on_how_rows_are_cut(seed: int, size: int) -> None:
    from veracausa.features.table_columns import survey

    rows = table(1200, seed=seed)

    def sample(block: int) -> np.ndarray:
        return survey(lambda: rows.blocks(block), COLUMNS, 300, context(), len(rows)).sample

    np.testing.assert_array_equal(sample(size), sample(1200))


def test_a_label_in_the_scores_is_never_the_rows_own() -> None:
    """Labels that are pure chance: scores of the rows themselves must not know them."""
    rows = table(600)
    labels = FitLabels(torch.randint(2, (600,), generator=seeding.generator(0, "labels")), 2)
    chosen = make("scores", beside=False)
    found = chosen.fit(rows, context(labels))[:, 0]
    value = labels.values.numpy()
    assert abs(np.corrcoef(found, value)[0, 1]) < 0.15
    # The models themselves have seen them: this is what cross-fitting keeps away from the head.
    assert np.corrcoef(chosen.map(rows.features)[:, 0], value)[0, 1] > 0.5


def test_randomised_labels_need_no_correction_before_a_linear_head() -> None:
    rows = table(6000)
    true = (rows.features[:, 0] + rows.features[:, 3] > 0).long()
    flipped = torch.rand(6000, generator=seeding.generator(0, "flip")) < 0.25
    noisy = FitLabels(torch.where(flipped, 1 - true, true), 2, np.array([[0.75, 0.25], [0.25, 0.75]]))
    found = make("scores", beside=False).fit(rows, context(noisy))[:, 0]
    assert np.corrcoef(found, true.numpy())[0, 1] > 0.9
    slope, level = np.polyfit(true.numpy(), found, 1)
    # A chance p of the true class is told with 0.25 + 0.5 p.
    assert (level, slope) == (pytest.approx(0.25, abs=0.05), pytest.approx(0.5, abs=0.08))


def test_objects_of_ones_own_work_from_python_and_unknown_ones_are_refused() -> None:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression

    rows = table(400)
    own = EstimatorMap.using(PCA(3), beside=False)
    own.fit(rows, context())
    assert own.width == 3
    assert ClassScores.using(LogisticRegression(), beside=False).fit(rows, context(told(rows))).shape == (400, 1)

    class Mine(TransformerMixin, BaseEstimator):
        def fit(self, x, y=None):
            return self

        def transform(self, x):
            return x

    with pytest.raises(InputError, match="not trusted"):
        EstimatorMap.using(Mine()).fit(rows, context())


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("estimator", {"estimator": "Nystrom"}, "did you mean 'Nystroem'"),
        ("estimator", {"estimator": "HistGradientBoostingClassifier"}, "no transformer"),
        ("estimator", {"settings": {"colour": 3}}, "does not take"),
        ("scores", {"estimator": "Nystroem"}, "no predictor"),
    ],
)
def test_what_a_job_may_not_name_is_refused(name: str, given: dict[str, Any], said: str) -> None:
    rows = table(100)
    with pytest.raises(InputError, match=said):
        make(name, **given).fit(rows, context(told(rows)))


def test_scores_need_labels() -> None:
    with pytest.raises(InputError, match=r"blind\.labels"):
        make("scores").fit(table(100), context())


def test_a_kept_estimator_of_another_type_is_not_read() -> None:
    import skops.io

    rows = table(200)
    chosen, _ = fitted("estimator", rows)
    evil = torch.frombuffer(bytearray(skops.io.dumps({"run": print})), dtype=torch.uint8)
    with pytest.raises(InputError, match="not trusted"):
        make("estimator").load_state({**chosen.state(), "fitted": evil})
    with pytest.raises(InputError, match="cannot be read"):
        make("estimator").load_state({**chosen.state(), "fitted": torch.zeros(9, dtype=torch.uint8)})


def test_scarf_corrupts_whole_columns() -> None:
    rows = table(300)
    chosen = make("scarf", epochs=1)
    chosen.fit(rows, context())
    x: Tensor = rows.features[:50]
    same, other = chosen.two_views(x, torch.arange(50), torch.Generator().manual_seed(0))
    assert torch.equal(same, x)
    assert (other[:, 4:8].sum(1) == 1).all()
    changed = (other != x).any(0)
    assert changed[[0, 1]].all()


def test_auto_learns_trees_where_labels_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without labels, or without what keeps trees, it takes splines."""
    from veracausa.features.methods import auto

    assert auto.suited(pixels=False, device="cpu", labels=True) == "scores"
    assert auto.suited(pixels=False, device="cpu", labels=False) == "splines"
    monkeypatch.setattr(auto, "find_spec", lambda name: None)
    assert auto.suited(pixels=False, device="cpu", labels=True) == "splines"


@pytest.mark.parametrize("opens", [False, True])
def test_few_rows_get_few_splines(opens: bool) -> None:
    """Features together must not single out a row: at the party that opens sums each wants three times the rows."""
    rows = OwnRows(torch.randn(480, 4, generator=seeding.generator(0, "few")))
    limited = make("splines")
    limited.fit(rows, replace(context(), opens=opens))
    assert limited.width <= 480 // (20 * (3 if opens else 1))
    assert limited.width == (4 if opens else 24 // 4 * 4)
    assert any("few rows" in note for note in limited.notes)


@pytest.mark.parametrize("asked", [False, True])
def test_functions_are_made_fewer_until_no_row_is_singled_out(asked: bool) -> None:
    """Rows near the ends of two columns at once: three times the rows a feature are not enough for these."""
    rows = OwnRows(torch.randn(1168, 2, generator=seeding.generator(0, "ends")))
    made = make("splines")
    guard = partial(singles_out, least_rows=20) if asked else None
    made.fit(rows, replace(context(), opens=True, singles_out=guard))
    said = [note for note in made.notes if "in place of 8" in note]
    assert singles_out(lambda: iter([made.map(rows.features)]), False, 20) is not asked
    assert bool(said) is asked
    if asked:
        assert 2 <= made.width < 16
        assert len(said) == 1
