from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.data.options import Overlap
from veracausa.data.overlap import held, parties_lacking, restrict
from veracausa.data.vertical import Part
from veracausa.errors import InputError


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
    with pytest.raises(InputError, match="'active' is no passive party"):
        parties_lacking(Overlap(fraction=0.5, parties=("active",)), ("a", "b"))
