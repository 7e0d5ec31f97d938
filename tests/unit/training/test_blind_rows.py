"""A party's rows as columns of the sums: scaled, limited, clipped, checked at home; the active party's block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from veracausa import seeding
from veracausa.config import load_job
from veracausa.data.vertical import Part, PartyData
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap
from veracausa.registry import Options
from veracausa.training.blind.active_block import ActiveBlock
from veracausa.training.blind.label_columns import LabelColumns
from veracausa.training.blind.rows import LIMIT, OwnColumns, fit_columns, shortened
from veracausa.training.split.program import Schema

ROWS = 1000


class AsItIs(FeatureMap):
    """The rows themselves."""

    tables: ClassVar[bool] = True
    given: ClassVar[bool] = False
    seen = 0

    def fit(self, rows: Any, context: Any) -> Any:
        self.seen = rows.features.shape[1]
        return rows.features.double().numpy() + 1 if self.given else None

    def map(self, rows: torch.Tensor) -> Any:
        return rows.double().numpy()

    @property
    def width(self) -> int:
        return self.seen

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state(self, state: Any) -> None:
        self.seen = state["seen"]


class CrossFitted(AsItIs):
    """Gives the training rows' features itself."""

    given = True


@pytest.fixture(autouse=True)
def maps(monkeypatch):
    known = {"as_it_is": AsItIs, "cross_fitted": CrossFitted}
    get, options = feature_maps.get, feature_maps.options
    monkeypatch.setattr(feature_maps, "get", lambda name: known.get(name) or get(name))
    monkeypatch.setattr(feature_maps, "options", lambda name: Options if name in known else options(name))


def job(name: str = "as_it_is", **blind: Any):
    return load_job(
        {
            "data": {"name": "digits"},
            "training": {"protocol": "blind"},
            "blind": {"encryption": "none", **blind},
            "features": {"name": name},
            "runtime": {"device": "cpu"},
        }
    )


def party(features: torch.Tensor, index: torch.Tensor | None = None, name: str = "passive_1") -> PartyData:
    length = len(features) if index is None else len(index)
    empty = Part(0, features[:0])
    return PartyData(name, tuple(features.shape[1:]), Part(length, features, index), empty, empty)


def fitted(made: PartyData, settings=None) -> OwnColumns:
    rng = seeding.generator(0, "features")
    return fit_columns(settings or job(), made, rng, None, lambda share: None)


def rows(count: int = ROWS, width: int = 4) -> torch.Tensor:
    return 5 + 3 * torch.randn(count, width, generator=seeding.generator(0, "rows"))


@pytest.mark.parametrize("block", [128, 512, 8192])
def test_features_have_mean_0_and_spread_1_however_they_are_cut(block):
    made = party(rows())
    columns = fitted(made, job(block_rows=block))
    whole = np.concatenate(list(columns.training_blocks(made.train, block)))
    assert whole.shape == (ROWS, 4)
    np.testing.assert_allclose(whole.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(whole.std(0), 1, atol=1e-9)
    again = np.concatenate(list(columns.training_blocks(made.train, block)))
    assert np.array_equal(whole, again)
    np.testing.assert_allclose(columns.of(made.train.features), whole, atol=1e-12)


def test_a_row_it_lacks_is_zeros_and_one_it_holds_says_so():
    index = torch.full((ROWS,), -1)
    held = torch.arange(ROWS) % 3 > 0
    index[held] = torch.arange(int(held.sum()))
    made = party(rows(int(held.sum())), index)
    columns = fitted(made)
    whole = np.concatenate(list(columns.training_blocks(made.train, 128)))
    assert columns.width == whole.shape[1] == 5
    assert not whole[~held.numpy()].any()
    assert (whole[held.numpy(), -1] == 1).all()
    np.testing.assert_allclose(whole[held.numpy(), :-1].mean(0), 0, atol=1e-9)
    assert (columns.of(made.train.features[:3])[:, -1] == 1).all()


def test_few_rows_with_or_without_a_party_are_refused():
    index = torch.arange(ROWS)
    index[:5] = -1
    index[5:] -= 5
    with pytest.raises(InputError, match=r"'passive_1' holds 995 of 1000 .*min_rows"):
        fitted(party(rows(ROWS - 5), index))


@pytest.mark.parametrize(("count", "kept"), [(1, False), (19, False), (25, True)])
@pytest.mark.parametrize("high", [1.0, 1e6])
def test_an_indicator_of_few_rows_is_left_out_with_a_note(count, kept, high):
    features = rows()
    features[:, 1] = 0
    features[100 : 100 + count, 1] = high
    columns = fitted(party(features))
    assert (1 in columns.scaling.kept) is kept
    assert bool(columns.notes) is not kept
    if not kept:
        assert "1 of 4 features left out" in columns.notes[0]


def test_a_few_outliers_make_a_column_an_indicator_though_all_values_differ():
    features = rows()
    features[:3, 2] = 1e4
    assert 2 not in fitted(party(features)).scaling.kept
    tails = torch.rand(ROWS, generator=seeding.generator(0, "tails")).clamp(1e-6)
    features[:, 2] = -tails.log()  # longer tails alone do not
    assert 2 in fitted(party(features)).scaling.kept


def test_a_party_without_any_usable_feature_is_told():
    features = torch.zeros(ROWS, 2)
    features[0, 0] = 1
    with pytest.raises(InputError, match=r"no feature is made up by 20 rows"):
        fitted(party(features))


def test_values_stay_within_the_limit_of_the_sums():
    features = rows()
    features[:30, 0] = 1e9
    made = party(features)
    columns = fitted(made)
    whole = np.concatenate(list(columns.training_blocks(made.train, 128)))
    assert np.abs(whole).max() <= LIMIT
    new = torch.full((1, 4), 1e30)
    assert np.abs(columns.of(new)).max() <= LIMIT


def test_rows_are_cut_to_a_norm_but_not_their_fixed_columns():
    block = np.concatenate([10 * np.random.default_rng(0).normal(size=(50, 3)), np.ones((50, 1))], axis=1)
    cut = shortened(block, 2.0, fixed=1)
    lengths = np.sqrt((cut**2).sum(1))
    assert lengths.max() < 2.0
    assert (cut[:, -1] == 1).all()
    short = shortened(block / 100, 2.0, fixed=1)
    np.testing.assert_array_equal(short, block / 100)


def test_a_map_that_learnt_from_labels_gives_its_training_rows_itself():
    made = party(rows())
    columns = fitted(made, job("cross_fitted"))
    whole = np.concatenate(list(columns.training_blocks(made.train, 128)))
    # Scaled like the cross-fitted ones, which are off by one: rows to predict are not.
    np.testing.assert_allclose(whole.mean(0), 0, atol=1e-9)
    assert (columns.of(made.train.features).mean(0) < -0.2).all()
    again = OwnColumns.of_state(job("cross_fitted"), "passive_1", columns.state(training=True))
    assert np.array_equal(np.concatenate(list(again.training_blocks(made.train, 128))), whole)
    assert OwnColumns.of_state(job("cross_fitted"), "passive_1", columns.state(training=False)).trained is None


def test_a_predicted_row_does_not_depend_on_the_rows_beside_it():
    made = party(rows())
    columns = fitted(made)
    together = columns.of(made.train.features[:300])
    alone = np.concatenate([columns.of(made.train.features[at : at + 1]) for at in range(0, 300, 37)])
    assert np.array_equal(together[::37], alone)


def active_block(features: torch.Tensor | None, labels: torch.Tensor, **blind: Any) -> ActiveBlock:
    settings = job(**blind)
    part = Part(len(labels), features, labels=labels)
    data = PartyData("active", () if features is None else (features.shape[1],), part, Part(0), Part(0))
    targets = LabelColumns.of(settings, data, Schema("classification", ("a", "b"), "features"))
    columns = None if features is None else fitted(data, settings)
    return ActiveBlock(settings, part, columns, targets)


def test_the_active_party_brings_features_a_constant_and_labels():
    labels = torch.arange(ROWS) % 2
    block = active_block(rows(), labels)
    whole = np.concatenate(list(block.blocks()))
    assert whole.shape == (ROWS, block.width) == (ROWS, 7)
    assert (whole[:, 4] == 1).all()
    assert np.array_equal(whole[:, 5:].argmax(1), labels.numpy())
    bare = np.concatenate(list(active_block(None, labels).blocks()))
    assert np.array_equal(bare, whole[:, 4:])


def test_two_flags_that_differ_in_one_row_do_not_open_that_row():
    """Neither flag is rare, but their difference is an indicator of one row."""
    features = rows(4000, 2)
    features[:, 0] = (torch.arange(4000) % 2).float()
    features[:, 1] = features[:, 0]
    features[7, 1] = 0
    block = active_block(features, (torch.arange(4000) // 2) % 2)
    whole = np.concatenate(list(block.blocks()))
    flags = whole[:, :2] * block.columns.scaling.spread + block.columns.scaling.mean
    assert np.flatnonzero(np.abs(flags[:, 0] - flags[:, 1]) > 0.5).tolist() == [7]
    safe = block.without_heavy_rows(b"k" * 32)
    assert safe.left_out is not None
    assert safe.left_out[7]
    assert safe.left_out.sum() >= 20  # with others, or the constant would tell who is missing
    kept = np.concatenate(list(safe.blocks()))
    assert not kept[safe.left_out].any()
    assert np.array_equal(kept[~safe.left_out], whole[~safe.left_out])
    assert "left out of the sums" in safe.note()[0]
    for choice in ({"epsilon": 1.0}, {"allow_small_n": True}):
        settings = job(**choice)
        assert replace(block, job=settings).without_heavy_rows(b"k" * 32).left_out is None


def test_a_small_class_is_refused_and_noise_covers_it():
    labels = torch.zeros(ROWS, dtype=torch.int64)
    labels[:10] = 1
    with pytest.raises(InputError, match=r"class 'b' has 10 training rows"):
        active_block(None, labels)
    assert active_block(None, labels, epsilon=1.0).width == 3
