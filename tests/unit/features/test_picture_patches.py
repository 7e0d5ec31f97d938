"""The map for pictures that needs no GPU: what it learns, what it is blind to, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FitContext, OwnRows
from veracausa.features.methods.patches import Patches, PatchOptions, patch_size, pooling, spherical_k_means
from veracausa.runs.store import deserialize_state, same, serialize_state


def strokes(n: int, seed: int, shape: tuple[int, int, int] = (3, 16, 12)) -> tuple[Tensor, Tensor]:
    """Pictures with one short stroke anywhere: lying, standing or a dot, on noise. Pixels alone tell them badly."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=rng)
    x = 0.4 + 0.04 * torch.randn(n, *shape, generator=rng)
    for row, label in enumerate(labels.tolist()):
        height, width = ((1, 6), (6, 1), (2, 2))[label]
        top = int(torch.randint(shape[1] - height + 1, (), generator=rng))
        left = int(torch.randint(shape[2] - width + 1, (), generator=rng))
        x[row, :, top : top + height, left : left + width] += 0.35
    return (x.clamp(0, 1) * 255).to(torch.uint8), labels


def made(**settings: Any) -> Patches:
    settings = {"dictionary": 40, "patches": 2000, "rounds": 3, "size": 4, "width": 24, **settings}
    options = feature_maps.options("patches")(name="patches", **settings)
    found = feature_maps.get("patches")(options)
    assert isinstance(found, Patches)
    return found


def context(seed: int = 0, **given: Any) -> FitContext:
    return FitContext(torch.Generator().manual_seed(seed), **given)


def accuracy(train: Array, labels: Tensor, test: Array, wanted: Tensor) -> float:
    from sklearn.linear_model import RidgeClassifier

    return float(RidgeClassifier(alpha=1.0).fit(train, labels).score(test, wanted))


def test_a_linear_head_on_patches_sees_what_one_on_pixels_does_not() -> None:
    (x, labels), (unseen, wanted) = strokes(600, 0), strokes(400, 1)
    feature_map = made(grid=(1, 1))  # where a stroke lies does not matter
    # Where all rows are in the sample `fit` has their features already.
    fitted = feature_map.fit(OwnRows(x), context())
    assert fitted is not None
    assert np.allclose(fitted, feature_map.map(x / 255), atol=1e-3)
    found = accuracy(feature_map.map(x / 255), labels, feature_map.map(unseen / 255), wanted)
    pixels = accuracy((x / 255).flatten(1).numpy(), labels, (unseen / 255).flatten(1).numpy(), wanted)
    assert found > pixels + 0.2
    few = made(sample=100)
    assert few.fit(OwnRows(x), context()) is None
    assert few.map(unseen / 255).shape == (400, 24)


@pytest.mark.parametrize("shape", [(1, 12, 6), (3, 9, 16)])
def test_any_strip_has_features_that_are_its_own_rows_alone(shape: tuple[int, int, int]) -> None:
    x, _ = strokes(60, 0, shape)
    feature_map = made(width=7, grid=(2, 1))
    feature_map.fit(OwnRows(x), context())
    found = feature_map.map(x / 255)
    assert found.shape == (60, 7)
    assert found.dtype == np.float64
    assert np.allclose(feature_map.map(x[5:6] / 255), found[5:6], atol=1e-4)
    # By default a mirror image is the same picture where there is colour, and another one where there is none.
    assert np.allclose(feature_map.map(x.flip(3) / 255), found, atol=1e-4) == (shape[0] == 3)
    assert feature_map.map(x[:0] / 255).shape == (0, 7)
    # Scaled to spread 1 by whoever sums, no feature may be many times narrower than another.
    assert found.std(0).max() < 5 * found.std(0).min()


def test_the_same_seed_gives_the_same_bits_and_a_state_goes_through_a_file() -> None:
    x, _ = strokes(80, 0)

    def fitted(seed: int) -> Patches:
        feature_map = made()
        feature_map.fit(OwnRows(x), context(seed))
        return feature_map

    first = fitted(1)
    assert same(first.state(), fitted(1).state())
    assert not same(first.state(), fitted(2).state())
    other = made()
    other.load_state(deserialize_state(serialize_state(first.state())))
    assert other.width == first.width
    assert np.array_equal(other.map(x / 255), first.map(x / 255))


def test_the_width_grows_with_the_rows_as_sums_over_rows_bear_it() -> None:
    for rows, width in ((100, 16), (800, 24)):
        x, _ = strokes(rows, 0)
        feature_map = made(width=None)
        feature_map.fit(OwnRows(x), context())
        assert feature_map.width == width


def test_progress_is_told_and_never_falls() -> None:
    told: list[float] = []
    x, _ = strokes(200, 0)
    made().fit(OwnRows(x), context(progress=told.append))
    assert told == sorted(told)
    assert told[-1] == 1


def test_a_picture_of_one_colour_has_finite_features() -> None:
    x, _ = strokes(60, 0)
    x[0] = 0
    feature_map = made()
    feature_map.fit(OwnRows(x), context())
    assert np.isfinite(feature_map.map(x / 255)).all()


def test_rows_and_states_that_do_not_fit_are_refused() -> None:
    x, _ = strokes(60, 0)
    with pytest.raises(InputError, match="fit"):
        made(size=13).fit(OwnRows(x), context())
    with pytest.raises(InputError, match="table"):
        made().fit(OwnRows(torch.zeros(9, 4)), context())
    with pytest.raises(InputError, match="few"):
        made().fit(OwnRows(x[:1]), context())
    for call in (lambda m: m.map(x / 255), lambda m: m.state()):
        with pytest.raises(InputError, match="fitted"):
            call(made())
    feature_map = made()
    feature_map.fit(OwnRows(x), context())
    with pytest.raises(InputError, match="shape"):
        feature_map.map(torch.zeros(1, 3, 16, 16))
    state = feature_map.state()
    for broken in ({}, {**state, "words": state["words"][:5]}, {**state, "shape": [1, 16, 12]}):
        with pytest.raises(InputError):
            made().load_state(broken)
    with pytest.raises(InputError, match="settings"):
        made(grid=(1, 1)).load_state(state)


def test_spherical_k_means_finds_separate_directions() -> None:
    rng = torch.Generator().manual_seed(0)
    centres = torch.eye(6)
    points = centres[torch.arange(600) % 6] + 0.05 * torch.randn(600, 6, generator=rng)
    # From one word a cluster the words can only sharpen.
    words = spherical_k_means(torch.nn.functional.normalize(points, dim=1), 30, 10, rng, lambda share: None)
    assert torch.allclose(words.norm(dim=1), torch.ones(30), atol=1e-5)
    assert float((words @ centres.T).max(0).values.min()) > 0.99


@pytest.mark.parametrize(("height", "width", "grid"), [(27, 11, (3, 2)), (5, 3, (2, 2)), (1, 2, (3, 4))])
def test_every_cell_of_the_grid_is_a_mean(height: int, width: int, grid: tuple[int, int]) -> None:
    cells = pooling(height, width, grid)
    assert cells.shape == (grid[0] * grid[1], height * width)
    assert torch.allclose(cells.sum(1), torch.ones(len(cells)))
    if height >= grid[0] and width >= grid[1]:
        assert bool((cells.gt(0).sum(0) == 1).all())
    assert math.isclose(float(cells.min()), 0.0, abs_tol=1e-9) or len(cells) == 1


def test_the_usual_patch_fits_into_small_pictures() -> None:
    sizes = {sides: patch_size(PatchOptions(), sides) for sides in ((32, 16), (8, 4), (3, 3), (2, 2))}
    assert sizes == {(32, 16): 6, (8, 4): 3, (3, 3): 2, (2, 2): 2}
    assert patch_size(PatchOptions(size=4), (32, 16)) == 4
