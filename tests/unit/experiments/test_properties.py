"""The page of Table I: the marks that are lost, what is seen of a defense, and that the page is not stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.experiments.properties import ClaimedMethod, ClaimedTable, properties_page, read_claims, see

RESULTS = Path(__file__).parents[3] / "results"
THREE = ("labels", "early", "proof")


def table(*methods: ClaimedMethod) -> ClaimedTable:
    return ClaimedTable(title="A toy", about="About.", properties=THREE, methods=methods)


def test_a_lost_tick_may_be_at_any_place_that_keeps_the_order():
    method = ClaimedMethod(name="one", marks="× ~")
    assert table(method).possible(method) == ["× or ✓", "~ or ✓ or ×", "✓ or ~"]


def test_what_the_text_says_narrows_it():
    method = ClaimedMethod(name="one", marks="× ~", told={"proof": "✓"})
    assert table(method).possible(method) == ["×", "~", "✓"]


def test_marks_that_fit_nothing_are_named():
    method = ClaimedMethod(name="one", marks="× ~", told={"labels": "~"})
    with pytest.raises(InputError, match="one"):
        table(method).possible(method)


@pytest.mark.parametrize(
    ("name", "first", "later", "own_loss", "layers", "batch"),
    [
        ("none", False, False, False, False, False),
        ("nopeek", False, False, True, False, False),
        ("prune", True, True, False, False, False),
        ("soteria", True, True, False, False, True),
        ("noisy_bottleneck", True, True, False, True, False),
        ("greyscale", True, True, False, False, False),
    ],
)
def test_what_a_defense_does_is_seen(name: str, first: bool, later: bool, own_loss: bool, layers: bool, batch: bool):
    seen = see(name)
    assert (seen.first_exchange, seen.test_time) == (first, later)
    assert (seen.own_loss, seen.own_layers, seen.depends_on_batch) == (own_loss, layers, batch)


def test_the_page_that_is_there_is_not_stale():
    claims = read_claims("causshield")
    assert claims is not None
    written = (RESULTS / "causshield" / "table1.md").read_text(encoding="utf-8")
    assert written == properties_page(claims), "write it again: veracausa reproduce --index"
    assert read_claims("vfedcd") is None
