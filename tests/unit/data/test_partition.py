"""Who holds which pixels and columns of a row, and which rows a party lacks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import Names

from veracausa.data.options import Overlap
from veracausa.data.overlap import held, parties_lacking, restrict
from veracausa.data.partition import check_claims, pixels, random_groups, strip_sizes, strips
from veracausa.data.vertical import Part
from veracausa.errors import InputError
from veracausa.seeding import generator


@given(
    parts=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    other=st.integers(1, 5),
    axis=st.sampled_from(["width", "height"]),
    seed=st.integers(0, 1000),
)
def test_strips_put_side_by_side_are_the_picture(parts, other, axis, seed):
    extent = sum(parts)
    shape = (2, 3, other, extent) if axis == "width" else (2, 3, extent, other)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(seed))
    pieces = strips(images, strip_sizes(extent, len(parts), parts, axis), axis)
    assert [piece.shape[3 if axis == "width" else 2] for piece in pieces] == parts
    assert torch.equal(torch.cat(pieces, dim=3 if axis == "width" else 2), images)
    assert {piece.untyped_storage().data_ptr() for piece in pieces} == {images.untyped_storage().data_ptr()}


@given(extent=st.integers(1, 100), count=st.integers(1, 10))
def test_default_strips_are_equal_with_the_remainder_at_the_last(extent, count):
    if extent < count:
        with pytest.raises(InputError, match="left with none"):
            strip_sizes(extent, count, None, "width")
        return
    sizes = strip_sizes(extent, count, None, "width")
    assert sum(sizes) == extent
    assert set(sizes[:-1]) <= {extent // count}
    assert sizes[-1] >= extent // count


@pytest.mark.parametrize(
    ("parts", "message"),
    [((3, 4), "adds up to 7"), ((8,), "1 parts for 2"), ((0, 8), "at least 1"), ((-1, 9), "at least 1")],
)
def test_wrong_parts_are_refused(parts, message):
    with pytest.raises(InputError, match=message):
        strip_sizes(8, 2, parts, "width")


@given(count=st.integers(4, 60), parties=st.integers(1, 4), seed=st.integers(0, 1000))
def test_random_groups_share_out_everything_once(count, parties, seed):
    groups = random_groups(count, parties, None, generator(seed, "partition"))
    assert sorted(torch.cat(groups).tolist()) == list(range(count))
    again = random_groups(count, parties, None, generator(seed, "partition"))
    assert all(torch.equal(a, b) for a, b in zip(groups, again, strict=True))


def test_random_groups_take_counts():
    groups = random_groups(10, 2, (3, 4), generator(0))
    assert [len(group) for group in groups] == [3, 4]
    with pytest.raises(InputError, match="asks for 11 columns"):
        random_groups(10, 2, (3, 8), generator(0))


def test_random_pixels_keep_all_their_channels():
    images = torch.arange(2 * 3 * 2 * 2, dtype=torch.uint8).reshape(2, 3, 2, 2)
    taken = pixels(images, torch.tensor([1, 3]))
    assert taken.shape == (2, 6)
    assert taken[0].tolist() == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"a": ("age",), "b": ("age",)}, "by 'a' and 'b'"),
        ({"a": ("age", "age")}, "twice by party 'a'"),
        ({"a": ("agee",)}, "did you mean 'age'"),
        ({"a": ("y",)}, "which is the label"),
        ({"a": ("id",)}, "which is the id"),
    ],
)
def test_wrong_claims_are_refused(claims, message):
    with pytest.raises(InputError, match=message):
        check_claims(claims, ["id", "age", "bmi", "y"], {"y": "label", "id": "id"}, "people.csv")


def test_a_column_nobody_claims_is_fine():
    check_claims({"a": ("age",)}, ["id", "age", "bmi", "y"], {"y": "label", "id": "id"}, "people.csv")


@given(count=st.integers(1, 500), fraction=st.floats(0.1, 1), seed=st.integers(0, 100))
def test_a_party_holds_the_fraction_and_what_it_holds_is_right(count, fraction, seed):
    features = torch.arange(count, dtype=torch.float32).unsqueeze(1)
    positions = held(count, fraction, seed, "b")
    part = restrict(Part(count, features, ids=tuple(map(str, range(count)))), positions)
    everyone = torch.arange(count)
    present = part.present(everyone)
    assert len(part) == count
    assert int(present.sum()) == max(1, round(fraction * count)) == len(part.features)
    mine = everyone[present]
    assert torch.equal(part.take(mine).flatten(), mine.float())
    assert [name != "" for name in part.ids] == present.tolist()


def test_the_draw_is_the_partys_own_and_repeats():
    assert torch.equal(held(100, 0.5, 0, "a"), held(100, 0.5, 0, "a"))
    assert not torch.equal(held(100, 0.5, 0, "a"), held(100, 0.5, 0, "b"))
    assert not torch.equal(held(100, 0.5, 0, "a"), held(100, 0.5, 1, "a"))


def test_what_was_lacking_before_stays_lacking():
    part = Part(3, torch.tensor([[10.0], [12.0]]), torch.tensor([0, -1, 1]))
    again = restrict(part, torch.tensor([1, 2]))
    assert again.index.tolist() == [-1, -1, 0]
    assert again.features.tolist() == [[12.0]]


def test_who_lacks_ids():
    assert parties_lacking(Overlap(), ("a", "b")) == ()
    assert parties_lacking(Overlap(fraction=0.5), ("a", "b")) == ("b",)
    assert parties_lacking(Overlap(fraction=0.5, parties=("a",)), ("a", "b")) == ("a",)
    with pytest.raises(InputError, check=Names("overlap.parties", "active")):
        parties_lacking(Overlap(fraction=0.5, parties=("active",)), ("a", "b"))
